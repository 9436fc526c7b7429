"""What must hold for an energy of a sample and a cluster."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from diffclust.energies import AbstractPairEnergy, AbstractSampleEnergy
from diffclust.prototypes import Clusters
from diffclust.testing.drawing import close, generator, require, rounding, smooth_image, stacked
from diffclust.types import Key, Params


def check_energy(
    energy: AbstractPairEnergy,
    *,
    key: Key,
    draw: Callable[[Key], PyTree] | None = None,
    draw_prototype: Callable[[Key], PyTree] | None = None,
    draw_predictor: Callable[[Key], PyTree] | None = None,
    clusters: int = 3,
    scale: float = 0.3,
) -> None:
    """Checks that the methods of an energy say the same about samples, params and penalties.

    `unaligned` is the energy at the identity. Penalties are as many as promised, never negative and
    zero at the identity; weighted by the cluster they are added to the distance, which alone is
    multiplied by `scale`. What `bind` returns depends on the sample's shape alone and remembers
    nothing of earlier calls, vmap = loop, and slopes are finite, at the identity and where a
    prototype meets its exemplar too. No sample has a smaller energy than the exemplar, and where
    `is_distance` is true that is zero. A sample at a level as fine as its own is the sample itself.
    Where samples move: `aligned` is the sample itself at the identity, and where pixels have no
    weights the energy of params is that of the aligned sample at the identity.

    Args:
        energy: The energy.
        key: Random key.
        draw: Draws one sample; smooth images where it is not given.
        draw_prototype: Draws one prototype; samples where it is not given.
        draw_predictor: Draws what else is learned for one cluster, if the energy uses it; None
            where it is not given.
        clusters: Number of clusters.
        scale: Standard deviation of the params that are drawn.

    Raises:
        AssertionError: With the law that is broken.
    """
    draw = draw or (lambda k: smooth_image(k, 9, 11))
    draw_prototype = draw_prototype or draw
    keys = jax.random.split(key, clusters + 2)
    samples = [draw(k) for k in keys[:2]]
    prototypes = stacked([draw_prototype(k) for k in keys[2:]])
    dtype = jnp.result_type(*jax.tree.leaves(samples))
    rng = generator(key)
    drawn = (scale * rng.normal(size=(2, energy.num_params))).astype(dtype)
    weights = rng.uniform(0.5, 2.0, (clusters, energy.num_penalties)).astype(dtype)
    drawn, weights = jax.device_put((drawn, weights))
    predictor = None if draw_predictor is None else stacked([draw_predictor(k) for k in keys[2:]])
    case = _Case(energy, Clusters(prototypes, weights, predictor))
    case.check_penalties(drawn, samples[0])
    case.check_identity(samples)
    case.check_bound(drawn, samples)
    case.check_slopes(drawn[0], samples[0])
    same = energy.coarser(samples[0], 1)
    case.close("a level as fine as the sample's is the sample", same, samples[0])
    if isinstance(energy, AbstractSampleEnergy):
        case.check_aligned(energy, drawn[0], samples[0])


class _Case(eqx.Module):
    """An energy and clusters whose penalties have weights."""

    energy: AbstractPairEnergy
    clusters: Clusters

    @property
    def name(self) -> str:
        return type(self.energy).__name__

    @property
    def free(self) -> Clusters:
        """The clusters without weights of penalties."""
        blank = jnp.zeros_like(self.clusters.penalty)
        return dataclasses.replace(self.clusters, penalty=blank)

    def energies(
        self, params: Params, sample: PyTree, clusters: Clusters, scale: float = 1.0
    ) -> np.ndarray:
        """The energies of one vector of params against all clusters."""
        return np.asarray(self._energies(params, sample, clusters, scale))

    @eqx.filter_jit
    def _energies(self, params: Params, sample: PyTree, clusters: Clusters, scale: float) -> Array:
        bound = self.energy.bind(sample, scale=scale)
        return jax.vmap(bound, in_axes=(None, None, 0))(params, sample, clusters)

    def zero(self, sample: PyTree) -> Params:
        return jnp.zeros((self.energy.num_params,), jnp.result_type(*jax.tree.leaves(sample)))

    def require(self, holds: bool, law: str) -> None:
        require(holds, f"{self.name}: {law}")

    def close(self, law: str, got: PyTree, expected: PyTree) -> None:
        """Requires that numbers agree, but for rounding."""
        close(f"{self.name}: {law}", got, expected, 64.0)

    def check_penalties(self, drawn: Array, sample: PyTree) -> None:
        penalties = eqx.filter_jit(self.energy.penalties)
        terms = [np.asarray(penalties(params)) for params in (self.zero(sample), *drawn)]
        size = (self.energy.num_penalties,)
        self.require(all(each.shape == size for each in terms), "num_penalties terms are returned")
        self.close("penalties are zero at the identity", terms[0], np.zeros_like(terms[0]))
        least = float(np.min(np.stack(terms), initial=0.0))
        self.require(least >= 0.0, f"penalties are not negative, not {least:.3g}")
        free = self.energies(drawn[0], sample, self.free)
        self.require(free.shape == (len(self.clusters),), "an energy is one number")
        added = np.asarray(self.clusters.penalty) @ terms[1]
        whole = self.energies(drawn[0], sample, self.clusters)
        self.close("weighted penalties are added to the energy", whole, free + added)
        scaled = self.energies(drawn[0], sample, self.clusters, 2.0)
        self.close("scale multiplies the distance alone", scaled, 2.0 * free + added)

    def check_identity(self, samples: list[PyTree]) -> None:
        unaligned = eqx.filter_jit(self.energy.unaligned)
        at_rest = [self.energies(self.zero(s), s, self.clusters) for s in samples]
        for sample, expected in zip(samples, at_rest, strict=True):
            got = unaligned(sample, self.clusters)
            self.close("unaligned is the energy at the identity", got, expected)
        exemplars = eqx.filter_jit(eqx.filter_vmap(self.energy.exemplar))(self.clusters.prototype)
        places = range(len(self.clusters))
        chosen = [jax.tree.map(lambda leaf, k=k: leaf[k], exemplars) for k in places]
        own = np.stack([self.energies(self.zero(x), x, self.free)[k] for k, x in enumerate(chosen)])
        for others in at_rest:
            slack = 64 * rounding(own) * (1.0 + float(np.max(np.abs(others))))
            law = "no sample has a smaller energy than the exemplar"
            self.require(bool(np.all(own <= others + slack)), law)
        if self.energy.is_distance:
            self.close("the exemplar is at distance zero", own, np.zeros_like(own))

    def check_bound(self, drawn: Array, samples: list[PyTree]) -> None:
        bound = self.energy.bind(samples[0])
        batched = eqx.filter_jit(eqx.filter_vmap(bound, in_axes=(0, 0, None)))
        together = batched(drawn, stacked(samples), self.clusters.take(jnp.asarray(0)))
        alone = [self.energies(p, x, self.clusters)[0] for p, x in zip(drawn, samples, strict=True)]
        law = "vmap = loop, and what is bound depends on the sample's shape alone"
        self.close(law, together, np.stack(alone))
        # Not compiled, so that every call is made.
        bound, cluster = self.energy.bind(samples[0]), self.clusters.take(jnp.asarray(0))
        order = (0, 1, 0)
        calls = np.stack([bound(drawn[n], samples[n], cluster) for n in order])
        self.close("a bound energy remembers nothing", calls, np.stack(alone)[[*order]])

    def check_slopes(self, params: Params, sample: PyTree) -> None:
        cluster, zero = self.clusters.take(jnp.asarray(0)), self.zero(sample)

        @eqx.filter_jit
        @eqx.filter_grad
        def slope(given: tuple[Params, PyTree, PyTree]) -> Array:
            moved, sample, prototype = given
            own = dataclasses.replace(cluster, prototype=prototype)
            return self.energy.bind(sample)(moved, sample, own)

        exemplar = self.energy.exemplar(cluster.prototype)
        for where, moved, of in (
            ("anywhere", params, sample),
            ("at the identity", zero, sample),
            ("where a prototype meets its exemplar", zero, exemplar),
        ):
            leaves = jax.tree.leaves(slope((moved, of, cluster.prototype)))
            finite = all(bool(np.all(np.isfinite(leaf))) for leaf in leaves)
            self.require(finite, f"slopes are finite {where}")

    def check_aligned(self, energy: AbstractSampleEnergy, params: Params, sample: PyTree) -> None:
        aligned = eqx.filter_jit(energy.aligned)
        still = aligned(self.zero(sample), sample)
        self.close("the identity leaves a sample as it is", still, sample)
        if energy.pixel_weight(params, sample) is not None:
            return
        after = self.energies(self.zero(sample), aligned(params, sample), self.free)
        before = self.energies(params, sample, self.free)
        self.close("the energy is that of the aligned sample", before, after)
