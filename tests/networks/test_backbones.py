from collections.abc import Callable

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

from diffclust.networks import AbstractBackbone, StridedBackbone, residual_backbone
from diffclust.networks.backbones import Convolution, GroupNormalisation, max_pool

MAKERS: dict[str, Callable[..., AbstractBackbone]] = {
    "quick": StridedBackbone,
    "residual": residual_backbone,
    "residual, group": lambda *size, key: residual_backbone(*size, key=key, normalisation="group"),
}
SIZE = (9, 13, 3)
"""One size for most tests, so that a backbone is compiled once for all of them."""

every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
# Twenty layers compile slowly: what they share with the quick one is checked on that every time.
quick_first = pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, marks=[] if name == "quick" else pytest.mark.slow)
        for name, make in MAKERS.items()
    ],
    ids=MAKERS.keys(),
)


def images(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).uniform(size=shape), dtype=jnp.result_type(float))


@eqx.filter_jit
def read(backbone: AbstractBackbone, image: jax.Array) -> jax.Array:
    return backbone(image)


@eqx.filter_jit
def features(backbone: AbstractBackbone, batch: jax.Array) -> jax.Array:
    return jax.vmap(backbone)(batch)


@eqx.filter_jit
def squares(backbone: AbstractBackbone, batch: jax.Array) -> jax.Array:
    return jnp.mean(jax.vmap(backbone)(batch) ** 2)


gradients = eqx.filter_jit(eqx.filter_grad(squares))


@quick_first
def test_one_image_is_read_alike_alone_and_in_a_batch(
    make: Callable[..., AbstractBackbone], key
) -> None:
    backbone, batch = make(*SIZE, key=key), images(3, *SIZE)
    result = features(backbone, batch)
    assert result.shape == (3, backbone.num_features)
    np.testing.assert_allclose(result[1], read(backbone, batch[1]), rtol=1e-4, atol=1e-5)
    assert float(jnp.std(result, axis=0).max()) > 1e-3
    # Features neither vanish nor explode over the layers.
    assert 1e-2 < float(jnp.mean(result**2)) < 1e2
    # Everything that is not an array is static.
    assert all(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(backbone))


@every_maker
@pytest.mark.parametrize("size", [(4, 4, 1), (5, 64, 2), (28, 28, 1), (128, 96, 3)], ids=str)
def test_any_size_is_read(make: Callable[..., AbstractBackbone], size, key) -> None:
    backbone = eqx.filter_eval_shape(make, *size, key=key)
    result = eqx.filter_eval_shape(lambda read, image: read(image), backbone, images(*size))
    assert result.shape == (backbone.num_features,)


@quick_first
def test_every_convolution_has_a_finite_gradient(
    make: Callable[..., AbstractBackbone], key
) -> None:
    leaves = jax.tree.leaves(gradients(make(*SIZE, key=key), images(3, *SIZE)))
    chex.assert_tree_all_finite(leaves)
    # Residual branches too, from the first step on.
    assert all(bool((leaf != 0).any()) for leaf in leaves if leaf.ndim == 4)


@quick_first
def test_key_decides(make: Callable[..., AbstractBackbone], key) -> None:
    one, same, other = (make(*SIZE, key=k) for k in (key, key, jax.random.key(1)))
    picture = images(*SIZE)
    np.testing.assert_array_equal(read(one, picture), read(same, picture))
    assert not np.array_equal(read(one, picture), read(other, picture))


@quick_first
def test_double_precision(make: Callable[..., AbstractBackbone], key) -> None:
    narrow = make(*SIZE, key=key)
    with jax.enable_x64(True):
        made = eqx.filter_eval_shape(make, *SIZE, key=key)
        assert all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(made))
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), narrow)
        exact = read(wide, images(*SIZE))
        assert exact.dtype == jnp.float64
    np.testing.assert_allclose(read(narrow, images(*SIZE)), exact, rtol=1e-3, atol=1e-4)


def test_depth_follows_size(key) -> None:
    small, large = (
        eqx.filter_eval_shape(lambda side=side: residual_backbone(side, 70, 3, key=key))
        for side in (63, 64)
    )
    assert (len(small.blocks), small.num_features) == (9, 64)
    assert (len(large.blocks), large.num_features) == (8, 512)


def test_resnets_have_the_published_sizes(key) -> None:
    def weights(depth: int) -> int:
        made = eqx.filter_eval_shape(lambda: residual_backbone(32, 32, 3, key=key, depth=depth))
        kernels = [leaf for leaf in jax.tree.leaves(made) if leaf.ndim == 4]
        return sum(leaf.size for leaf in kernels)

    # He et al., Section 4.2: 0.27 million with the last layer (64 × 10) and normalisations.
    assert weights(20) == 16 * 27 + 6 * 9 * 16**2 + 9 * (16 * 32 + 5 * 32**2 + 32 * 64 + 5 * 64**2)
    # torchvision's ResNet-18 has 11,689,512 with a last layer (513,000), normalisations (9,600) and
    # three projections as shortcuts (172,032).
    assert weights(18) == 11_689_512 - 513_000 - 9_600 - 172_032


def test_bad_arguments_are_refused(key) -> None:
    for make in (StridedBackbone, residual_backbone):
        with pytest.raises(ValueError, match="4×3 pixels are smaller than the 4×4 that networks"):
            make(4, 3, 1, key=key)
        with pytest.raises(ValueError, match="channels must be at least 1"):
            make(4, 4, 0, key=key)
    with pytest.raises(ValueError, match=r"depth must be one of \[18, 20\]"):
        residual_backbone(8, 8, 1, key=key, depth=19)
    with pytest.raises(ValueError, match=r"reads images of shape \(8, 8, 1\), not \(8, 9, 1\)"):
        StridedBackbone(8, 8, 1, key=key)(images(8, 9, 1))


def test_quick_backbone_keeps_few_cells(key) -> None:
    for height, width, cells in [(28, 28, 16), (16, 16, 16), (20, 90, 9), (128, 500, 16)]:
        backbone = eqx.filter_eval_shape(
            lambda h=height, w=width: StridedBackbone(h, w, 1, key=key)
        )
        assert isinstance(backbone, StridedBackbone)
        assert backbone.num_features == 16 * cells


def test_quick_backbone_knows_where_things_are(key) -> None:
    picture = jnp.zeros((28, 28, 1)).at[4:10, 4:10].set(1.0)
    moved = jnp.roll(picture, (12, 12), axis=(0, 1))
    quick = StridedBackbone(28, 28, 1, key=key)
    apart = jnp.linalg.norm(quick(picture) - quick(moved)) / jnp.linalg.norm(quick(picture))
    assert float(apart) > 0.3


@pytest.mark.parametrize(("size", "stride"), [(3, (1, 1)), (5, (2, 1)), (7, (2, 2))])
def test_convolution_against_scipy(size: int, stride: tuple[int, int], key) -> None:
    layer = Convolution(2, 3, size=size, stride=stride, key=key)
    layer = eqx.tree_at(lambda made: made.bias, layer, jnp.arange(3.0))
    picture = images(9, 8, 2)
    expected = np.zeros((9, 8, 3)) + np.arange(3.0)
    for i in range(2):
        for o in range(3):
            expected[..., o] += scipy.signal.correlate2d(
                picture[..., i], layer.weight[..., i, o], mode="same"
            )
    np.testing.assert_allclose(
        layer(picture), expected[:: stride[0], :: stride[1]], rtol=1e-4, atol=1e-4
    )


def test_group_normalisation_against_numpy() -> None:
    picture = 3 * images(6, 5, 16) + 2
    gain, shift = images(16) + 1, images(16)
    layer = eqx.tree_at(lambda made: (made.gain, made.shift), GroupNormalisation(16), (gain, shift))
    grouped = np.asarray(picture, dtype=np.float64).reshape(30, 8, 2)
    mean, variance = grouped.mean((0, 2), keepdims=True), grouped.var((0, 2), keepdims=True)
    normal = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(6, 5, 16)
    expected = normal * np.asarray(gain) + np.asarray(shift)
    np.testing.assert_allclose(layer(picture), expected, rtol=1e-3, atol=1e-4)


def test_group_normalisation_of_bright_images_keeps_its_digits() -> None:
    bright = 1e4 + jax.random.normal(jax.random.key(0), (9, 8, 16))
    assert float(jnp.std(GroupNormalisation(16)(bright))) == pytest.approx(1.0, rel=1e-2)


def test_single_precision_goes_into_networks_of_double() -> None:
    with jax.enable_x64(True):
        network = residual_backbone(8, 8, 1, key=jax.random.key(0))
        assert network(jnp.zeros((8, 8, 1), jnp.float32)).dtype == jnp.float64


def test_group_normalisation_of_a_blank_image_has_finite_gradients() -> None:
    layer = GroupNormalisation(8)
    gradient = jax.jit(jax.grad(lambda picture: jnp.sum(layer(picture) ** 2)))(
        jnp.full((4, 4, 8), 0.3)
    )
    assert bool(jnp.isfinite(gradient).all())


def test_max_pool_takes_the_largest_neighbour() -> None:
    picture = images(5, 6, 2) - 2.0
    result = max_pool(picture)
    padded = np.pad(picture, ((1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
    np.testing.assert_array_equal(result, windows.max(axis=(-2, -1))[::2, ::2])
