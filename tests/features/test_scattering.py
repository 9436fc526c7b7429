import functools
import importlib.util
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage

from diffclust import plotting
from diffclust.features import RotationInvariantScattering, Scattering, ScatteringPath
from diffclust.transforms import Rotation, ThinPlateSpline

DATA = Path(__file__).parents[1] / "data"


@functools.cache
def reference_script():
    spec = importlib.util.spec_from_file_location("make", DATA / "make_scattering_kymatio.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def strokes(height=16, width=16, count=3):
    return reference_script().images((height, width), count).astype(np.float32)[..., None]


SMALL = Scattering(16, 16, num_scales=2, num_angles=4)


@functools.cache
def compiled(scattering=SMALL):
    return jax.jit(scattering.coefficients)


def relative(actual, wanted):
    actual, wanted = np.asarray(actual, np.float64), np.asarray(wanted, np.float64)
    return np.linalg.norm(actual - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize("name", ["square", "small", "first"])
def test_agrees_with_kymatio(name):
    module = reference_script()
    case = module.CASES[name]
    scattering = Scattering(
        *case["size"], num_scales=case["scales"], num_angles=case["angles"], order=case["order"]
    )
    images = module.images(case["size"], case["count"]).astype(np.float32)[..., None]
    result = jax.jit(jax.vmap(scattering.coefficients))(jnp.asarray(images))[:, 0]
    with np.load(DATA / "scattering_kymatio.npz") as stored:
        wanted = stored[name]
    assert result.shape == wanted.shape
    for path in range(result.shape[1]):
        assert relative(result[:, path], wanted[:, path]) < 1e-4
    if name == "square":
        assert scattering.num_features(1) == 3472


def direct(image, scales, angles, order, padding):
    """The definition at full resolution, filters summed in space, spectra cropped as kymatio's."""
    block = 2**scales
    sizes = [
        n if padding == "periodic" and n % block == 0 else (n // block + 2) * block
        for n in image.shape
    ]
    margins = [((m - n) // 2, (m - n + 1) // 2) for n, m in zip(image.shape, sizes, strict=True)]
    mode = {"reflect": "reflect", "zero": "constant", "periodic": "wrap"}[padding]
    canvas = np.pad(image, margins, mode=mode)
    inside = tuple(slice(None) if m == (0, 0) else slice(1, -1) for m in margins)

    def gabor(sigma, theta, frequency, slant):
        total = 0
        for down in range(-6, 7):
            for right in range(-6, 7):
                y, x = np.mgrid[: sizes[0], : sizes[1]]
                y, x = y + down * sizes[0], x + right * sizes[1]
                along = y * np.cos(theta) + x * np.sin(theta)
                across = x * np.cos(theta) - y * np.sin(theta)
                envelope = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
                total = total + envelope * np.exp(1j * frequency * along)
        return total / (2 * 3.1415 * sigma**2 / slant)

    def morlet(scale, index):
        theta = (int(angles - angles / 2 - 1) - index) * np.pi / angles
        wave, envelope = (
            gabor(0.8 * 2**scale, theta, xi, 4 / angles) for xi in (0.75 * np.pi / 2**scale, 0)
        )
        return np.fft.fft2(wave - wave.sum() / envelope.sum() * envelope).real

    def convolve(u, transform, level, factor):
        for axis, n in enumerate(u.shape):
            full = transform.shape[axis]
            kept = [*range(n // 2), *range(full - n // 2, full)]
            transform = np.take(transform, kept, axis)
        return np.fft.ifft2(np.fft.fft2(u) * transform)[::factor, ::factor]

    psi = {(j, t): morlet(j, t) for j in range(scales) for t in range(angles)}
    phi = np.fft.fft2(gabor(0.8 * 2 ** (scales - 1), 0, 0, 1)).real

    def average(u, level):
        return convolve(u, phi, level, 2 ** (scales - level)).real[inside]

    orders = {0: [average(canvas, 0)], 1: [], 2: []}
    for (j1, t1), psi1 in psi.items():
        del t1
        u1 = np.abs(convolve(canvas, psi1, 0, 2**j1))
        orders[1].append(average(u1, j1))
        for (j2, t2), psi2 in psi.items():
            del t2
            if j2 > j1:
                orders[2].append(average(np.abs(convolve(u1, psi2, j1, 2 ** (j2 - j1))), j2))
    return np.stack([grid for n in range(order + 1) for grid in orders[n]])


@pytest.mark.parametrize(
    ("height", "width", "scales", "angles", "order", "padding"),
    [
        (13, 18, 2, 3, 2, "reflect"),
        (13, 18, 2, 3, 2, "zero"),
        (11, 16, 2, 5, 2, "periodic"),
        pytest.param(9, 8, 3, 2, 2, "reflect", marks=pytest.mark.slow),
        (8, 8, 3, 2, 2, "periodic"),
        (9, 10, 1, 4, 2, "reflect"),
        pytest.param(70, 19, 3, 2, 2, "zero", marks=pytest.mark.slow),
        pytest.param(70, 19, 3, 2, 1, "reflect", marks=pytest.mark.slow),
    ],
)
def test_agrees_with_the_definition(height, width, scales, angles, order, padding):
    image = np.random.default_rng(1).uniform(size=(height, width, 2))
    with jax.enable_x64(True):
        scattering = Scattering(
            height, width, num_scales=scales, num_angles=angles, order=order, padding=padding
        )
        result = np.asarray(jax.jit(scattering.coefficients)(jnp.asarray(image)))
    assert result.dtype == np.float64
    for channel in range(2):
        wanted = direct(image[..., channel], scales, angles, order, padding)
        np.testing.assert_allclose(result[channel], wanted, rtol=1e-9, atol=1e-12)


def test_paths_say_what_the_coefficients_are():
    scattering = Scattering(32, 40, num_scales=3, num_angles=8)
    paths = scattering.paths
    assert len(paths) == 1 + 3 * 8 + 8**2 * 3 == 217
    assert len(Scattering(32, 40, num_angles=8, order=1).paths) == 1 + 3 * 8
    assert scattering.grid_shape == (4, 5)
    assert scattering.num_features(3) == 3 * 217 * 20
    assert paths[0] == ScatteringPath(0, (), ())
    assert [path.scales for path in paths[1:25]] == [(j,) for j in range(3) for _ in range(8)]
    assert len(set(paths)) == 217
    second = [path for path in paths if path.order == 2]
    assert all(path.scales[0] < path.scales[1] for path in second)
    # The second scale varies faster than the first angle.
    assert [path.scales for path in second[:24:8]] == [(0, 1), (0, 2), (0, 1)]
    assert all(0 <= angle < math.pi for path in paths for angle in path.angles)


def test_angles_are_the_directions_of_waves():
    scattering = Scattering(32, 32, num_scales=2, order=1, padding="periodic")
    y, x = np.mgrid[:32, :32]
    for down, right in [(0, 12), (12, 0), (8, 8), (8, -8)]:
        wave = np.cos(2 * np.pi * (down * y + right * x) / 32)
        response = compiled(scattering)(jnp.asarray(wave[..., None], jnp.float32))[0].sum((1, 2))
        strongest = scattering.paths[1 + int(jnp.argmax(response[1:9]))]
        assert strongest.angles == pytest.approx((math.atan2(down, right) % math.pi,))


def test_vector_is_the_coefficients_in_order():
    image = jnp.asarray(strokes()[1])
    assert jnp.array_equal(SMALL(image), SMALL.coefficients(image).reshape(-1))
    assert SMALL(image).shape == (SMALL.num_features(1),)


@pytest.mark.slow
def test_batches_are_loops():
    images = jnp.asarray(np.concatenate([strokes(), strokes()[::-1] ** 2], axis=-1))
    loop = jnp.stack([compiled()(image) for image in images])
    np.testing.assert_allclose(SMALL.coefficients(images[0]), loop[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(SMALL.coefficients)(images), loop, rtol=1e-4, atol=1e-6)
    nested = jax.vmap(jax.vmap(SMALL.coefficients, in_axes=2))(images[..., None])
    np.testing.assert_allclose(nested[:, :, 0], loop, rtol=1e-4, atol=1e-6)


def test_a_shift_by_one_pixel_changes_little():
    image = strokes(32, 32, 2)[1]
    scattering = Scattering(32, 32, padding="periodic")
    first, second = (
        compiled(scattering)(jnp.asarray(moved)) for moved in (image, np.roll(image, 1, axis=1))
    )
    of_pixels = relative(np.roll(image, 1, axis=1), image)
    # A pixel is 1/8 of the averages' scale 2³.
    assert relative(second, first) < 0.15
    assert relative(second, first) < 0.4 * of_pixels


def test_small_deformations_change_in_proportion(key):
    image = jnp.asarray(strokes(32, 32, 2)[1])
    transform = ThinPlateSpline((4, 4))
    direction = jax.random.normal(key, (transform.num_params,))
    direction = direction / jnp.max(jnp.abs(direction))
    scattering = Scattering(32, 32)
    still = compiled(scattering)(image)
    ratios = [
        relative(compiled(scattering)(jax.jit(transform)(size * direction, image)), still) / size
        for size in (0.01, 0.03, 0.1)
    ]
    assert max(ratios) < 6
    assert max(ratios) < 3 * min(ratios)


@pytest.mark.parametrize("number", range(3))
def test_energy_is_bounded(number):
    # Averages of a 2ᴶ × 2ᴶ block stand for its pixels. kymatio's filters are no tight frame: their
    # Littlewood-Paley sum (wavelets counted half, as a real image has both ±ω) lies between 0.12,
    # in the corners of the spectrum, and 1.02: energy hardly grows, but it is not conserved.
    image = strokes(32, 32)[number]
    scattering = Scattering(32, 32, padding="periodic")
    result = compiled(scattering)(jnp.asarray(image))[0]
    share = 64 * jnp.sum(result**2, axis=(1, 2)) / jnp.sum(image**2)
    by_order = [float(share[part].sum()) for part in (slice(1), slice(1, 25), slice(25, None))]
    assert 0.4 < sum(by_order) < 1.1
    assert by_order[2] < by_order[1]


def test_a_quarter_turn_permutes_the_angles():
    scattering = Scattering(16, 16, num_scales=2, num_angles=8, padding="periodic")
    image = strokes(16, 16)[2]
    # About pixel (0, 0) of the torus, so that the grid of averages turns onto itself.
    turn = functools.partial(np.roll, shift=1, axis=0)
    turned = turn(np.rot90(image, axes=(0, 1)))
    first, second = (np.asarray(compiled(scattering)(jnp.asarray(x))[0]) for x in (image, turned))
    number = {
        (path.scales, tuple(round(angle / math.pi * 8) % 8 for angle in path.angles)): index
        for index, path in enumerate(scattering.paths)
    }
    for (scales, angles), index in number.items():
        after = number[scales, tuple((angle + 4) % 8 for angle in angles)]
        expected = np.roll(np.rot90(first[index]), 1, axis=0)
        np.testing.assert_allclose(second[after], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_gradient_agrees_with_finite_differences(key):
    with jax.enable_x64(True):
        image = jnp.asarray(strokes()[0], jnp.float64)
        cotangent, tangent = (
            jax.random.normal(k, shape, jnp.float64)
            for k, shape in zip(
                jax.random.split(key), [(SMALL.num_features(),), image.shape], strict=True
            )
        )
        value = jax.jit(lambda x: jnp.vdot(SMALL(x), cotangent))
        step = 1e-6
        numeric = (value(image + step * tangent) - value(image - step * tangent)) / (2 * step)
        gradient = jax.jit(jax.grad(value))(image)
        assert float(jnp.vdot(gradient, tangent)) == pytest.approx(float(numeric), rel=1e-6)
        forward = jax.jit(lambda x, t: jax.jvp(value, (x,), (t,))[1])(image, tangent)
        assert float(forward) == pytest.approx(float(numeric), rel=1e-6)
        batch = jax.jit(jax.vmap(jax.grad(value)))(jnp.stack([image, 2 * image]))
        np.testing.assert_allclose(batch[0], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("level", [0.0, 1.0])
@pytest.mark.parametrize("scattering", [SMALL, Scattering(72, 16, num_scales=2, num_angles=1)])
def test_gradient_is_finite_at_a_constant_image(scattering, level):
    image = jnp.full((scattering.height, scattering.width, 1), level)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(scattering(x))))(image)
    assert jnp.all(jnp.isfinite(gradient))


def test_large_images_agree_with_themselves_small():
    # 48 pixels are transformed by matrices, the same torus twice by Fourier transforms.
    image = jnp.asarray(strokes(48, 16)[1])
    small = Scattering(48, 16, num_scales=1, num_angles=2, padding="periodic")
    large = Scattering(96, 16, num_scales=1, num_angles=2, padding="periodic")
    result = compiled(large)(jnp.tile(image, (2, 1, 1)))
    once = compiled(small)(image)
    np.testing.assert_allclose(result, jnp.tile(once, (1, 1, 2, 1)), rtol=1e-4, atol=1e-6)
    batch = jax.vmap(large.coefficients)(jnp.tile(image, (2, 1, 1))[None])
    np.testing.assert_allclose(batch[0], result, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"height": 7}, "7×16; use at most 2 scales or larger images"),
        ({"height": 1}, "not 1×16; use larger images"),
        ({"num_scales": 5}, "at least 32 pixels a side, not 16×16; use at most 4"),
        ({"num_scales": 0}, "num_scales must be at least 1, not 0"),
        ({"order": 3}, "order must be 1 or 2, not 3"),
    ],
)
def test_refuses_what_has_no_transform(arguments, message):
    with pytest.raises(ValueError, match=message):
        Scattering(**{"height": 16, "width": 16, **arguments})


def test_filters_are_drawn():
    figure = plotting.scattering_filters(Scattering(16, 12, num_scales=2, num_angles=4))
    titles = [panel.get_title() for panel in figure.axes]
    assert titles[0] == "j = 0, 45°"
    assert titles[8] == "low-pass"
    assert len(titles) == 12


def test_refuses_another_padding_and_size():
    # The hook on annotations, where it is on, is the first to find this.
    with pytest.raises((ValueError, TypeError), match="padding"):
        Scattering(16, 16, padding="edge")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"takes an image of shape \(16, 16, channels\)"):
        SMALL.coefficients(jnp.zeros((16, 17, 1)))


def test_relative_coefficients_know_no_light():
    relative = Scattering(16, 16, num_scales=2, num_angles=4, relative=True)
    image = jnp.concatenate([strokes()[0], 0.5 * strokes()[1]], axis=2)
    result = np.asarray(relative.coefficients(image))
    assert result.shape[1] == len(relative.paths) == len(SMALL.paths) - 1
    assert relative.num_features(2) == result.size
    np.testing.assert_allclose(result[:, :8].sum(), 1.0, rtol=1e-5)
    plain = np.asarray(SMALL.coefficients(image))[:, 1:]
    np.testing.assert_allclose(result / result[0, 0], plain / plain[0, 0], rtol=1e-4)
    lit = np.asarray(relative.coefficients(0.4 * image + jnp.array([[[0.3, 0.1]]])))
    np.testing.assert_allclose(lit, result, atol=1e-6)
    np.testing.assert_array_equal(relative.coefficients(jnp.full((16, 16, 1), 0.7)), 0)


TURNED = {
    reflection: RotationInvariantScattering(16, num_scales=2, num_angles=4, reflection=reflection)
    for reflection in (False, True)
}


@pytest.mark.parametrize("reflection", [False, True])
def test_quarter_turns_and_mirroring_change_nothing(reflection):
    features = jax.jit(TURNED[reflection])
    image = jnp.asarray(strokes()[2])
    result = features(image)
    assert result.shape == (TURNED[reflection].num_features(),)
    assert result.size == len(TURNED[reflection].scattering.paths) * TURNED[reflection].path_size
    assert all(relative(features(jnp.rot90(image, k)), result) < 1e-4 for k in (1, 2, 3))
    mirrored = relative(features(image[:, ::-1]), result)
    assert mirrored < 1e-4 if reflection else mirrored > 0.02


@pytest.mark.parametrize(("side", "num_scales"), [(12, 2), (7, 1)])
def test_quarter_turns_change_nothing_whatever_the_side(side, num_scales):
    features = jax.jit(RotationInvariantScattering(side, num_scales=num_scales, num_angles=2))
    image = jnp.asarray(np.random.default_rng(0).random((side, side, 1)), jnp.float32)
    assert relative(features(jnp.rot90(image)), features(image)) < 1e-5


def test_turns_by_any_angle_change_little():
    rows, columns = np.indices((32, 32)) - 15.5
    places = np.array([[4, 3, 2.5, 1.0], [-5, 2, 3, 0.8], [1, -6, 2, 0.9]])
    blobs = [h * np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / w**2) for x, y, w, h in places]
    image, others = (jnp.asarray(np.float32(sum(b)))[..., None] for b in (blobs, blobs[:2]))
    turn = jax.jit(Rotation())
    plain, invariant = (jax.jit(f) for f in (Scattering(32, 32), RotationInvariantScattering(32)))
    for angle in (0.3, 1.0, 2.5):
        turned = turn(jnp.asarray([angle]), image)
        moved = relative(invariant(turned), invariant(image))
        assert moved < 0.05
        assert moved < 0.2 * relative(plain(turned), plain(image))
        assert moved < 0.2 * relative(invariant(others), invariant(image))


def test_features_of_turned_images_refuse_other_shapes():
    with pytest.raises(ValueError, match="has to be square"):
        TURNED[False](jnp.zeros((16, 12, 1)))


def test_rotation_invariant_coefficients_are_those_of_the_polar_picture() -> None:
    features = RotationInvariantScattering(16, num_scales=2, num_angles=2)
    image = np.random.default_rng(0).uniform(size=(16, 16)).astype(np.float32)
    circles, angles = features.scattering.height, features.scattering.width
    radius = ((np.arange(circles) + 0.5) / circles)[:, None]
    angle = 2 * np.pi * np.arange(angles) / angles
    rows, columns = (8 * radius * wave(angle) + 7.5 for wave in (np.sin, np.cos))
    polar = scipy.ndimage.map_coordinates(np.pad(image, 2), (rows + 2, columns + 2), order=1)
    paths = features.scattering.coefficients(
        jnp.asarray((np.sqrt(radius) * polar)[..., None], jnp.float32)
    )
    expected = np.abs(np.fft.rfft(np.asarray(paths), axis=-1)) / paths.shape[-1]
    np.testing.assert_allclose(features(jnp.asarray(image[..., None])), expected.ravel(), atol=1e-5)
