"""Split-and-merge moves between gradient steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.alignment import NoAlignment
from diffclust.distances import GaussianNegativeLogLikelihood
from diffclust.energies import HardMinimum, MixtureLikelihood, TransformedPrototype
from diffclust.parallel import Batch
from diffclust.prototypes import Clusters, GaussianImages, Learned
from diffclust.solvers.gradient import GradientEM
from diffclust.solvers.split_merge import (
    SplitProposals,
    apply_split_merge,
    best_pairs,
    propose_splits,
)
from diffclust.transforms import Identity
from tests.registry import blobs

KINDS = jnp.asarray(blobs(3, seed=5))


def case(mixture: bool) -> tuple[GradientEM, Learned, Batch]:
    """Cluster 0 holds two kinds, the third kind has two clusters of its own."""
    noise = 0.02 * jax.random.normal(jax.random.key(1), (30, 8, 8, 1))
    samples = KINDS[jnp.arange(30) % 3] + noise
    prototypes = jnp.stack([0.5 * (KINDS[0] + KINDS[1]), KINDS[2] + 0.01, KINDS[2] - 0.01])
    given, objective, energy = prototypes, None, TransformedPrototype(Identity())
    reduction = HardMinimum()
    if mixture:
        given = GaussianImages(prototypes, jnp.full_like(prototypes, 0.2))
        objective, reduction = jnp.zeros(3), MixtureLikelihood()
        density = GaussianNegativeLogLikelihood(min_deviation=0.1)
        energy = TransformedPrototype(Identity(), density)
    learned = Learned(Clusters(given, jnp.zeros((3, 0))), None, objective)
    solver = GradientEM(energy, NoAlignment(candidates=3), reduction, followed=3)
    return solver, learned, Batch(samples, jnp.ones(30))


def loss(solver: GradientEM, learned: Learned, batch: Batch) -> float:
    result = solver.assign(learned, batch.samples, None)
    return float(jnp.sum(solver.reduction(result.energy)))


def best(proposed: SplitProposals, *, least: float) -> list[tuple[int, int]]:
    gains, costs, loss = (
        np.asarray(x).tolist() for x in (proposed.gain, proposed.cost, proposed.loss)
    )
    return best_pairs(gains, costs, lambda net, _: net > least * abs(loss), most=1)


@pytest.mark.parametrize("mixture", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_kinds_in_one_cluster_are_parted(mixture: bool) -> None:
    solver, learned, batch = case(mixture)
    move = propose_splits(solver, learned, batch, None)
    [(split, removed)] = best(move, least=0.01)
    assert split == 0
    assert removed in (1, 2)
    before = loss(solver, learned, batch)
    np.testing.assert_allclose(float(move.loss), before, rtol=1e-5)
    state = apply_split_merge(
        solver.init(learned), move.children, jnp.asarray(split), jnp.asarray(removed)
    )
    after = loss(solver, state.learned, batch)
    if not mixture:
        # What was promised is a bound: other samples may find the new prototypes nearer too.
        net = float(move.gain[split] - move.cost[removed])
        assert after <= before - net + 1e-3
        children = np.asarray(state.learned.clusters.prototype)[[0, removed]]
        errors = [[np.abs(c - k).max() for k in KINDS[:2]] for c in children]
        assert sorted(np.argmin(errors, axis=1)) == [0, 1]
        assert np.min(errors, axis=1).max() < 0.05
    assert after < before
    again = propose_splits(solver, state.learned, batch, None)
    assert best(again, least=0.05) == []


def test_a_split_in_halves_is_that_of_kmeans() -> None:
    # The best step along the mean gradients of both sides leads to their means.
    solver, learned, batch = case(mixture=False)
    move = propose_splits(solver, learned, batch, None)
    inside = np.arange(30) % 3 < 2
    members, kinds = np.asarray(batch.samples)[inside], np.arange(30)[inside] % 3
    means = np.stack([members[kinds == k].mean(0) for k in (0, 1)])
    before = np.sum((members - np.asarray(learned.clusters.prototype)[0]) ** 2)
    expected = before - sum(np.sum((members[kinds == k] - means[k]) ** 2) for k in (0, 1))
    np.testing.assert_allclose(float(move.gain[0]), expected, rtol=1e-4)


@pytest.mark.slow
def test_heads_and_moments_go_with_the_split(key: jax.Array) -> None:
    solver, learned, batch = case(mixture=True)
    state = solver.init(learned)
    state, _ = solver.step(state, batch, None, jnp.asarray(1e-3))
    move = propose_splits(solver, state.learned, batch, None)
    after = apply_split_merge(state, move.children, jnp.asarray(0), jnp.asarray(2))
    for part in (lambda s: s.learned.objective, lambda s: s.moments.mu.clusters.prototype.mean):
        old, new = part(state), part(after)
        np.testing.assert_array_equal(new, old[jnp.asarray([0, 1, 0])])
    assert float(jnp.sum(after.tally.count)) == 0.0
