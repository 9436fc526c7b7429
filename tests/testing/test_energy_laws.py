"""Energies obey their laws, and the laws notice those that do not."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, PyTree

from diffclust.distances import GaussianNegativeLogLikelihood, LandmarkNegativeLogLikelihood
from diffclust.energies import (
    AbstractPairEnergy,
    AbstractUnalignedEnergy,
    LandmarkEnergy,
    TransformedDistance,
    TransformedPrototype,
)
from diffclust.masks import as_mask
from diffclust.prototypes import Clusters, GaussianImages, MeanShapes
from diffclust.testing import check_energy, smooth_image
from diffclust.transforms import (
    Affine,
    Colour,
    Identity,
    ThinPlateSpline,
    TimeWarp,
    Translation,
    compose,
)
from diffclust.types import Key
from tests.models.test_own import Pair
from tests.registry import smooth_series

MASK = as_mask(np.arange(99).reshape(9, 11) % 7 > 0)


def gaussian_image(key: Key) -> GaussianImages:
    image = smooth_image(key, 9, 11)
    return GaussianImages(image, 0.3 + 0.2 * image)


def shape(key: Key) -> Array:
    return jnp.eye(5, 2) + 0.1 * jax.random.normal(key, (5, 2))


def of_shapes(key: Key) -> PyTree:
    cluster = MeanShapes(
        jnp.eye(5, 2), 0.01 * jnp.ones((5, 2)), jnp.asarray(1e-4), pooling="within"
    )
    return cluster.init(shape(key))


def pair(key: Key) -> dict[str, Array]:
    return {"place": jax.random.normal(key, (2,)), "size": jnp.ones((5,))}


ENERGIES: dict[str, tuple[AbstractPairEnergy, dict[str, Callable[[Key], Any]]]] = {
    "sample": (TransformedDistance(compose(Translation(), ThinPlateSpline((3, 3)))), {}),
    "jacobian": (TransformedDistance(Affine(), pixel_weights="jacobian"), {}),
    "mask": (TransformedDistance(Affine(), mask=MASK), {}),
    "unmoved": (TransformedDistance(Identity()), {}),
    "series": (TransformedDistance(TimeWarp(4)), {"draw": smooth_series}),
    "prototype": (TransformedPrototype(Affine(), window=0.3), {}),
    "mixture": (
        TransformedPrototype(
            compose(Colour(1), Affine()), GaussianNegativeLogLikelihood(min_deviation=0.1)
        ),
        {"draw_prototype": gaussian_image},
    ),
    "shapes": (
        LandmarkEnergy(LandmarkNegativeLogLikelihood()),
        {"draw": shape, "draw_prototype": of_shapes},
    ),
    "pairs": (Pair(), {"draw": pair}),
}


@pytest.mark.parametrize("name", ENERGIES)
def test_energy_obeys_the_laws(name: str, key: Key) -> None:
    energy, draws = ENERGIES[name]
    check_energy(energy, key=key, **draws)


class Moved(AbstractUnalignedEnergy):
    """Vectors that are moved at a price, but for one fault."""

    fault: str = eqx.field(static=True)
    num_params: ClassVar[int] = 2
    num_penalties: ClassVar[int] = 1
    is_distance: ClassVar[bool] = True

    def between(self, sample: Array, prototype: Array) -> Array:
        difference = sample - prototype
        if self.fault == "slopes are finite":
            return jnp.linalg.norm(difference)
        return jnp.sum(difference**2)

    def aligned(self, params: Array, sample: Array) -> Array:
        moved = sample + params
        if self.fault == "the energy is that of the aligned sample":
            return sample - params
        return moved + 1.0 if self.fault == "the identity leaves a sample" else moved

    def penalties(self, params: Array) -> Array:
        terms = jnp.sum(params**2)[None]
        if self.fault == "num_penalties":
            return jnp.tile(terms, 2)
        if self.fault == "penalties are not negative":
            return -terms
        return terms + 1.0 if self.fault == "penalties are zero at the identity" else terms

    def bind(self, sample: Array, *, scale: float = 1.0):
        remembered = sample

        def energy(params: Array, x: Array, cluster) -> Array:
            if self.fault == "the sample's shape alone":
                x = remembered
            between = self.between(x + params, cluster.prototype)
            terms = jnp.dot(cluster.penalty, self.penalties(params)[:1])
            if self.fault == "weighted penalties are added":
                terms = terms**2
            if self.fault == "scale multiplies the distance alone":
                return scale * (between + terms)
            energy = scale * between + terms
            return energy[None] if self.fault == "an energy is one number" else energy

        return energy

    def unaligned(self, sample: Array, clusters) -> Array:
        plain = super().unaligned(sample, clusters)
        return 2.0 * plain if self.fault == "unaligned is the energy at the identity" else plain

    def exemplar(self, prototype: Array) -> Array:
        far = {"no sample has a smaller energy": 100.0, "exemplar is at distance zero": 1e-2}
        return prototype + far.get(self.fault, 0.0)

    def coarser(self, sample: Array, factor: int, *, sigma: float | None = None) -> Array:
        return 0.5 * sample if self.fault == "a level as fine as the sample's" else sample


@pytest.mark.parametrize(
    "fault",
    [
        "slopes are finite",
        "the energy is that of the aligned sample",
        "the identity leaves a sample",
        "num_penalties",
        "penalties are not negative",
        "penalties are zero at the identity",
        "the sample's shape alone",
        "weighted penalties are added",
        "scale multiplies the distance alone",
        "an energy is one number",
        "unaligned is the energy at the identity",
        "no sample has a smaller energy",
        "exemplar is at distance zero",
        "a level as fine as the sample's",
    ],
)
def test_a_fault_is_noticed(fault: str, key: Key) -> None:
    def draw(key: Key) -> Array:
        return jax.random.normal(key, (2,))

    with pytest.raises(AssertionError, match=f"broken law: Moved: .*{fault}"):
        check_energy(Moved(fault), key=key, draw=draw)


def test_without_a_fault_the_laws_hold(key: Key) -> None:
    check_energy(Moved("none"), key=key, draw=lambda k: jax.random.normal(k, (2,)))


class Priced(AbstractUnalignedEnergy):
    """Vectors that are moved at a price; `bind` is inherited, and the unit is an array."""

    unit: Array = eqx.field(default=1.0, converter=jnp.asarray)
    num_params: ClassVar[int] = 2
    num_penalties: ClassVar[int] = 1

    def between(self, sample: Array, prototype: Array) -> Array:
        return self.unit * jnp.sum((sample - prototype) ** 2)

    def aligned(self, params: Array, sample: Array) -> Array:
        return sample + params

    def penalties(self, params: Array) -> Array:
        return jnp.sum(params**2)[None]


def test_params_count_in_an_energy_that_says_only_how_samples_move(key: Key) -> None:
    check_energy(Priced(), key=key, draw=lambda k: jax.random.normal(k, (2,)))
    moved = Priced().bind(jnp.zeros(2))(
        jnp.array([1.0, 2.0]), jnp.zeros(2), Clusters(jnp.array([1.0, 3.0]), jnp.array([0.5]))
    )
    assert float(moved) == 1.0 + 0.5 * 5.0


class RemembersParams(TransformedDistance):
    """An energy whose bound function keeps the first params that it was called with."""

    def bind(self, sample: PyTree, *, scale: float = 1.0) -> Callable[..., Array]:
        inner, first = super().bind(sample, scale=scale), []

        def energy(params: Array, sample: PyTree, cluster: Clusters) -> Array:
            first.append(params)
            still = first[0] if isinstance(params, jax.Array) else params
            return inner(params if isinstance(params, jax.core.Tracer) else still, sample, cluster)

        return energy


def test_an_energy_that_remembers_is_noticed(key: Key) -> None:
    with pytest.raises(AssertionError, match="a bound energy remembers nothing"):
        check_energy(RemembersParams(Affine()), key=key)
