"""Gradient EM: its gradient, its refills, and that a step is what the mathematics says."""

import dataclasses
from typing import Any

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
import scipy.special
import scipy.stats

from diffclust.alignment import Descent, NoAlignment, Prediction, Sequential, Stage
from diffclust.distances import GaussianNegativeLogLikelihood
from diffclust.energies import (
    AbstractReduction,
    Entropic,
    Fuzzy,
    HardMinimum,
    MixtureLikelihood,
    TransformedPrototype,
)
from diffclust.models import GaussianMixture, Training
from diffclust.networks import StridedBackbone, make_heads
from diffclust.parallel import Batch, Data
from diffclust.prototypes import Clusters, GaussianImages, Learned
from diffclust.solvers.assign import assign_softly
from diffclust.solvers.base import memory_of
from diffclust.solvers.gradient import GradientEM, GradientState, GradientTally, regrouped
from diffclust.solvers.split_merge import propose_splits
from diffclust.transforms import Affine, Identity
from tests.registry import blobs
from tests.solvers.test_reductions import Trimmed

CLUSTERS = 3


def hard(key: jax.Array) -> tuple[GradientEM, Learned, Batch]:
    """DTI K-means with affine maps; the heads are stirred, so that they predict something."""
    images = jnp.asarray(blobs(12))
    first, second, third = jax.random.split(key, 3)
    backbone = StridedBackbone(8, 8, 1, key=first)
    heads = make_heads(CLUSTERS, backbone.num_features, 6, key=second)
    heads = jax.tree.map(
        lambda leaf: leaf + 0.02 * jax.random.normal(third, leaf.shape, leaf.dtype), heads
    )
    clusters = Clusters(images[:CLUSTERS], jnp.zeros((CLUSTERS, 1)), (heads,))
    solver = GradientEM(TransformedPrototype(Affine("edge")), Prediction(transforms=1), decay=0.0)
    return solver, Learned(clusters, backbone), Batch(images, jnp.ones(12))


def soft(followed: int | None = CLUSTERS) -> tuple[GradientEM, Learned, Batch]:
    """A Gaussian mixture that moves nothing."""
    images = jnp.asarray(blobs(12))
    deviation = jnp.asarray(0.3 + blobs(CLUSTERS, seed=1))
    prototype = GaussianImages(images[:CLUSTERS], deviation)
    learned = Learned(
        Clusters(prototype, jnp.zeros((CLUSTERS, 0))), None, jnp.asarray([0.5, 1.0, -0.3])
    )
    energy = TransformedPrototype(Identity(), GaussianNegativeLogLikelihood(min_deviation=0.5))
    aligner = NoAlignment(candidates=CLUSTERS)
    solver = GradientEM(energy, aligner, MixtureLikelihood(), followed=followed)
    return solver, learned, Batch(images, jnp.ones(12))


@eqx.filter_jit
def losses(solver: GradientEM, learned: Learned, batch: Batch) -> jax.Array:
    memory = solver.init_memory(len(batch.weight), CLUSTERS, batch.weight.dtype)
    result = solver.assign(learned, batch.samples, memory)
    return solver.losses(learned, batch.samples, result)


def step(
    solver: GradientEM, state: GradientState, batch: Batch, rate: float = 1e-3
) -> GradientState:
    memory = solver.init_memory(len(batch.weight), CLUSTERS, batch.weight.dtype)
    return eqx.filter_jit(solver.step)(state, batch, memory, jnp.asarray(rate))[0]


def test_mixture_is_scipys() -> None:
    solver, learned, batch = soft()
    x = np.asarray(batch.samples, np.float64).reshape(12, -1)
    prototype = learned.clusters.prototype
    mean = np.asarray(prototype.mean, np.float64).reshape(CLUSTERS, -1)
    variance = np.asarray(prototype.deviation, np.float64).reshape(CLUSTERS, -1) ** 2 + 0.25
    log_density = np.stack(
        [
            scipy.stats.multivariate_normal(m, np.diag(v)).logpdf(x)
            for m, v in zip(mean, variance, strict=True)
        ],
        axis=1,
    )
    joint = log_density + scipy.special.log_softmax(np.asarray(learned.objective, np.float64))
    expected = -scipy.special.logsumexp(joint, axis=1)
    np.testing.assert_allclose(losses(solver, learned, batch), expected, rtol=1e-5)


@pytest.mark.slow
def test_gradient_of_a_mixture_is_that_of_the_expectation_step() -> None:
    # Fisher's identity: Algorithm 1's M-step gradient, responsibilities held fixed.
    solver, learned, batch = soft()

    def likelihood(learned: Learned) -> jax.Array:
        return jnp.sum(losses(solver, learned, batch))

    def scores(learned: Learned) -> jax.Array:
        energies = jax.vmap(lambda x: solver.energy.unaligned(x, learned.clusters))(batch.samples)
        return energies - jax.nn.log_softmax(learned.objective)[None]

    responsible = jax.lax.stop_gradient(solver.reduction.responsibilities(scores(learned)))
    expected = jax.grad(lambda tree: jnp.sum(responsible * scores(tree)))(learned)
    got = jax.grad(likelihood)(learned)
    chex.assert_trees_all_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_following_the_best_cluster_is_exact_for_a_hard_minimum(key: jax.Array) -> None:
    solver, learned, batch = hard(key)

    def direct(learned: Learned) -> jax.Array:
        def one(sample: jax.Array) -> jax.Array:
            params = Prediction().predict(sample, learned.clusters, learned.shared)
            bound = jax.vmap(solver.energy.bind(sample), in_axes=(0, None, 0))
            return jnp.min(bound(params, sample, learned.clusters))

        return jnp.sum(jax.vmap(one)(batch.samples))

    value, expected = eqx.filter_value_and_grad(direct)(learned)
    got = eqx.filter_grad(lambda t: jnp.sum(losses(solver, t, batch)))(learned)
    np.testing.assert_allclose(jnp.sum(losses(solver, learned, batch)), value, rtol=1e-6)
    assert float(optax.tree.norm(expected.shared)) > 1e-3
    chex.assert_trees_all_close(got, expected, rtol=1e-3, atol=1e-5)


@jax.numpy_dtype_promotion("standard")
@pytest.mark.parametrize("bias_correction", ["fit", "array"])
def test_steps_of_adam_are_counted_from_the_first_gradient(bias_correction: Any) -> None:
    draw = np.random.default_rng(0)
    early, late = draw.normal(size=(2, 40, 5)).astype(np.float32)
    late[:30] = 0.0
    adam = dataclasses.replace(soft()[0], bias_correction=bias_correction)._transformation

    @jax.jit
    def update(gradient: Any, state: Any) -> Any:
        return adam.update(gradient, state)

    def of_optax(gradients: np.ndarray) -> np.ndarray:
        plain, rows = optax.scale_by_adam(), []
        state = plain.init(gradients[0])
        for gradient in gradients:
            row, state = plain.update(gradient, state)
            rows.append(row)
        return np.stack(rows)

    state, rows = adam.init({"early": early[0], "late": late[0]}), []
    for one, other in zip(early, late, strict=True):
        moved, state = update({"early": one, "late": other}, state)
        rows.append(moved)
    got = {name: np.stack([row[name] for row in rows]) for name in ("early", "late")}
    np.testing.assert_allclose(got["early"], of_optax(early), rtol=1e-4, atol=1e-6)
    assert not got["late"][:30].any()
    alone = of_optax(late[30:])
    if bias_correction == "array":
        np.testing.assert_allclose(got["late"][30:], alone, rtol=1e-4, atol=1e-6)
    else:
        # The first step is 0.1 / √0.001 · √(1 - 0.999³¹) times as large.
        np.testing.assert_allclose(
            got["late"][30],
            alone[0] * 0.1 / (1 - 0.9**31) * ((1 - 0.999**31) / 0.001) ** 0.5,
            rtol=1e-4,
        )


@pytest.mark.slow
def test_no_number_follows_all_clusters() -> None:
    solver, learned, batch = soft()
    whole, few = soft(followed=None)[0], soft(followed=2)[0]
    expected, result, other = (
        jax.jit(jax.grad(lambda tree, s=s: jnp.sum(losses(s, tree, batch))))(learned).objective
        for s in (solver, whole, few)
    )
    np.testing.assert_array_equal(result, expected)
    assert float(jnp.max(jnp.abs(other - expected))) > 1e-3


@pytest.mark.slow
def test_a_mixture_that_follows_few_clusters_has_the_whole_likelihood() -> None:
    solver, learned, batch = soft()
    few = soft(followed=1)[0]
    np.testing.assert_allclose(
        losses(few, learned, batch), losses(solver, learned, batch), rtol=1e-6
    )


@pytest.mark.slow
def test_steps_lower_the_loss(key: jax.Array) -> None:
    for solver, learned, batch in (hard(key), soft()):
        state = solver.init(learned)
        for _ in range(30):
            state = step(solver, state, batch)
        before, after = (
            float(jnp.sum(losses(solver, tree, batch))) for tree in (learned, state.learned)
        )
        assert after < before - 0.01 * abs(before)
        assert int(state.step) == 30
        assert int(state.failed) == -1
        assert float(state.tally.mass) == 30 * 12


@pytest.mark.slow
def test_padding_changes_nothing(key: jax.Array) -> None:
    solver, learned, batch = hard(key)
    padded = Batch(
        jnp.concatenate([batch.samples, 1.0 - batch.samples[:4]]),
        jnp.concatenate([batch.weight, jnp.zeros(4)]),
    )
    one, other = (step(solver, solver.init(learned), b) for b in (batch, padded))
    chex.assert_trees_all_close(one.moments, other.moments, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_a_sum_over_devices_is_the_whole_batch(key: jax.Array) -> None:
    solver, learned, batch = hard(key)
    whole = step(solver, solver.init(learned), batch)
    parts = jax.tree.map(lambda leaf: leaf.reshape(3, 4, *leaf.shape[1:]), batch)
    memory = solver.init_memory(4, CLUSTERS, batch.weight.dtype)
    state = solver.init(learned)

    def one(part: Batch) -> GradientState:
        return solver.step(state, part, memory, jnp.asarray(1e-3), axis_name="data")[0]

    split = eqx.filter_vmap(one, axis_name="data")(parts)
    # The moments are the gradient's: Adam's step alone would hide its scale.
    first = jax.tree.map(lambda leaf: leaf[0], split.moments)
    chex.assert_trees_all_close(first, whole.moments, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("reduction", [HardMinimum(), Entropic(5.0), Fuzzy(), MixtureLikelihood()])
def test_by_default_the_gradient_is_that_of_the_loss(reduction: AbstractReduction) -> None:
    images = jnp.asarray(blobs(12))
    learned = Learned(Clusters(images[:CLUSTERS] + 0.1, jnp.zeros((CLUSTERS, 0))))
    learned = Learned(learned.clusters, None, reduction.init(CLUSTERS, images.dtype))
    solver = GradientEM(
        TransformedPrototype(Identity()), NoAlignment(candidates=CLUSTERS), reduction
    )

    def loss(prototype: jax.Array) -> jax.Array:
        squared = jnp.sum((images[:, None] - prototype[None]) ** 2, axis=(2, 3, 4))
        offsets = reduction.offsets(learned.objective, CLUSTERS)
        return jnp.sum(reduction(squared if offsets is None else squared + offsets[None]))

    def solved(prototype: jax.Array) -> jax.Array:
        here = eqx.tree_at(lambda tree: tree.clusters.prototype, learned, prototype)
        return jnp.sum(losses(solver, here, Batch(images, jnp.ones(12))))

    at = learned.clusters.prototype
    expected, result = (jax.jit(jax.grad(f))(at) for f in (loss, solved))
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)


def test_what_predicts_and_then_searches_is_not_trained(key: jax.Array) -> None:
    solver, learned, _ = hard(key)
    aligner = Sequential(Prediction(transforms=1), Descent((Stage(2),), candidates=None))
    with pytest.raises(ValueError, match="never trains .* train with Prediction"):
        GradientEM(solver.energy, aligner).init(learned)


def test_penalty_weights_are_not_learned(key: jax.Array) -> None:
    solver, learned, batch = hard(key)
    learned = eqx.tree_at(lambda t: t.clusters.penalty, learned, jnp.full((CLUSTERS, 1), 0.5))
    state = step(solver, solver.init(learned), batch)
    np.testing.assert_array_equal(state.learned.clusters.penalty, learned.clusters.penalty)


def test_a_step_that_is_not_a_number_is_not_taken(key: jax.Array) -> None:
    solver, learned, batch = hard(key)
    state = step(solver, solver.init(learned), batch)
    broken = eqx.tree_at(lambda b: b.samples, batch, batch.samples.at[3, 2, 2].set(jnp.nan))
    after = step(solver, step(solver, state, broken), batch)
    assert int(after.failed) == 1
    lasting = step(solver, state, broken)
    for one, other in zip(
        jax.tree.leaves(lasting.learned), jax.tree.leaves(state.learned), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def descending(key: jax.Array) -> tuple[GradientEM, Learned, Batch]:
    """Params are minimised anew at every step."""
    _, learned, batch = hard(key)
    learned = Learned(Clusters(learned.clusters.prototype, learned.clusters.penalty))
    descent = Descent((Stage(2),), candidates=None)
    return GradientEM(TransformedPrototype(Affine("edge")), descent), learned, batch


def test_only_those_who_start_from_a_memory_have_one(key: jax.Array) -> None:
    assert descending(key)[0].training_memory(12, CLUSTERS, jnp.dtype("float32")) is not None
    for solver, learned, batch in (hard(key), soft()):
        assert solver.training_memory(12, CLUSTERS, batch.weight.dtype) is None
        arguments = (solver.init(learned), batch, None, jnp.asarray(1e-3))
        assert eqx.filter_eval_shape(solver.step, *arguments)[1] is None
    assign = eqx.filter_jit(solver.assign)
    result = assign(learned, batch.samples, None)
    expected = assign(learned, batch.samples, solver.init_memory(12, CLUSTERS, batch.weight.dtype))
    np.testing.assert_array_equal(result.cluster, expected.cluster)
    np.testing.assert_allclose(result.energy, expected.energy, rtol=1e-6)


@pytest.mark.slow
def test_descents_start_where_the_last_one_ended(key: jax.Array) -> None:
    solver, learned, batch = descending(key)
    memory = solver.training_memory(12, CLUSTERS, batch.weight.dtype)
    assert memory is not None
    assert memory.params.shape == (12, 1, 6)
    assign = eqx.filter_jit(solver.assign)
    first = assign(learned, batch.samples, memory)
    second = assign(learned, batch.samples, memory_of(first, 1))
    assert np.all(second.energy[:, 0] <= first.energy[:, 0] * (1 + 1e-5))
    assert np.any(second.energy[:, 0] < 0.99 * first.energy[:, 0])


def test_networks_that_wait_are_not_decayed(key: jax.Array) -> None:
    _, learned, batch = hard(key)
    waiting = GradientEM(TransformedPrototype(Identity()), NoAlignment(candidates=CLUSTERS))
    state = step(waiting, waiting.init(learned), batch, 0.1)
    chex.assert_trees_all_equal(state.learned.shared, learned.shared)


def test_another_weight_decay_compiles_nothing(key: jax.Array) -> None:
    solver, learned, batch = hard(key)
    traced = []

    @jax.jit
    def norm(decay: jax.Array) -> jax.Array:
        traced.append(decay)
        decayed = dataclasses.replace(solver, decay=decay, optimizer=optax.sgd(1.0))
        weights = step(decayed, decayed.init(learned), batch, 1.0).learned.shared
        return optax.tree.norm(eqx.filter(weights, eqx.is_array))

    norms = [float(norm(jnp.float32(decay))) for decay in (0.0, 0.1, 0.5)]
    assert len(traced) == 1
    assert norms == sorted(norms, reverse=True)


def trimming(reduction: Trimmed) -> tuple[GradientEM, Learned, Batch]:
    """Eleven images near three prototypes, and one outlier, which is nearest to the last."""
    images = jnp.asarray(blobs(12)).at[11].add(5.0)
    clusters = Clusters(images[: CLUSTERS + 1].at[3].set(images[11] - 2.0), jnp.zeros((4, 0)))
    learned = Learned(clusters, None, reduction.init(4, images.dtype))
    solver = GradientEM(
        TransformedPrototype(Identity()), NoAlignment(candidates=4), Trimmed(), followed=1
    )
    return solver, learned, Batch(images, jnp.ones(12))


def test_the_state_of_an_adaptive_reduction_is_not_of_clusters() -> None:
    edges = jnp.asarray([1.0, 2.0])
    solver, learned, _ = trimming(Trimmed(0.1, edges))
    state = regrouped(solver.init(learned), jnp.asarray([0, 0, 2, 3]))
    np.testing.assert_array_equal(state.learned.objective.threshold, edges)
    prototype = state.learned.clusters.prototype
    np.testing.assert_array_equal(prototype[1], prototype[0])


@pytest.mark.parametrize("memory", [4, 6])
def test_an_optimiser_s_past_steps_are_regrouped_by_cluster(memory: int) -> None:
    solver, learned, batch = trimming(Trimmed())
    optimizer = optax.lbfgs(memory_size=memory, linesearch=None)
    solver = dataclasses.replace(solver, optimizer=optimizer)
    state = step(solver, solver.init(learned), batch)
    moments = [s for s in jax.tree.leaves(state, is_leaf=_is_past) if _is_past(s)]
    past = moments[0].diff_params_memory.clusters.prototype
    assert past.shape[:2] == (memory, 4)
    after = regrouped(state, jnp.asarray([1, 1, 2, 3]))
    moments = [s for s in jax.tree.leaves(after, is_leaf=_is_past) if _is_past(s)]
    np.testing.assert_array_equal(
        moments[0].diff_params_memory.clusters.prototype, past[:, jnp.asarray([1, 1, 2, 3])]
    )


def _is_past(tree: object) -> bool:
    return hasattr(tree, "diff_params_memory")


def test_samples_that_count_for_nothing_count_in_no_cluster() -> None:
    # By the reduction as it is now, not by the solver's, whose threshold is a million.
    solver, learned, batch = trimming(Trimmed(0.1, jnp.asarray(100.0)))
    result = jax.tree.map(np.asarray, eqx.filter_jit(solver.assign)(learned, batch.samples, None))
    np.testing.assert_array_equal(result.energy[:, 0] > 100.0, np.arange(12) == 11)
    tally = step(solver, solver.init(learned), batch).tally
    kept = np.asarray(result.energy[:, 0] <= 100.0, np.float32)
    np.testing.assert_allclose(tally.count, np.bincount(result.cluster[:, 0], kept, 4))
    assert float(tally.mass) == 12.0

    data = Data(batch.samples, None, 4)
    assignment, sample_losses, responsibilities = assign_softly(solver, learned, data)
    assert assignment.clusters[11] == 3
    assert sample_losses[11] == 100.0
    np.testing.assert_array_equal(responsibilities.sum(1), kept)


def test_samples_that_count_for_nothing_make_no_moves() -> None:
    solver, learned, batch = trimming(Trimmed(0.1, jnp.asarray(100.0)))
    # Two outliers, which the last prototype parts: only the threshold makes it not worth a split.
    batch = Batch(batch.samples.at[10].set(2.0 - batch.samples[11]), batch.weight)
    result = eqx.filter_jit(solver.assign)(learned, batch.samples, None)
    move = eqx.filter_jit(propose_splits)(solver, learned, batch, None)
    np.testing.assert_allclose(move.loss, jnp.sum(jnp.minimum(result.energy[:, 0], 100.0)))
    assert float(move.gain[3]) == float(move.cost[3]) == 0.0
    assert float(jnp.max(move.gain)) > 0.0


@pytest.mark.parametrize("counts", [[1.0, 2.0, 90.0], [30.0, 20.0, 25.0]])
def test_tiny_clusters_become_the_largest(key: jax.Array, counts: list[float]) -> None:
    solver, learned, batch = hard(key)
    learned = eqx.tree_at(
        lambda t: t.objective, learned, jnp.arange(3.0), is_leaf=lambda leaf: leaf is None
    )
    state = step(solver, solver.init(learned), batch)
    state = eqx.tree_at(
        lambda s: s.tally,
        state,
        GradientTally(jnp.asarray(counts), jnp.asarray(1.0), jnp.asarray(sum(counts))),
    )
    after, refilled = solver.refill(state, key, least_share=0.2, noise=0.01)
    largest = int(np.argmax(counts))
    tiny = [k for k in range(3) if counts[k] < 0.2 * sum(counts) / 3]
    assert int(refilled) == len(tiny)
    source = [largest if k in tiny else k for k in range(3)]
    for part in (
        lambda s: s.learned.clusters.predictor,
        lambda s: s.learned.objective,
        lambda s: s.moments.mu.clusters,
        lambda s: s.moments.nu.clusters,
    ):
        expected = jax.tree.map(lambda leaf: leaf[jnp.asarray(source)], part(state))
        chex.assert_trees_all_equal(part(after), expected)
    moved = np.asarray(
        after.learned.clusters.prototype - state.learned.clusters.prototype[jnp.asarray(source)]
    )
    stirred = {*tiny, largest} if tiny else set()
    for k in range(3):
        spread = moved[k].std()
        assert (0.005 < spread < 0.02) if k in stirred else spread == 0.0
    assert float(jnp.sum(after.tally.count)) == 0.0


def test_hard_minimum_and_its_responsibilities() -> None:
    scores = jnp.asarray([[3.0, 1.0, 2.0], [0.5, 4.0, 4.5]])
    reduction = HardMinimum()
    np.testing.assert_array_equal(reduction(scores), [1.0, 0.5])
    np.testing.assert_array_equal(
        reduction.responsibilities(scores), [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    )
    assert reduction.offsets(None, 3) is None
    mixed = MixtureLikelihood()
    np.testing.assert_allclose(
        mixed.responsibilities(scores),
        jax.vmap(jax.grad(lambda s: mixed(s)))(scores),
        rtol=1e-6,
    )


def descended(
    optimizer: optax.GradientTransformation | None, rate: float = 1e-3, **former: Any
) -> tuple[float, float]:
    """The loss of a mixture before and after ten steps."""
    solver, learned, batch = soft()
    given = (solver.energy, solver.aligner, solver.reduction)
    solver = GradientEM(*given, followed=CLUSTERS, optimizer=optimizer, **former)
    state = solver.init(learned)
    before = float(jnp.sum(losses(solver, learned, batch)))
    for _ in range(10):
        state = step(solver, state, batch, rate)
    return before, float(jnp.sum(losses(solver, state.learned, batch)))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [optax.adam(1e-2), optax.sgd(1e-2), optax.lion(1e-3)])
def test_optimisers_of_optax_descend(optimizer: optax.GradientTransformation) -> None:
    before, after = descended(optimizer)
    assert after < before


@pytest.mark.slow
def test_rates_reach_optimisers_that_hold_one() -> None:
    injected = optax.inject_hyperparams(optax.sgd)(learning_rate=1.0)
    before, after = descended(injected, rate=0.0)
    assert after == before
    _, after = descended(injected, rate=1e-2)
    assert after == pytest.approx(descended(optax.sgd(1e-2))[1], rel=1e-6)
    assert after < before


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.inject_hyperparams(optax.adam)(learning_rate=optax.constant_schedule(1e-2)),
        optax.chain(
            optax.inject_hyperparams(optax.scale_by_learning_rate)(learning_rate=-1e-1),
            optax.inject_hyperparams(optax.scale_by_learning_rate)(learning_rate=1e-1),
        ),
        optax.chain(optax.sgd(1e-2), optax.contrib.reduce_on_plateau()),
    ],
    ids=["schedule", "two rates", "plateau"],
)
def test_optimisers_keep_rates_of_their_own(optimizer: optax.GradientTransformation) -> None:
    before, after = descended(optimizer, rate=0.0)
    assert after < before


@pytest.mark.parametrize(
    "optimizer",
    [optax.scale_by_adam(), optax.sgd(-1e-2), optax.identity()],
    ids=["scaling", "negative rate", "gradient"],
)
def test_optimisers_that_climb_are_refused(optimizer: optax.GradientTransformation) -> None:
    solver, learned, _ = soft()
    climbing = dataclasses.replace(solver, optimizer=optimizer)
    with pytest.raises(ValueError, match="the optimizer climbs"):
        climbing.init(learned)


def test_line_searches_are_refused() -> None:
    with pytest.raises(ValueError, match="the optimizer has a line search"):
        descended(optax.lbfgs())


def test_the_former_optimiser_warns() -> None:
    former = {"optimiser": optax.scale(2.0)}
    # Not a DeprecationWarning, which Python shows in scripts alone.
    with pytest.warns(FutureWarning, match=r"subtracts its updates.*climbs: give that as optimi"):
        before, after = descended(None, rate=1e-2, **former)
    # Its updates are subtracted, times the rate.
    assert after == pytest.approx(descended(optax.sgd(2e-2))[1], rel=1e-6)
    assert after < before


def test_a_rate_that_would_not_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="give learning_rate or an optimizer with a rate"):
        Training(learning_rate=1e-2, optimizer=optax.adam(1e-2))
    injected = optax.inject_hyperparams(optax.sgd)(learning_rate=1.0)
    assert Training(learning_rate=1e-2, optimizer=injected).learning_rate == 1e-2
    Training(optimizer=optax.adam(1e-2))


@pytest.mark.slow
def test_models_take_an_optimizer() -> None:
    images = np.random.default_rng(0).uniform(size=(12, 4, 4, 1)).astype(np.float32)
    few = Training(steps=(4, 2), batch_size=6, split_merge=False)
    fits = [
        GaussianMixture(2, training=dataclasses.replace(few, optimizer=optax.sgd(rate))).fit(
            images, key=jax.random.key(0), prototypes=images[:2]
        )
        for rate in (0.0, 1e-3)
    ]
    assert fits[1].loss < fits[0].loss


@pytest.mark.slow
def test_an_optimiser_with_decay_leaves_weights_of_penalties() -> None:
    images = np.random.default_rng(0).uniform(size=(6, 4, 4, 1)).astype(np.float32)
    energy = TransformedPrototype(Affine("edge"))
    clusters = Clusters(jnp.asarray(images[:2]), jnp.full((2, 1), 0.3))
    optimizer = optax.chain(optax.add_decayed_weights(0.5), optax.sgd(0.1))
    solver = GradientEM(energy, Descent((Stage(1),)), optimizer=optimizer)
    state = solver.init(Learned(clusters, None, None))
    state = step(solver, state, Batch(jnp.asarray(images), jnp.ones(6)))
    np.testing.assert_array_equal(state.learned.clusters.penalty, clusters.penalty)
    assert not np.array_equal(state.learned.clusters.prototype, clusters.prototype)


def test_a_batch_that_weighs_nothing_moves_nothing(key: jax.Array) -> None:
    solver, learned, batch = hard(key)
    state, step = solver.init(learned), eqx.filter_jit(solver.step)
    rate = jnp.asarray(1e-2)
    state, _ = step(state, batch, None, rate)
    after, _ = step(state, Batch(batch.samples, jnp.zeros(12)), None, rate)
    chex.assert_trees_all_equal(after.learned, state.learned)
    chex.assert_trees_all_equal(after.moments, state.moments)
    assert int(after.step) == 2
