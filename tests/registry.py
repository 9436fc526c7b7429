"""One of everything that a law is checked on. What is new joins here, or `test_laws.py` fails."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from diffclust.alignment import AbstractAligner, Descent, Stage
from diffclust.distances import (
    AbstractDistance,
    DiagonalGaussian,
    LandmarkDistance,
    SquaredEuclidean,
)
from diffclust.energies import AbstractPairEnergy, TransformedDistance
from diffclust.transforms import (
    AbstractTransform,
    Affine,
    Colour,
    Compose,
    Identity,
    Morphology,
    Projective,
    Rotation,
    SpatialChain,
    ThinPlateSpline,
    TimeWarp,
    Translation,
    compose,
)
from diffclust.types import Image, Key, Params

EMPTY_ARRAYS_CRASH = jax.__version_info__[:2] == (0, 11)
"""Whether JAX's own `pmap` and `shard_map` end the process where an array without elements, such as
the parameters of no transform, goes in and out again. `diffclust.parallel.sharded` is safe."""

QUICK = Descent((Stage(3, blur=1 / 14, affine=True), Stage(4)))
"""An aligner that compiles and runs quickly."""


class Gain(AbstractTransform):
    """A user's own transform, not a spatial one: brightness in every channel."""

    num_channels: int = eqx.field(static=True, default=2)

    @property
    def num_params(self) -> int:
        return self.num_channels

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        return ("gain",)

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        return jnp.sum(params**2)[None]

    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        return lambda params, image: image * (1.0 + params)[None, None, :]

    def bind_variance(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        return lambda params, variance: variance * (1.0 + params)[None, None, :] ** 2


TRANSFORMS: dict[str, tuple[type[AbstractTransform], Callable[[], AbstractTransform]]] = {
    "identity": (Identity, Identity),
    "affine": (Affine, Affine),
    "affine-reflect": (Affine, lambda: Affine("reflect")),
    "spline": (ThinPlateSpline, lambda: ThinPlateSpline((3, 4))),
    "spline-2x2-smooth-edge": (
        ThinPlateSpline,
        lambda: ThinPlateSpline((2, 2), regularisation=0.1, boundary="edge"),
    ),
    "chain": (SpatialChain, lambda: compose(Affine(), ThinPlateSpline((2, 3)), Identity())),
    "broken-chain": (
        Compose,
        lambda: compose(ThinPlateSpline((2, 3)), Gain(), Affine("edge"), Affine("edge")),
    ),
    "projective": (Projective, Projective),
    "projective-edge": (Projective, lambda: Projective("edge")),
    "translation": (Translation, Translation),
    "rotation": (Rotation, lambda: Rotation(aspect=9 / 8)),
    "rotation-reflection": (Rotation, lambda: Rotation("edge", reflection=True)),
    "colour": (Colour, lambda: Colour(2)),
    "colour-full": (Colour, lambda: Colour(2, full=True)),
    "colour-gradient": (Colour, lambda: Colour(2, full=True, gradient=True)),
    "morphology": (Morphology, lambda: Morphology(3, channelwise=True)),
    "morphology-edge": (
        Morphology,
        lambda: Morphology(5, boundary="edge", channelwise=True),
    ),
    "colour-affine-morphology-spline": (
        Compose,
        lambda: compose(
            Colour(2),
            Affine(),
            Morphology(3, channelwise=True),
            ThinPlateSpline((2, 3)),
        ),
    ),
    "users-own": (Gain, Gain),
}


def smooth_series(key: Key) -> Float[Array, "24 2"]:
    """A series of two channels."""
    weights = jax.random.normal(key, (5, 2)) / jnp.arange(1.0, 6.0)[:, None]
    waves = jnp.sin(jnp.outer(jnp.linspace(0.0, 3.0, 24), jnp.arange(1.0, 6.0)) + 0.3)
    return waves @ weights


OF_SERIES: dict[str, tuple[type[AbstractTransform], Callable[[], AbstractTransform]]] = {
    "time-warp": (TimeWarp, lambda: TimeWarp(4)),
    "time-warp-norm": (TimeWarp, lambda: TimeWarp(3, preserve_norm=True)),
}
"""Transforms of series, which `smooth_series` draws."""


def gaussian_landmarks(key: Key) -> DiagonalGaussian:
    """Four landmarks in the plane, each a Gaussian."""
    mean, variance = jax.random.split(key)
    return DiagonalGaussian(
        jax.random.normal(mean, (4, 2)), 0.5 + jax.random.uniform(variance, (4, 2))
    )


DISTANCES: dict[
    str,
    tuple[type[AbstractDistance], Callable[[], AbstractDistance], Callable[[Key], PyTree] | None],
] = {
    "squared-euclidean": (SquaredEuclidean, SquaredEuclidean, None),
    "landmarks-fisher-rao": (LandmarkDistance, LandmarkDistance, gaussian_landmarks),
    "landmarks-wasserstein-l2": (
        LandmarkDistance,
        lambda: LandmarkDistance("wasserstein", norm="l2"),
        gaussian_landmarks,
    ),
}
"""The class, one of it, and what draws a sample for it; None for images of noise."""

INVARIANT: dict[str, Callable[[], tuple[AbstractPairEnergy, AbstractAligner]]] = {
    "affine": lambda: (TransformedDistance(Affine()), Descent((Stage(12),))),
    "spline-jacobian": lambda: (
        TransformedDistance(ThinPlateSpline((3, 3)), pixel_weights="jacobian"),
        Descent((Stage(12),)),
    ),
}


def blobs(
    count: int, height: int = 8, width: int = 8, channels: int = 1, *, seed: int = 0
) -> np.ndarray:
    """Images of three Gaussian blobs each, of shape `(count, height, width, channels)`."""
    rng = np.random.default_rng(seed)
    x = (np.arange(width) + 0.5) / width
    y = (np.arange(height) + 0.5) / height
    centre = rng.uniform(0.25, 0.75, (2, count, 1, 1, channels, 3))
    squared = (x[:, None, None] - centre[0]) ** 2 + (y[:, None, None, None] - centre[1]) ** 2
    drawn = np.exp(-0.5 * squared / 0.12**2).sum(-1)
    return (drawn / drawn.max()).astype(np.float32)
