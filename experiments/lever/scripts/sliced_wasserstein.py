"""A sliced Wasserstein distance between images, with the prototypes that lower it, and the laws."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from diffclust.alignment import PreconditionedLBFGS
from diffclust.distances import AbstractDistance
from diffclust.energies import TransformedDistance
from diffclust.prototypes import AbstractPrototypeFamily, MeanImages, weighted_sums
from diffclust.testing import check_distance, check_family
from diffclust.transforms import Affine


class SlicedWasserstein(AbstractDistance):
    """The mean squared 2-Wasserstein distance, in pixels², of where the ink lies along lines."""

    directions: int = eqx.field(static=True, default=8)
    levels: int = eqx.field(static=True, default=32)

    @property
    def family(self):
        return QuantileMeans(self)

    def quantiles(self, image, weight=None):
        angle = np.pi * np.arange(self.directions) / self.directions
        y, x = np.indices(image.shape[:2]).reshape(2, -1)
        place = np.outer(np.cos(angle), x) + np.outer(np.sin(angle), y)
        order = np.argsort(place, axis=1, kind="stable")
        place = jnp.asarray(np.take_along_axis(place, order, axis=1), image.dtype)
        ink = jnp.maximum(image if weight is None else image * weight, 0.0)
        ink = jnp.sum(ink, axis=2).reshape(-1) + 1e-3  # no gaps, in which quantiles would jump
        reached = jnp.cumsum((ink / jnp.sum(ink))[order], axis=1)
        levels = (jnp.arange(self.levels, dtype=image.dtype) + 0.5) / self.levels
        return jax.vmap(lambda r, p: jnp.interp(levels, r, p))(reached, place)

    def __call__(self, sample, prototype, weight=None):
        apart = self.quantiles(sample, weight) - self.quantiles(prototype, weight)
        return jnp.mean(apart**2)


class QuantileMeans(AbstractPrototypeFamily):
    """Images whose quantiles are nearest to the mean quantiles: the sum of squares asks no more."""

    distance: SlicedWasserstein
    initial_family: ClassVar[MeanImages] = MeanImages()

    def statistics(self, aligned, pixel_weight, membership, prototypes):
        quantiles = jax.vmap(self.distance.quantiles)(aligned)
        return weighted_sums(quantiles, membership), jnp.sum(membership, axis=0)

    def update(self, statistics, previous):
        def nearest(total, count, image):
            def apart(flat):
                result = self.distance.quantiles(flat.reshape(image.shape))
                return jnp.mean((result - total / jnp.maximum(count, 1e-30)) ** 2)

            best, _ = PreconditionedLBFGS().minimise(apart, image.reshape(-1), None, steps=20)
            return jnp.where(count > 0, best.reshape(image.shape), image)

        return jax.vmap(nearest)(*statistics, previous)


key, energy = jax.random.key(0), TransformedDistance(Affine(), SlicedWasserstein())
check_distance(SlicedWasserstein(), key=key)
check_family(energy.family, energy, key=key)
