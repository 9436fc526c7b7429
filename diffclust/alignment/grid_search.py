"""Alignment by trying all params of a grid, for one sample and all clusters."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.alignment.base import (
    AbstractWithCandidates,
    Alignment,
    check_candidates,
    ranked,
)
from diffclust.energies import AbstractPairEnergy, TransformedDistance
from diffclust.prototypes import Clusters
from diffclust.transforms import AbstractSequence


class GridSearch(AbstractWithCandidates):
    """Takes the best params of a grid, also considering the identity and the incumbent's params.

    In `Sequential(GridSearch(grid), Descent((Stage(8),)))` a descent starts from the result. If the
    transform can compute inner products on a grid by FFT (`Translation`, `Rotation`) and the
    distance is squared Euclidean, these select the best params for every cluster, and the energy is
    then evaluated there; otherwise it is evaluated on the whole grid.

    Attributes:
        grid: The params to try, one vector per row; see `diffclust.transforms.params_grid`.
        candidates: How many clusters an alignment holds, best first; None for all.
        fourier: Whether inner products by FFT are used if available.
        part: Which of the transforms of a sequence the grid is for, with the others at the
            identity; None if the grid is for all params of the energy.

    References:
        Joyeux and Penczek (2002), Efficiency of 2D alignment methods (angles by FFT in polar
        coordinates); Polsterer et al. (2015), Automatic galaxy classification (PINK).
    """

    grid: Float[Array, "points params"] = eqx.field(converter=jnp.asarray)
    candidates: int | None = eqx.field(static=True, default=3, kw_only=True)
    fourier: bool = eqx.field(static=True, default=True, kw_only=True)
    part: int | None = eqx.field(static=True, default=None, kw_only=True)

    def __check_init__(self):
        """Refuses invalid grids, and too few candidates for a margin."""
        if self.grid.ndim != 2 or not self.grid.shape[0]:
            raise ValueError(
                f"grid must hold one vector of params a row, not be of shape {self.grid.shape}"
            )
        check_candidates(self.candidates)

    def working_copies(self, num_clusters: int) -> int:
        # A polar grid has three times as many points as the image.
        return 12 + 8 * num_clusters

    def align(
        self,
        energy: AbstractPairEnergy,
        sample: PyTree,
        clusters: Clusters,
        shared: PyTree,
        start: Alignment,
        prepared: PyTree,
    ) -> Alignment:
        grid = self.grid.astype(start.params.dtype)
        energies, width, embed = None, energy.num_params, None
        if (part := self.part) is not None:
            transform = getattr(energy, "transform", None)
            if not isinstance(transform, AbstractSequence):
                raise ValueError(f"part={part} is for composed transforms, not {transform}")
            width = transform.transforms[part].num_params
            embed = functools.partial(transform.embed, part)
        if grid.shape[1] != width:
            raise ValueError(f"the grid has {grid.shape[1]} params a point, not {width}")
        if embed is not None:
            grid = jax.vmap(embed)(grid)
        if self.fourier and isinstance(energy, TransformedDistance):
            energies = energy.correlated(grid, sample, clusters, part)
        if energies is None:
            everywhere = jax.vmap(energy.bind(sample), in_axes=(None, None, 0))
            energies = jax.lax.map(lambda params: everywhere(params, sample, clusters), grid)
        params = grid[jnp.argmin(energies, axis=0)]
        count = self.num_candidates(len(clusters))
        return ranked(energy, sample, clusters, params, start, count=count)
