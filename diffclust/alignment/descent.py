"""Alignment by descent, coarse to fine, for one sample and all clusters."""

import functools
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust import _validation as check
from diffclust._sharding import varying_like
from diffclust.alignment.base import (
    AbstractWithCandidates,
    Alignment,
    check_candidates,
    most_promising,
    or_incumbent,
)
from diffclust.alignment.minimisers import AbstractMinimiser, PreconditionedLBFGS
from diffclust.energies.base import AbstractPairEnergy, BoundEnergy, hessian_at_identity
from diffclust.prototypes import Clusters
from diffclust.types import Params


class Stage(eqx.Module):
    """One level of a coarse-to-fine descent.

    Attributes:
        steps: Number of evaluations of the energy and its gradient.
        blur: Standard deviation of the low-pass filter as a fraction of the image's shorter side,
            or of a series' length; 0 for no filter.
        affine: Whether only affine maps are tried; ignored if the transform has none.
    """

    steps: int = eqx.field(static=True)
    blur: float = eqx.field(static=True, default=0.0, kw_only=True)
    affine: bool = eqx.field(static=True, default=False, kw_only=True)

    def __check_init__(self):
        """Refuses negative numbers."""
        check.count(self.steps, "steps", least=0)
        check.positive(self.blur, "blur", least=0)


DEFAULT_STAGES = (
    Stage(8, blur=1 / 14, affine=True),
    Stage(8, blur=1 / 14),
    Stage(12),
)


class _Level(NamedTuple):
    """The problem of one stage.

    Attributes:
        sample: The coarse sample.
        clusters: The clusters, with coarse prototypes.
        bound: The energy, bound to coarse samples.
        basis: Columns that span the params to be tried; None for all.
    """

    sample: PyTree
    clusters: Clusters
    bound: BoundEnergy
    basis: Float[Array, "params subspace"] | None


def _level(
    energy: AbstractPairEnergy, stage: Stage, sample: PyTree, clusters: Clusters, dtype: jnp.dtype
) -> _Level:
    sizes = [leaf.shape[:-1] for leaf in jax.tree.leaves(sample)]
    sigma = stage.blur * min(min(size, default=1) for size in sizes)
    factor = max(1, math.floor(1.5 * sigma + 0.5))
    coarser = functools.partial(energy.coarser, factor=factor, sigma=sigma)
    coarse = coarser(sample)
    bound = energy.bind(coarse, scale=float(factor ** len(sizes[0])))
    prototypes = jax.vmap(coarser)(clusters.prototype)
    basis = energy.affine_embedding if stage.affine else None
    return _Level(
        coarse,
        eqx.tree_at(lambda c: c.prototype, clusters, prototypes),
        bound,
        None if basis is None else basis.astype(dtype),
    )


class Descent(AbstractWithCandidates):
    """Minimises the energy over the params by descent on increasingly fine images.

    The first stage tries every cluster; the later ones follow only those that can still win. The
    incumbent enters at the last stage if it is better than what the coarse stages found, so that an
    alignment never gets worse. The preconditioner is the inverse of the energy's Hessian at a
    prototype compared with itself, averaged over prototypes; it is computed once for all samples.

    Attributes:
        stages: From coarse to fine; the last one must not blur.
        candidates: How many clusters are followed past the first stage; None for all.
        minimiser: The minimiser used for descent.
        damping: Added to the Hessian, as a fraction of its mean diagonal.

    References:
        Cosentino et al., DI K-means, Eq. 3 and App. 8 (low-pass, affine first, then the TPS).
    """

    stages: tuple[Stage, ...] = DEFAULT_STAGES
    candidates: int | None = eqx.field(static=True, default=3, kw_only=True)
    minimiser: AbstractMinimiser = eqx.field(default=PreconditionedLBFGS(), kw_only=True)
    damping: float = eqx.field(static=True, default=0.1, kw_only=True)

    def __check_init__(self):
        """Refuses stages that do not end on the unblurred image."""
        if not isinstance(self.stages, tuple | list):
            raise ValueError(f"stages must be a tuple, such as (Stage(20),), not {self.stages}")
        if not self.stages or self.stages[-1].blur != 0.0:
            raise ValueError("the last stage of a descent must have blur 0")
        check.positive(self.damping, "damping", least=0)
        check_candidates(self.candidates)

    def working_copies(self, num_clusters: int) -> int:
        # Coarse images hardly count.
        return 24 * self.num_candidates(num_clusters)

    def prepare(self, energy: AbstractPairEnergy, clusters: Clusters, shared: PyTree) -> PyTree:
        """The preconditioner of each stage."""
        one = energy.exemplar(jax.tree.map(lambda leaf: leaf[0], clusters.prototype))
        dtype = clusters.dtype
        preconditioners = []
        for stage in self.stages:
            level = _level(energy, stage, one, clusters, dtype)
            hessian = _mean_hessian(energy, level)
            size = hessian.shape[0]
            trace = jnp.trace(hessian)
            # The trace is zero only if all prototypes are blank.
            ridge = jnp.where(trace > 0, self.damping * trace / size, 1.0)
            floor = jnp.finfo(dtype).tiny
            shifted = hessian + jnp.maximum(ridge, floor) * jnp.eye(size, dtype=dtype)
            preconditioners.append(jnp.linalg.inv(shifted))
        return tuple(preconditioners)

    def align(
        self,
        energy: AbstractPairEnergy,
        sample: PyTree,
        clusters: Clusters,
        shared: PyTree,
        start: Alignment,
        prepared: PyTree,
    ) -> Alignment:
        count, num_candidates = len(clusters), self.num_candidates(len(clusters))
        params = jnp.zeros((count, energy.num_params), dtype=start.params.dtype)
        index = jnp.arange(count, dtype=jnp.int32)
        first, *later = zip(self.stages, prepared, strict=True)
        if later:
            params, value = self._descend(energy, *first, sample, clusters, index, params)
        else:
            later, value = [first], energy.unaligned(sample, clusters)
        if num_candidates < count:
            chosen = most_promising(index, value, start, num_candidates)
            index, params = index[chosen], params[chosen]
        for stage in later[:-1]:
            params, _ = self._descend(energy, *stage, sample, clusters, index, params)
        if start.cluster.shape[0]:
            params = or_incumbent(energy, sample, clusters, index, params, start)
        params, value = self._descend(energy, *later[-1], sample, clusters, index, params)
        # Trying the unaligned sample costs next to nothing: no pixel has to be interpolated.
        unaligned = energy.unaligned(sample, clusters.take(index))
        params = jnp.where((unaligned < value)[:, None], 0.0, params)
        value = jnp.minimum(unaligned, value)
        order = jnp.argsort(value)
        return Alignment(index[order], params[order], value[order])

    def _descend(
        self,
        energy: AbstractPairEnergy,
        stage: Stage,
        preconditioner: Float[Array, "subspace subspace"],
        sample: PyTree,
        clusters: Clusters,
        index: Array,
        params: Float[Array, "candidates params"],
    ) -> tuple[Float[Array, "candidates params"], Float[Array, " candidates"]]:
        coarse, coarse_clusters, bound, basis = _level(
            energy, stage, sample, clusters, params.dtype
        )
        minimise = functools.partial(
            self.minimiser.minimise, preconditioner=preconditioner, steps=stage.steps
        )

        def one(cluster: Clusters, start: Params) -> tuple[Params, Array]:
            if basis is None:
                return minimise(lambda p: bound(p, coarse, cluster), start)
            columns = basis
            zero = varying_like(jnp.zeros((basis.shape[1],), dtype=start.dtype), start)
            move, value = minimise(lambda z: bound(start + columns @ z, coarse, cluster), zero)
            return start + columns @ move, value

        params = varying_like(params, coarse, coarse_clusters, preconditioner)
        return jax.vmap(one)(coarse_clusters.take(index), params)


def _mean_hessian(energy: AbstractPairEnergy, level: _Level) -> Float[Array, "subspace subspace"]:
    """The mean of `hessian_at_identity` over clusters."""

    def add(total: Array, cluster: Clusters) -> tuple[Array, None]:
        return total + hessian_at_identity(energy, level.bound, cluster, level.basis), None

    size = energy.num_params if level.basis is None else level.basis.shape[1]
    zero = jnp.zeros((size, size), dtype=level.clusters.dtype)
    total, _ = jax.lax.scan(add, varying_like(zero, level.clusters), level.clusters)
    return total / len(level.clusters)
