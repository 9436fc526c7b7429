"""The library's pure functions in programs that shard their arrays themselves."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array

from diffclust.alignment import Descent, InvariantDistance, Stage
from diffclust.distances import Gaussian, fisher_rao, fisher_rao_mean
from diffclust.energies import TransformedDistance
from diffclust.registration import generalised_procrustes, upright
from diffclust.transforms import Affine, Morphology, ThinPlateSpline
from tests.registry import blobs

COUNT = 8
ROWS = PartitionSpec("rows")


def distance(transform: Affine | ThinPlateSpline) -> Callable[[Array, Array], Array]:
    invariant = InvariantDistance(TransformedDistance(transform), Descent((Stage(2),)))
    return lambda image, other: invariant(image, other)


def to_one_prototype(image: Array) -> Array:
    return distance(Affine())(image, jnp.asarray(blobs(1)[0]))


def moved_and_back(image: Array, params: Array) -> Array:
    transform = ThinPlateSpline((2, 2))
    return transform.undo(params, transform(params, image))


def dilated(image: Array, amount: Array) -> Array:
    transform = Morphology()
    params = jnp.zeros((transform.num_params,)).at[:2].set(50 + amount)
    return transform(params, image)


def mean(means: Array) -> Array:
    covariances = jnp.stack([jnp.eye(2), 2 * jnp.eye(2)])
    return fisher_rao_mean(Gaussian(means, covariances), num_steps=2).covariance


def solid(means: Array) -> Array:
    first, second = means
    return fisher_rao(Gaussian(first, jnp.eye(3)), Gaussian(second, 2 * jnp.eye(3)))


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(COUNT, *shape)).astype(np.float32)


IMAGES = (blobs(COUNT),)
PAIRS = (blobs(COUNT), blobs(2 * COUNT)[COUNT:])
CASES: dict[str, tuple[Callable, tuple[np.ndarray, ...]]] = {
    "spline": (distance(ThinPlateSpline((2, 2))), PAIRS),
    "morphology": (dilated, (blobs(COUNT), drawn(1))),
    "one prototype": (to_one_prototype, IMAGES),
    "moved and back": (moved_and_back, (blobs(COUNT), 0.05 * drawn(8))),
    "upright": (upright, IMAGES),
    "Procrustes": (lambda shapes: generalised_procrustes(shapes).consensus, (drawn(3, 5, 2),)),
    "Fréchet mean": (mean, (drawn(2, 2),)),
    "three dimensions": (solid, (drawn(2, 3),)),
}


SLOW = ("spline", "Fréchet mean", "morphology")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in CASES],
)
def test_arrays_may_be_sharded_along_explicit_axes_or_by_shard_map(name: str) -> None:
    function, arrays = CASES[name]
    mapped = jax.vmap(function)
    wanted = jax.jit(mapped)(*arrays)
    # The axes that `jax.make_mesh` makes are explicit.
    mesh = jax.make_mesh((4,), ("rows",))
    with jax.set_mesh(mesh):
        placed = [jax.device_put(array, NamedSharding(mesh, ROWS)) for array in arrays]
        explicit = jax.jit(mapped)(*placed)
        by_device = jax.jit(jax.shard_map(mapped, in_specs=ROWS, out_specs=ROWS))(*placed)
    for found in (explicit, by_device):
        assert found.sharding.spec[0] == "rows"
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_loss_over_sharded_images_has_its_gradient() -> None:
    images, others = PAIRS

    def loss(prototypes: Array, images: Array) -> Array:
        return jnp.sum(jax.vmap(distance(Affine()))(images, prototypes))

    wanted = jax.jit(jax.grad(loss))(others, images)
    mesh = jax.make_mesh((4,), ("rows",))
    with jax.set_mesh(mesh):
        placed = [jax.device_put(array, NamedSharding(mesh, ROWS)) for array in (others, images)]
        explicit = jax.jit(jax.grad(loss))(*placed)
        by_device = jax.jit(jax.shard_map(jax.grad(loss), in_specs=ROWS, out_specs=ROWS))(*placed)
    for found in (explicit, by_device):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
