"""What must hold for an aligner that minimises an energy."""

import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from diffclust.alignment import AbstractAligner, Alignment
from diffclust.energies import AbstractPairEnergy, AbstractSampleEnergy
from diffclust.prototypes import Clusters
from diffclust.testing.drawing import agree, generator, require, rounding, smooth_image, stacked
from diffclust.types import Key


def check_aligner(
    aligner: AbstractAligner,
    energy: AbstractPairEnergy,
    *,
    key: Key,
    draw: Callable[[Key], PyTree] | None = None,
    clusters: int = 5,
    penalty: float = 0.1,
    scale: float = 0.5,
    grid: Float[Array, "points params"] | None = None,
    tolerance: float = 1e-4,
) -> None:
    """Checks all that must hold for an aligner that searches; one that predicts may break them.

    Candidates are different clusters, in the order of their energies; an energy is that of its
    params, and no cluster is worse than unaligned. The incumbent's cluster stays a candidate, and
    is not worse than it was, also where the aligner would not find its params; places that are
    vacant count for nothing. What was prepared from some clusters will do for others. vmap = loop.
    On a grid, no candidate is worse than the best params of the grid; without one, the first is not
    worse than the nearest prototype unaligned.

    Args:
        aligner: The aligner.
        energy: What it minimises.
        key: Random key.
        draw: Draws one prototype, which must be a sample too; smooth images where it is not given.
        clusters: Number of clusters, more than the aligner follows.
        penalty: Weight of all penalty terms.
        scale: Standard deviation of the incumbent's params.
        grid: Params among which the aligner finds the best, one vector a row; None for none.
        tolerance: What the best of the grid may be missed by, as a fraction of the energy without
            alignment.

    Raises:
        AssertionError: With the law that is broken.
    """
    draw = draw or (lambda k: smooth_image(k, 14, 16, sigma=0.25))
    keys = jax.random.split(key, clusters + 2)
    prototypes = stacked([draw(k) for k in keys[2:]])
    samples = [eqx.filter_jit(energy.exemplar)(draw(k)) for k in keys[:2]]
    dtype = jax.tree.leaves(prototypes)[0].dtype
    among = Clusters(prototypes, jnp.full((clusters, energy.num_penalties), penalty, dtype=dtype))
    rng, name = generator(key), type(aligner).__name__
    params = jnp.asarray(scale * rng.normal(size=(2, energy.num_params)), dtype=dtype)
    none, zero = jnp.full((1,), -1, dtype=jnp.int32), jnp.zeros((1,), dtype=dtype)
    vacant = Alignment(none, params[:1], -1e6 + zero)
    case = _Case(aligner, energy)
    rest = np.asarray(case.unaligned(samples[0], among))
    atol = 64 * rounding(rest) * float(np.max(np.abs(rest)))

    alignment = case.checked(samples[0], among, vacant, atol)
    free = Alignment(none[:0], params[:0], zero[:0])
    without = case.checked(samples[0], among, free, atol).energy
    agree(f"{name}: a vacant place counts for nothing", without, alignment.energy, atol)
    # A grid need not have the identity.
    near = grid is not None or float(alignment.energy[0]) <= float(rest.min()) + 10 * atol
    require(near, f"{name}: no worse than the nearest prototype unaligned")
    # However bad it is, and however good: then the params are the only ones that lead there.
    worst = jnp.argmax(jnp.asarray(rest)).astype(jnp.int32)
    starts = [among]
    if isinstance(energy, AbstractSampleEnergy):
        planted = eqx.filter_jit(energy.aligned)(params[0], samples[0])
        exact = jax.tree.map(lambda all_, one: all_.at[worst].set(one), prototypes, planted)
        starts.append(Clusters(exact, among.penalty))
    places = [worst[None], jnp.stack([(worst + 1) % clusters, worst])]
    for given, own in itertools.product(starts, places[: aligner.num_candidates(clusters)]):
        case.check_incumbents(samples[0], given, own, params[: len(own)][::-1], atol)
    case.check_prepared(samples[0], among, vacant)
    case.check_batched(samples, among, vacant, 10 * atol)
    if grid is not None:
        points = jnp.asarray(grid, dtype=dtype)
        table = np.stack([case.everywhere(point, samples[0], among) for point in points])
        excess = np.asarray(alignment.energy) - table.min(axis=0)[np.asarray(alignment.cluster)]
        slack = tolerance * float(np.max(rest)) + atol
        law = f"{name}: no worse than the best of the grid, not by {excess.max():.3g}"
        require(bool(np.all(excess <= slack)), law)


class _Case(eqx.Module):
    """An aligner, and the energy that it minimises."""

    aligner: AbstractAligner
    energy: AbstractPairEnergy

    @eqx.filter_jit
    def align(
        self, sample: PyTree, clusters: Clusters, start: Alignment, some: Clusters | None = None
    ) -> Alignment:
        prepared = self.aligner.prepare(self.energy, clusters if some is None else some, None)
        return self.aligner.align(self.energy, sample, clusters, None, start, prepared)

    def check_prepared(self, sample: PyTree, clusters: Clusters, start: Alignment) -> None:
        try:
            self.align(sample, clusters, start, jax.tree.map(lambda leaf: leaf[:2], clusters))
        except (TypeError, ValueError, IndexError) as error:
            name = type(self.aligner).__name__
            law = f"{name}: what prepare returns does not depend on the number of clusters"
            raise AssertionError(law) from error

    def check_batched(
        self, samples: list[PyTree], clusters: Clusters, start: Alignment, atol: float
    ) -> None:
        loop = np.stack([self.align(sample, clusters, start).energy for sample in samples])
        batched = jax.vmap(lambda x: self.align(x, clusters, start).energy)(stacked(samples))
        agree(f"{type(self.aligner).__name__}: vmap = loop", batched, loop, atol)

    @eqx.filter_jit
    def energies(self, params: Array, sample: PyTree, clusters: Clusters) -> Float[Array, " n"]:
        """Of one vector of params for each cluster."""
        return jax.vmap(self.energy.bind(sample), in_axes=(0, None, 0))(params, sample, clusters)

    def everywhere(self, params: Array, sample: PyTree, clusters: Clusters) -> Array:
        """Energies of the same params for all clusters."""
        return self.energies(jnp.tile(params[None], (len(clusters), 1)), sample, clusters)

    def unaligned(self, sample: PyTree, clusters: Clusters) -> Array:
        zero = jnp.zeros((self.energy.num_params,), dtype=clusters.dtype)
        return self.everywhere(zero, sample, clusters)

    def checked(
        self, sample: PyTree, clusters: Clusters, start: Alignment, atol: float
    ) -> Alignment:
        """Checks the laws that hold for each alignment."""
        alignment, name = self.align(sample, clusters, start), type(self.aligner).__name__
        unaligned = np.asarray(self.unaligned(sample, clusters))
        index, value = np.asarray(alignment.cluster), np.asarray(alignment.energy)
        size = (self.aligner.num_candidates(len(clusters)),)
        require(index.shape == value.shape == size, f"{name}: num_candidates are returned")
        valid = (index >= 0) & (index < len(clusters))
        distinct = len(set(index.tolist())) == index.size
        require(bool(np.all(valid)) and distinct, f"{name}: candidates are different clusters")
        require(bool(np.all(np.diff(value) >= 0)), f"{name}: candidates ascend by energy")
        again = self.energies(alignment.params, sample, clusters.take(alignment.cluster))
        agree(f"{name}: energies are those of the params", value, again, atol)
        least = unaligned[index] + atol
        require(bool(np.all(value <= least)), f"{name}: no cluster is worse than unaligned")
        return alignment

    def check_incumbents(
        self, sample: PyTree, clusters: Clusters, own: Array, params: Array, atol: float
    ) -> None:
        name = type(self.aligner).__name__
        before = self.energies(params, sample, clusters.take(own))
        after = self.checked(sample, clusters, Alignment(own, params, before), atol)
        for number, cluster in enumerate(np.asarray(own)):
            place = np.flatnonzero(np.asarray(after.cluster) == cluster)
            require(number > 0 or place.size == 1, f"{name}: the incumbent stays a candidate")
            excess = float(after.energy[place[0]] - before[number]) if place.size else 0.0
            law = f"{name}: never worse than the incumbent, not by {excess:.3g}"
            require(excess <= atol, law)
