"""What the papers prove of invariant distances, and what is left of it under splines, no group."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from diffclust.alignment import Descent, GridSearch, InvariantDistance, Stage
from diffclust.energies import TransformedDistance
from diffclust.linalg import product
from diffclust.prototypes import Clusters
from diffclust.sampling import bilinear_sample, pixel_grid
from diffclust.testing.drawing import smooth_image
from diffclust.transforms import AbstractSpatialTransform, Affine, ThinPlateSpline
from diffclust.types import Image, Key, Params, Points

SIDE, COUNT = 32, 12
SPLINE = ThinPlateSpline((3, 3))


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def images(key: Key, count: int = COUNT) -> Array:
    """Blobs of unit norm that lie well inside the canvas."""
    drawn = jnp.stack(
        [smooth_image(k, SIDE, SIDE, sigma=0.18) for k in jax.random.split(key, count)]
    )
    return drawn / jnp.sqrt(jnp.sum(drawn**2, axis=(1, 2, 3), keepdims=True))


def squared(x: Array, y: Array) -> Array:
    """Squared distances of images."""
    return jnp.sum((x - y) ** 2, axis=(1, 2, 3))


def distances(energy: TransformedDistance, x: Array, y: Array) -> Array:
    """Invariant distances of pairs, by a long descent."""
    descent = Descent((Stage(20, blur=1 / 14), Stage(40)))
    distance = InvariantDistance(energy, descent).prepared(y)
    return jax.jit(jax.vmap(lambda sample, prototype: distance(sample, prototype)))(x, y)


def drawn_splines(key: Key, amount: float = 0.08) -> Array:
    return amount * jax.random.normal(key, (COUNT, SPLINE.num_params))


@pytest.mark.slow
def test_proposition_3_regions_have_a_metric_tensor_for_each_pair(key: Key) -> None:
    """‖A x - c‖² = (x - A⁻¹ c)ᵀ AᵀA (x - A⁻¹ c), where A is the matrix that bends and samples."""
    small = jnp.stack([smooth_image(k, 9, 9, sigma=0.3) for k in jax.random.split(key, 8)])
    samples, prototypes = jnp.split(small, 2)
    bends = 0.02 * jax.random.normal(key, (4, 4, SPLINE.num_params))
    pixels = jnp.eye(81).reshape(9, 9, 81)

    def both_ways(params: Params, x: Image, c: Image) -> tuple[Array, Array]:
        matrix = bilinear_sample(pixels, SPLINE.warp(params, pixel_grid(9, 9))).reshape(81, 81)
        tensor = product(matrix.T, matrix)
        difference = x.ravel() - jnp.linalg.solve(matrix, c.ravel())
        direct = jnp.sum((SPLINE(params, x) - c) ** 2)
        return direct, product(difference[None], product(tensor, difference[:, None]))[0, 0]

    of_pairs = jax.vmap(jax.vmap(both_ways, (0, None, 0)), (0, 0, None))
    direct, weighted = jax.jit(of_pairs)(bends, samples, prototypes)
    np.testing.assert_allclose(weighted, direct, rtol=1e-8)
    np.testing.assert_array_equal(jnp.argmin(weighted, axis=1), jnp.argmin(direct, axis=1))


@pytest.mark.slow
def test_proposition_4_the_distance_is_zero_on_an_orbit(key: Key) -> None:
    """Both ways, though no spline is the inverse of another; descent and pixels leave a little."""
    x = images(key)
    bent = jax.vmap(SPLINE)(drawn_splines(key), x)
    energy = TransformedDistance(SPLINE)
    unaligned = squared(bent, x).mean()
    assert distances(energy, x, bent).mean() < 0.001 * unaligned
    assert distances(energy, bent, x).mean() < 0.02 * unaligned


@pytest.mark.slow
def test_proposition_5_bent_samples_are_as_far_from_others(key: Key) -> None:
    """Under drawn splines d(T x, c) differs from d(x, c) by little of what bending cost."""
    x, c = images(key), images(jax.random.fold_in(key, 1))
    bent = jax.vmap(SPLINE)(drawn_splines(key), x)
    energy = TransformedDistance(SPLINE)
    change = jnp.abs(distances(energy, bent, c) - distances(energy, x, c))
    assert change.mean() < 0.15 * squared(bent, x).mean()
    # Without alignment it differs by far more.
    assert change.mean() < 0.2 * jnp.abs(squared(bent, c) - squared(x, c)).mean()


def zoom(factors: np.ndarray) -> Array:
    """Params of `Affine` that read the image `factors` times closer to the middle."""
    less = jnp.asarray(1.0 / factors - 1.0)
    zero = jnp.zeros_like(less)
    return jnp.stack([less, zero, zero, less, zero, zero], axis=1)


def test_proposition_4_the_triangle_inequality_fails() -> None:
    """b is a, but for a detail; c is b, enlarged. So d(b, c) = 0, and d(a, c) is the detail's."""
    x, y = pixel_grid(96, 96)

    def ring(scale: float, detail: float) -> Array:
        radius = jnp.hypot(x, y) / scale
        return (
            jnp.exp(-(((radius - 0.3) / 0.15) ** 2)) + detail * jnp.exp(-((radius / 0.15) ** 2))
        )[..., None]

    a, b, c = ring(1.0, 0.5), ring(1.0, 0.0), ring(2.0, 0.0)
    search = GridSearch(zoom(np.linspace(0.5, 2.5, 41)))
    distance = InvariantDistance(TransformedDistance(Affine()), search).prepared(a[None])
    root = jax.jit(lambda x, y: jnp.sqrt(distance(x, y)))
    first, second, third = (root(*pair) for pair in ((a, b), (b, c), (a, c)))
    assert second < 0.05 * first
    assert third > 1.5 * (first + second)


def inverse_of(params: Params, points: Points) -> Points:
    """Where the inverse of a spline takes points, by the iteration u = z - (T u - u)."""

    def step(_: Array | int, at: Points) -> Points:
        return points - (SPLINE.warp(params, at) - at)

    return jax.lax.fori_loop(0, 60, step, points)


def back_by_affine(params: Params, sample: Image) -> tuple[Image, Array]:
    """A sample under the inverse map, and the inverse's Jacobian determinants."""
    transform, grid = Affine(), pixel_grid(SIDE, SIDE)
    inverse = transform.inverse(params)
    return transform(inverse, sample), transform.jacobian_determinant(inverse, grid)


def back_by_spline(params: Params, sample: Image) -> tuple[Image, Array]:
    """The same for a spline, whose inverse is none."""
    at = inverse_of(params, pixel_grid(SIDE, SIDE))
    return bilinear_sample(sample, at), 1.0 / SPLINE.jacobian_determinant(params, at)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transform", "back", "amount"),
    [(Affine(), back_by_affine, 0.1), (SPLINE, back_by_spline, 0.08)],
)
def test_proposition_4_jacobian_weights_make_energies_symmetric(
    transform: AbstractSpatialTransform, back: Callable[..., Any], amount: float, key: Key
) -> None:
    """At a map and its inverse. Not so the distance: the inverse is not among the splines."""
    x, c = images(key), images(jax.random.fold_in(key, 1))
    params = amount * jax.random.normal(key, (COUNT, transform.num_params))
    moved, area = jax.jit(jax.vmap(back))(params, c)
    weight = 0.5 * (1.0 + jnp.abs(area))[..., None]
    there, weighted = (
        jax.jit(jax.vmap(at_params(transform, weights)))(params, x, c)
        for weights in ("uniform", "jacobian")
    )
    backward = jnp.sum(weight * (moved - x) ** 2, axis=(1, 2, 3))
    np.testing.assert_allclose(weighted, backward, rtol=0.05)
    assert jnp.abs(there / squared(moved, x) - 1.0).max() > 0.1


def at_params(transform: AbstractSpatialTransform, weights: Any) -> Callable[..., Array]:
    energy = TransformedDistance(transform, pixel_weights=weights)

    def of_pair(params: Params, sample: Image, prototype: Image) -> Array:
        return energy.bind(sample)(
            params, sample, Clusters(prototype, jnp.zeros(energy.num_penalties))
        )

    return of_pair
