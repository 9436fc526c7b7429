"""Objectives of one's own under Lloyd's algorithm: reductions, families, seeds, gradients."""

import contextlib
import functools
from typing import Any, ClassVar

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jaxtyping import Array, Float

from diffclust.alignment import Descent, NoAlignment, Stage
from diffclust.distances import AbstractDistance, SquaredEuclidean
from diffclust.energies import (
    AbstractAdaptiveReduction,
    AbstractReduction,
    Entropic,
    Fuzzy,
    HardMinimum,
    MixtureLikelihood,
    TransformedDistance,
)
from diffclust.models import Clustering
from diffclust.parallel import Batch, Data, data_mesh
from diffclust.parallel.data import PerSample
from diffclust.prototypes import Clusters, Learned, MeanImages, UnitNormImages
from diffclust.solvers import (
    FitError,
    GradientEM,
    Lloyd,
    LloydPlan,
    LloydProblem,
    LloydState,
    Outcome,
    SplitMerge,
    Status,
    Stopping,
    clusters_of,
    compiled_lloyd,
    run,
)
from diffclust.solvers.lloyd import has_converged
from diffclust.solvers.lloyd_run import LloydRun, sum_over_chunks
from diffclust.solvers.split_merge import try_split
from diffclust.testing import check_family, check_reduction, smooth_image
from diffclust.transforms import Affine, Identity
from tests.registry import blobs
from tests.storage.test_snapshots import Breaking, Broken, assert_same

K = 3


class FuzzyByPowers(AbstractReduction):
    """Fuzzy clusters as they are written, which have no slope where a score is zero."""

    is_hard: ClassVar[bool] = False

    def __call__(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n"]:
        return jnp.sum(scores ** (1 / (1 - 2.5)), axis=-1) ** (1 - 2.5)


class Trimmed(AbstractAdaptiveReduction):
    """K-means that leaves out the farthest samples: those beyond a threshold that follows them."""

    share: float = eqx.field(static=True, default=0.1)
    threshold: Float[Array, ""] = eqx.field(default=1e6, converter=jnp.asarray)

    def __call__(self, scores: Array) -> Array:
        return jnp.minimum(jnp.min(scores, axis=-1), self.threshold)

    def responsibilities(self, scores: Array) -> Array:
        kept = jnp.min(scores, axis=-1, keepdims=True) <= self.threshold
        return jnp.where(kept, HardMinimum().responsibilities(scores), 0.0)

    def statistics(self, scores: Array, weight: Array, cluster: Array) -> tuple[Array, Array]:
        below = scores[:, :1] <= self._edges(scores.dtype)[None]
        return weight @ below.astype(weight.dtype), jnp.sum(weight)

    def update(self, statistics: tuple[Array, Array]) -> "Trimmed":
        below, total = statistics
        edges = self._edges(below.dtype)
        first = jnp.argmax(below >= (1.0 - self.share) * total)
        return eqx.tree_at(lambda r: r.threshold, self, edges[first])

    def _edges(self, dtype: jnp.dtype) -> Array:
        return jnp.logspace(-3, 6, 512, dtype=dtype)


class Annealed(AbstractAdaptiveReduction):
    """An entropic reduction whose temperature falls from pass to pass."""

    temperature: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(self, scores: Array) -> Array:
        return Entropic(self.temperature)(scores)

    def responsibilities(self, scores: Array) -> Array:
        return Entropic(self.temperature).responsibilities(scores)

    def update(self, statistics: None) -> "Annealed":
        return Annealed(jnp.maximum(0.8 * self.temperature, 0.01))


class Balanced(AbstractAdaptiveReduction):
    """K-means in which a cluster that holds more than its share costs more."""

    price: Float[Array, " clusters"] = eqx.field(default=0.0, converter=jnp.asarray)

    def init(self, num_clusters: int, dtype: jnp.dtype) -> "Balanced":
        return Balanced(jnp.zeros((num_clusters,), dtype))

    def offsets(self, learned: "Balanced", num_clusters: int) -> Array:
        return learned.price

    def __call__(self, scores: Array) -> Array:
        return HardMinimum()(scores)

    def responsibilities(self, scores: Array) -> Array:
        return HardMinimum().responsibilities(scores)

    def statistics(self, scores: Array, weight: Array, cluster: Array) -> Array:
        shares = weight[:, None] * self.responsibilities(scores)
        return jnp.zeros_like(self.price).at[cluster].add(shares)

    def update(self, statistics: Array) -> "Balanced":
        even = statistics / jnp.mean(statistics) - 1.0
        return Balanced(self.price + 0.2 * even)


class Forgiving(Trimmed):
    """Wrong: a sample that is left out costs nothing, so that the loss falls as it moves away."""

    def __call__(self, scores: Array) -> Array:
        best = jnp.min(scores, axis=-1)
        return jnp.where(best <= self.threshold, best, 0.0)


class OfTheBatch(AbstractReduction):
    """Wrong: what a sample counts depends on the others of its batch."""

    def __call__(self, scores: Array) -> Array:
        return jnp.min(scores, axis=-1) - jnp.mean(scores)

    def responsibilities(self, scores: Array) -> Array:
        return HardMinimum().responsibilities(scores)


class Capped(HardMinimum):
    """Wrong: says that it is hard, but distances count up to a cap alone."""

    def __call__(self, scores: Array) -> Array:
        return jnp.minimum(jnp.min(scores, axis=-1), 50.0)

    def responsibilities(self, scores: Array) -> Array:
        return AbstractReduction.responsibilities(self, scores)


class ReallySoft(Entropic):
    """Wrong: says that it is hard."""

    is_hard: ClassVar[bool] = True


class TrimmedByBatch(Trimmed):
    """Wrong: its sums are of the batch's own quantile, which do not add up."""

    def statistics(self, scores: Array, weight: Array, cluster: Array) -> tuple[Array, Array]:
        cut = jnp.quantile(scores[:, 0], 0.9)
        below = scores[:, :1] <= jnp.minimum(cut, self._edges(scores.dtype))[None]
        return weight @ below.astype(weight.dtype), jnp.sum(weight)


class Manhattan(AbstractDistance):
    """Sums of differences, which means do not minimise."""

    def __call__(self, sample: Array, prototype: Array, weight: Array | None = None) -> Array:
        return jnp.sum(jnp.abs(sample - prototype))


def points(outliers: int = 0, *, seed: int = 0, n: int = 60) -> np.ndarray:
    """Three round groups of points, as images of one pixel with two channels; then outliers."""
    rng = np.random.default_rng(seed)
    centres = np.asarray([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    x = centres[np.arange(n) % 3] + 0.5 * rng.normal(size=(n, 2))
    x[n - outliers :] = rng.uniform(40.0, 80.0, (outliers, 2))
    return x[:, None, None, :].astype(np.float32)


def of_points(reduction: AbstractReduction) -> Lloyd:
    return Lloyd(
        TransformedDistance(Identity()), NoAlignment(candidates=K), MeanImages(), reduction
    )


def of_affine() -> Lloyd:
    return Lloyd(TransformedDistance(Affine()), Descent((Stage(2),)), MeanImages())


def fitted(
    reduction: AbstractReduction,
    samples: np.ndarray,
    chunk_size: int = 16,
    *,
    moves: int = 0,
    max_passes: int = 40,
    tolerance: float = 1e-6,
    mesh: Any = None,
    snapshots: Any = None,
) -> Outcome:
    plan = LloydPlan(K, (), 2, Stopping(max_passes, tolerance), SplitMerge(rounds=moves))
    problem = LloydProblem(of_points(reduction), plan)
    data = Data(samples, None, chunk_size, mesh)
    return run((problem,), data, jax.random.key(0), snapshots=snapshots)


@pytest.mark.parametrize(
    "reduction", [HardMinimum(), Entropic(0.3), Fuzzy(), Trimmed(0.2), Annealed(2.0), Balanced()]
)
def test_reductions_obey_the_laws(reduction: AbstractReduction, key: jax.Array) -> None:
    check_reduction(reduction, key=key)


class CountsAlike(Trimmed):
    """Every sample counts once, whatever it weighs."""

    def statistics(self, scores: Array, weight: Array, cluster: Array) -> tuple[Array, Array]:
        return super().statistics(scores, (weight > 0).astype(weight.dtype), cluster)


@pytest.mark.parametrize(
    "reduction",
    [
        CountsAlike(0.2),
        OfTheBatch(),
        TrimmedByBatch(0.2),
        Forgiving(0.2),
        Capped(),
        ReallySoft(1e-2),
        FuzzyByPowers(),
    ],
)
def test_the_laws_notice_wrong_reductions(reduction: AbstractReduction, key: jax.Array) -> None:
    with pytest.raises(AssertionError, match=type(reduction).__name__):
        check_reduction(reduction, key=key)


def test_fuzzy_is_fuzzy_c_means() -> None:
    samples = points()
    outcome = fitted(Fuzzy(), samples)
    x = samples[:, 0, 0].astype(np.float64)
    centres = np.asarray(outcome.learned.clusters.prototype, np.float64)[:, 0, 0]
    for _ in range(100):
        squared = np.sum((x[:, None] - centres[None]) ** 2, axis=2)
        memberships = (1 / squared) / np.sum(1 / squared, axis=1, keepdims=True)
        weights = memberships**2
        centres = weights.T @ x / weights.sum(0)[:, None]
    np.testing.assert_allclose(
        np.asarray(outcome.learned.clusters.prototype)[:, 0, 0], centres, atol=2e-3
    )
    np.testing.assert_allclose(outcome.loss, np.sum(weights * squared), rtol=1e-3)


def test_memberships_of_a_fit_are_the_softmax_of_squared_distances() -> None:
    samples, temperature = points(), 20.0
    outcome = fitted(Entropic(temperature), samples, max_passes=100, tolerance=1e-7)
    x = samples[:, 0, 0].astype(np.float64)
    centres = np.asarray(outcome.learned.clusters.prototype, np.float64)[:, 0, 0]
    squared = np.sum((x[:, None] - centres[None]) ** 2, axis=2)
    memberships = scipy.special.softmax(-squared / temperature, axis=1)
    np.testing.assert_allclose(outcome.extras["responsibilities"], memberships, atol=1e-4)
    assert np.ptp(memberships.max(axis=1)) > 0.01
    assert not fitted(HardMinimum(), samples).extras


def test_memberships_of_fuzzy_clusters_add_up_to_one() -> None:
    memberships = fitted(Fuzzy(), points()).extras["responsibilities"]
    np.testing.assert_allclose(memberships.sum(axis=1), 1.0, rtol=1e-5)


class Likelihood(SquaredEuclidean):
    """A negative log-likelihood, which is below zero where a sample is near."""

    def __call__(self, sample: Array, prototype: Array, weight: Array | None = None) -> Array:
        return super().__call__(sample, prototype, weight) - 1.0

    def to_all(self, sample: Array, prototypes: Array) -> Array:
        return super().to_all(sample, prototypes) - 1.0


def test_fuzzy_clusters_of_negative_scores_are_no_result() -> None:
    energy = TransformedDistance(Identity(), Likelihood())
    solver = Lloyd(energy, NoAlignment(), MeanImages(), Fuzzy())
    problem = LloydProblem(solver, LloydPlan(K, (), 1, Stopping(5, 1e-6), SplitMerge(rounds=0)))
    with pytest.raises(FitError, match="the loss is nan"):
        run((problem,), Data(points(), None, 16), jax.random.key(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Entropic(0.0), "temperature must be above 0, not 0.0"),
        (lambda: Fuzzy(1.0), "fuzzifier must be above 1, not 1.0"),
        (
            lambda: clusters_of(of_affine(), jnp.zeros((K, 8, 8, 1)), (-1.0,)),
            r"penalty must be at least 0, not \(-1.0,\)",
        ),
        (
            lambda: Clustering(K, of_affine(), penalties=(-1.0,)),
            "penalties must be at least 0, not -1.0",
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_images_without_channels_are_one_line() -> None:
    with pytest.raises(ValueError, match=r"must be \(height, width, channels\).*got \(8, 8\)"):
        Clustering(K, of_affine(), penalties=(0.0,)).fit(np.ones((6, 8, 8)), key=jax.random.key(0))


def test_prices_choose_among_all_clusters() -> None:
    solver = Lloyd(TransformedDistance(Identity()), NoAlignment(), reduction=Balanced())
    assert solver.aligner.num_candidates(5) == 5
    samples = jnp.asarray(points())
    # The two nearest clusters are so dear that the third is cheaper.
    prices = jnp.asarray([1e3, 1e3, 0.0])
    learned = Learned(clusters_of(solver, samples[:K], ()), None, Balanced(prices))
    found = eqx.filter_jit(solver.assign)(learned, samples, None)
    assert np.all(np.asarray(found.cluster[:, 0]) == 2)


@pytest.mark.slow
def test_prices_among_few_candidates_warn() -> None:
    energy, samples = TransformedDistance(Affine()), jnp.asarray(blobs(6))
    for aligner in (Descent((Stage(1),)), Descent((Stage(1),), candidates=None)):
        solver = Lloyd(energy, aligner, reduction=Balanced())
        learned = Learned(clusters_of(solver, samples[:3], (0.1,)), None, Balanced(jnp.zeros(3)))
        few = aligner.num_candidates(3) < 3
        words = "Balanced adds its offsets to the energies of 2 of 3 clusters alone"
        with pytest.warns(UserWarning, match=words) if few else contextlib.nullcontext():
            solver.assign(learned, samples, None)


def test_memberships_without_alignment_are_of_all_clusters() -> None:
    parts = TransformedDistance(Identity()), NoAlignment(), MeanImages()
    assert Lloyd(*parts, Fuzzy()).aligner.num_candidates(5) == 5
    assert Lloyd(*parts).aligner.num_candidates(5) == 2
    assert GradientEM(*parts[:2], Entropic(1.0)).aligner.num_candidates(5) == 5
    assert GradientEM(*parts[:2]).aligner.num_candidates(5) == 2


def test_an_empty_cluster_is_not_filled_with_a_sample_that_does_not_count() -> None:
    samples = points(outliers=4)
    given = np.arange(len(samples), dtype=np.int32) % 2
    parts = TransformedDistance(Identity()), NoAlignment(), MeanImages()
    run = whole_run(
        Lloyd(*parts, Trimmed(0.1)),
        Batch(jnp.asarray(samples), jnp.ones(len(samples))),
        given,
        num_clusters=K,
    )
    assert np.max(np.asarray(run.learned.clusters.prototype)) < 9.0


def test_trimmed_leaves_outliers_out_whatever_the_chunks() -> None:
    samples = points(outliers=4)
    plain, trimmed = fitted(HardMinimum(), samples), fitted(Trimmed(0.1), samples)
    assert np.max(np.asarray(plain.learned.clusters.prototype)) > 20.0
    centres = np.asarray(trimmed.learned.clusters.prototype)[:, 0, 0]
    assert np.max(centres) < 9.0
    other = fitted(Trimmed(0.1), samples, chunk_size=60)
    np.testing.assert_allclose(
        np.asarray(other.learned.clusters.prototype)[:, 0, 0], centres, rtol=1e-5
    )
    assert float(trimmed.learned.objective.threshold) < 1e3


@pytest.mark.slow
def test_what_is_trimmed_draws_no_half_of_a_split() -> None:
    samples = points(outliers=4)
    moved = fitted(Trimmed(0.1), samples, moves=3, max_passes=10)
    assert np.max(np.asarray(moved.learned.clusters.prototype)) < 9.0
    assert moved.loss <= fitted(Trimmed(0.1), samples, max_passes=10).loss * (1 + 1e-5)


def test_both_halves_of_a_split_have_the_price_of_their_cluster() -> None:
    samples, solver = points(), of_points(Balanced())
    plan = LloydPlan(K, (), 1, Stopping(1, 0.0), SplitMerge())
    chunks = LloydProblem(solver, plan).level(Data(samples, None, 64), 1)
    clusters = Clusters(jnp.asarray(samples[:K]), jnp.zeros((K, 0)))
    state = eqx.filter_jit(solver.init)(clusters, Balanced(jnp.asarray([5.0, 0.0, -5.0])))
    memory = (solver.init_memory(chunks.own_size, K, jnp.dtype("float32")),)
    state, memory = sum_over_chunks(solver.step, chunks, state, memory)
    run = LloydRun(state.learned, PerSample(memory), state.tally, (0.0,), Status.LOSS)
    for cluster in range(K):
        members = samples[cluster::K]
        trial = try_split(solver, chunks, run, cluster, SplitMerge(), np.random.default_rng(0))
        assert trial is not None
        # Distances are all that can be gained, but for the little that prices change on trial.
        assert -20.0 < trial[0] < np.sum((members - samples[cluster]) ** 2) + 20.0


def test_annealed_ends_as_hard_memberships_do() -> None:
    samples = points()
    outcome = fitted(Annealed(20.0), samples)
    hard = fitted(HardMinimum(), samples)
    assert float(outcome.learned.objective.temperature) < 0.1
    np.testing.assert_allclose(outcome.loss, hard.loss, rtol=1e-3)


def test_balanced_clusters_are_even_where_samples_are_not() -> None:
    samples = np.zeros((90, 1, 1, 2), np.float32)  # shaped like the others, which are compiled for
    samples[:, 0, 0, 0] = 4.0 * np.linspace(0, 1, 90) ** 3
    counts = np.bincount(fitted(Balanced(), samples).assignment.clusters, minlength=K)
    plain = np.bincount(fitted(HardMinimum(), samples).assignment.clusters, minlength=K)
    assert counts.max() <= 32
    assert plain.max() >= 45


ADAPTIVE = [Trimmed(0.1), Annealed(5.0), Balanced()]


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ADAPTIVE, ids=lambda r: type(r).__name__)
def test_reductions_that_follow_the_samples_move_resume_and_share_devices(
    reduction: AbstractAdaptiveReduction,
) -> None:
    samples = points(outliers=4)
    fit = functools.partial(fitted, reduction, samples, moves=1, max_passes=5)
    whole = fit()
    state = whole.learned.objective
    assert not eqx.tree_equal(state, reduction.init(K, jnp.dtype("float32")))
    # Broken off after every step, through JSON, it is the same to the last bit.
    broken, outcome = Breaking(every=1), None
    while outcome is None:
        try:
            outcome = fit(snapshots=broken)
        except Broken:
            continue
    assert_same(outcome, whole)
    assert eqx.tree_equal(outcome.learned, whole.learned)
    shared = fit(chunk_size=8, mesh=data_mesh(jax.devices()[:2]))
    np.testing.assert_array_equal(shared.assignment.clusters, whole.assignment.clusters)
    chex.assert_trees_all_close(shared.learned, whole.learned, rtol=1e-4, atol=1e-5)


@eqx.filter_jit
def one_more_pass(solver: Lloyd, learned: Learned, batch: Batch) -> LloydState:
    state = solver.init(learned.clusters, learned.objective)
    memory = solver.init_memory(len(batch.weight), K, jnp.dtype("float32"))
    return solver.end_pass(solver.step(state, batch, memory)[0])


whole_run = eqx.filter_jit(compiled_lloyd)


def test_fuzzy_has_its_slope_where_a_score_is_zero() -> None:
    with jax.enable_x64(True):
        scores, fuzzy = jnp.array([0.0, 1.0, 2.0]), Fuzzy(jnp.asarray(2.0))
        slope, curvature = (jax.jit(of(fuzzy))(scores) for of in (jax.grad, jax.hessian))
        np.testing.assert_allclose(slope, [1.0, 0.0, 0.0], atol=1e-12)
        assert np.isfinite(curvature).all()
        inside = jnp.array([0.3, 1.0, 2.0])
        step = 1e-5

        @jax.jit
        def loss(m: Array) -> Array:
            return Fuzzy(m)(inside)

        slope = jax.jit(jax.grad(loss))(jnp.asarray(1.7))
        expected = (float(loss(1.7 + step)) - float(loss(1.7 - step))) / (2 * step)
        assert float(slope) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("reduction", [Entropic(0.05), Entropic(200.0), Fuzzy(), Annealed(20.0)])
def test_soft_clusters_are_not_at_rest_while_prototypes_move(reduction: AbstractReduction) -> None:
    samples = points()
    batch = Batch(jnp.asarray(samples), jnp.ones(len(samples)))
    start = np.arange(len(samples), dtype=np.int32) % K
    solver = of_points(reduction)
    result = whole_run(solver, batch, start, num_clusters=K, max_passes=200)
    assert bool(result.converged)
    after = one_more_pass(solver, result.learned, batch).learned
    np.testing.assert_allclose(
        after.clusters.prototype, result.learned.clusters.prototype, atol=5e-3
    )
    if isinstance(reduction, Annealed):
        assert float(result.learned.objective.temperature) == pytest.approx(0.01)
    host = fitted(reduction, samples, tolerance=0.0)
    assert host.status is Status.ASSIGNMENTS
    assert abs(host.history[-1] - host.history[-2]) <= 1e-6 * abs(host.history[-1])


@pytest.mark.slow
def test_soft_memberships_remember_how_every_candidate_is_aligned(key: jax.Array) -> None:
    images, transform = blobs(12), Affine()
    solver = Lloyd(
        TransformedDistance(transform),
        Descent((Stage(2),), candidates=None),
        UnitNormImages(),
        Entropic(0.2),
    )
    memory = solver.init_memory(4, K, jnp.dtype("float32"))
    assert memory.params.shape == (4, K, transform.num_params)
    plan = LloydPlan(K, (0.2,), 1, Stopping(12, 0.0), SplitMerge(rounds=0))
    outcome = run((LloydProblem(solver, plan),), Data(images, None, 16), key)
    assert outcome.status is not Status.ROSE


def test_what_learns_by_gradients_is_refused() -> None:
    with pytest.raises(ValueError, match="MixtureLikelihood learns by gradient steps: take it to"):
        of_points(MixtureLikelihood())


class Apart(Manhattan):
    """A distance that names a family."""

    @property
    def family(self) -> UnitNormImages:
        return UnitNormImages()


def test_a_distance_names_the_family_of_its_prototypes() -> None:
    def family(distance: AbstractDistance) -> Any:
        return Lloyd(TransformedDistance(Affine(), distance), NoAlignment()).family

    assert isinstance(family(SquaredEuclidean()), MeanImages)
    assert isinstance(family(Apart()), UnitNormImages)
    given = Lloyd(TransformedDistance(Affine(), Apart()), NoAlignment(), MeanImages())
    assert isinstance(given.family, MeanImages)
    with pytest.raises(ValueError, match="name no prototype family; give one, such as MeanImages"):
        family(Manhattan())


def test_a_family_that_does_not_descend_stops_the_run(key: jax.Array) -> None:
    # Skewed samples: their means are no medians.
    rng = np.random.default_rng(3)
    samples = (rng.exponential(size=(80, 1, 1, 3)) ** 3).astype(np.float32)
    energy = TransformedDistance(Identity(), Manhattan())
    with pytest.raises(AssertionError, match="does not raise the loss"):
        check_family(
            MeanImages(), energy, key=key, draw=lambda k: jax.random.exponential(k, (1, 1, 3)) ** 3
        )
    solver = Lloyd(energy, NoAlignment(), MeanImages())
    plan = LloydPlan(K, (), 1, Stopping(40, 0.0), SplitMerge(rounds=0))
    outcome = run((LloydProblem(solver, plan),), Data(samples, None, 32), key)
    assert outcome.status is Status.ROSE
    assert list(outcome.history) == sorted(outcome.history, reverse=True)
    own = np.asarray(outcome.learned.clusters.prototype)[outcome.assignment.clusters]
    np.testing.assert_allclose(outcome.loss, np.sum(np.abs(samples - own)), rtol=1e-5)


@pytest.mark.slow
def test_a_whole_run_keeps_the_pass_before_the_loss_rose() -> None:
    rng, rose = np.random.default_rng(3), 0
    solver = Lloyd(TransformedDistance(Identity(), Manhattan()), NoAlignment(), MeanImages())
    plan = LloydPlan(K, (), 1, Stopping(40, 0.0), SplitMerge(rounds=0))
    whole = jax.jit(functools.partial(compiled_lloyd, solver, num_clusters=K))
    for _ in range(4):
        samples = (rng.exponential(size=(80, 1, 1, 3)) ** 3).astype(np.float32)
        given = rng.integers(0, K, 80).astype(np.int32)
        problem = LloydProblem(solver, plan, ("assignments", given))
        host = run((problem,), Data(samples, None, 80), jax.random.key(0))
        result = whole(Batch(jnp.asarray(samples), jnp.ones(80)), jnp.asarray(given))
        assert bool(result.risen) == (host.status is Status.ROSE)
        assert not (bool(result.converged) and bool(result.risen))
        np.testing.assert_allclose(result.loss, host.loss, rtol=1e-5)
        np.testing.assert_array_equal(result.cluster, host.assignment.clusters)
        chex.assert_trees_all_close(result.learned, host.learned, rtol=1e-5)
        rose += bool(result.risen)
    assert rose
    given = Batch(jnp.asarray(samples), jnp.ones(80)), jnp.asarray(given)
    fixed = compiled_lloyd(solver, *given, num_clusters=K, max_passes=20, fixed=True)
    assert bool(fixed.risen)
    assert int(fixed.passes) == 20


def affine_lloyd() -> tuple[Lloyd, Batch]:
    """Three pictures, four affine copies of each, in the precision of the day."""
    transform = Affine()
    base = [smooth_image(key, 16, 16) for key in jax.random.split(jax.random.key(5), K)]
    moves = 0.1 * jax.random.normal(jax.random.key(7), (12, transform.num_params))
    images = jnp.stack([transform(move, base[i % K]) for i, move in enumerate(moves)])
    images = jax.vmap(UnitNormImages().normalise)(images)
    solver = Lloyd(TransformedDistance(transform), Descent((Stage(30),)), UnitNormImages())
    return solver, Batch(images, jnp.ones(12, images.dtype))


@pytest.mark.slow
def test_gradient_of_a_fit_by_a_penalty_weight_is_that_of_differences() -> None:
    with jax.enable_x64(True):
        solver, batch = affine_lloyd()

        def last_loss(weight: Array) -> Array:
            start = clusters_of(solver, batch.samples[:K], weight[None])
            fit = compiled_lloyd(solver, batch, start, num_clusters=K, max_passes=40, fixed=True)
            return fit.loss

        last_loss = jax.jit(last_loss)
        at, step = jnp.asarray(1.0), 1e-3
        slope = jax.jit(jax.grad(last_loss))(at)
        expected = (last_loss(at + step) - last_loss(at - step)) / (2 * step)
    np.testing.assert_allclose(slope, expected, rtol=1e-2)


@pytest.mark.slow
def test_unrolled_and_envelope_agree_where_the_search_has_ended() -> None:
    with jax.enable_x64(True):
        solver, batch = affine_lloyd()

        def slope(solver: Lloyd) -> Array:
            def loss(prototype: Array) -> Array:
                clusters = clusters_of(solver, batch.samples[:K], (0.4,))
                clusters = eqx.tree_at(lambda c: c.prototype, clusters, prototype)
                memory = solver.init_memory(12, K, batch.weight.dtype)
                result = solver.assign(Learned(clusters), batch.samples, memory)
                return jnp.sum(result.energy[:, 0])

            return jax.jit(jax.grad(loss))(batch.samples[:K])

        envelope = slope(solver)
        unrolled = slope(Lloyd(solver.energy, solver.aligner, solver.family, adjoint="unrolled"))
    np.testing.assert_allclose(envelope, unrolled, atol=0.02 * float(np.max(np.abs(envelope))))


@pytest.mark.slow
def test_unit_norm_has_finite_gradients_at_blank_images() -> None:
    family, blank = UnitNormImages(), jnp.zeros((4, 4, 1))
    assert np.isfinite(jax.grad(lambda x: jnp.sum(family.normalise(x)))(blank)).all()
    image = jnp.asarray(blobs(2))

    def updated(images: Array, weight: Array) -> Array:
        member = jnp.asarray([[1.0, 0.0], [1.0, 0.0]])
        pixel = 0.5 + weight * jnp.arange(8.0)[None, :, None, None] / 8 * jnp.ones((2, 1, 8, 1))
        sums = family.statistics(images, pixel, member)
        return jnp.sum(family.update(sums, jnp.zeros((2, *images.shape[1:]))) ** 3)

    slope = jax.grad(updated)(image, jnp.asarray(1.0))
    assert np.isfinite(slope).all()
    with jax.enable_x64(True):
        wide = jnp.asarray(np.asarray(image, np.float64))
        one = jnp.asarray(1.0)
        slope = jax.grad(updated, argnums=1)(wide, one)
        step = 1e-4
        expected = (updated(wide, one + step) - updated(wide, one - step)) / (2 * step)
        np.testing.assert_allclose(slope, expected, rtol=1e-2)


@pytest.mark.slow
def test_whole_fits_map_over_bootstrap_resamples() -> None:
    samples = jnp.asarray(points(n=90))
    solver = Lloyd(TransformedDistance(Identity(), SquaredEuclidean()), NoAlignment(), MeanImages())

    def fit(key: Array) -> Array:
        draws = jax.random.randint(key, (90,), 0, 90)
        weight = jnp.zeros(90).at[draws].add(1.0)
        return compiled_lloyd(solver, Batch(samples, weight), key, num_clusters=K).cluster

    clusters = np.asarray(jax.jit(jax.vmap(fit))(jax.random.split(jax.random.key(0), 16)))
    together = np.mean(clusters[:, :, None] == clusters[:, None, :], axis=0)
    kind = np.arange(90) % 3
    same = kind[:, None] == kind[None]
    assert together[same].mean() > 0.85
    assert together[~same].mean() < 0.15


@pytest.mark.slow
def test_moves_follow_what_is_trimmed() -> None:
    # Four groups and a tenth of outliers, to which a start may give a cluster of their own.
    rng, places = np.random.default_rng(0), np.array([[0, 0], [12, 0], [0, 12], [12, 12]])
    points = rng.normal(size=(80, 2)) * 0.5 + places[np.arange(80) % 4]
    outliers = np.array([[-40.0, -40.0]]) + rng.normal(size=(8, 2)) * 6
    samples = np.concatenate([points, outliers])[:, None, None]
    energy, aligner = TransformedDistance(Identity()), NoAlignment(candidates=4)
    solver = Lloyd(energy, aligner, reduction=Trimmed(0.12, jnp.asarray(1e6)))
    model = Clustering(4, solver, seeding="random", num_restarts=1)
    for seed in (0, 2):
        groups = model.fit(samples, key=jax.random.key(seed)).assignments[:80].reshape(20, 4)
        assert (groups == groups[0]).all()
        assert len(set(groups[0])) == 4


class Slow(Annealed):
    """Falls by a thousandth in two passes."""

    def update(self, statistics: None) -> "Slow":
        return Slow(jnp.maximum(0.9995 * self.temperature, 0.01))


def test_a_fit_waits_for_a_reduction_that_changes_slowly() -> None:
    solver = Lloyd(TransformedDistance(Identity()), NoAlignment(), reduction=Slow(0.0102))
    model = Clustering(3, solver, max_passes=60, num_restarts=1, split_merge=False)
    result = model.fit(points(outliers=0), key=jax.random.key(0))
    assert float(result.outcome.learned.objective.temperature) == pytest.approx(0.01)
    assert 40 < len(result.history) < 60


def test_removing_a_soft_cluster_costs_what_the_others_lack() -> None:
    samples, temperature = blobs(20, seed=1), 2.0
    solver = Lloyd(
        TransformedDistance(Identity()), NoAlignment(), MeanImages(), Entropic(temperature)
    )
    state = solver.init(clusters_of(solver, samples[:4], ()))
    memory = solver.init_memory(20, 4, jnp.dtype("float32"))
    batch = Batch(jnp.asarray(samples), jnp.ones(20))
    tally = eqx.filter_jit(solver.step)(state, batch, memory)[0].tally
    squared = ((samples[:, None] - samples[None, :4]) ** 2).sum(axis=(2, 3, 4))

    def soft(energies: np.ndarray) -> np.ndarray:
        return -temperature * scipy.special.logsumexp(-energies / temperature, axis=1)

    best = squared.argmin(axis=1)
    others = np.stack([np.delete(row, k) for row, k in zip(squared, best, strict=True)])
    cost = np.bincount(best, soft(others) - soft(squared), minlength=4)
    np.testing.assert_allclose(tally.margin, cost, rtol=1e-4)


def test_a_run_whose_loss_rose_has_the_losses_before(key: jax.Array) -> None:
    rng = np.random.default_rng(3)
    samples = (rng.exponential(size=(80, 1, 1, 3)) ** 3).astype(np.float32)
    rows, losses = samples.reshape(80, 3), []
    means = rows[:K]
    while len(losses) < 2 or losses[-1] <= losses[-2]:
        distances = np.abs(rows[:, None] - means[None]).sum(axis=2)
        losses.append(distances.min(axis=1).sum())
        own = distances.argmin(axis=1)
        means = np.stack([rows[own == k].mean(axis=0) for k in range(K)])
    solver = Lloyd(TransformedDistance(Identity(), Manhattan()), NoAlignment(), MeanImages())
    plan = LloydPlan(K, (), 1, Stopping(40, 0.0), SplitMerge(rounds=0))
    problem = LloydProblem(solver, plan, ("prototypes", jnp.asarray(samples[:K])))
    outcome = run((problem,), Data(samples, None, 32), key)
    assert outcome.status is Status.ROSE
    np.testing.assert_allclose(outcome.history, losses[:-1], rtol=1e-5)


def test_a_state_that_stays_infinite_has_converged() -> None:
    far, near = (jnp.array([1.0, end]) for end in (jnp.inf, 2.0))
    assert has_converged(far, far)
    assert not has_converged(far, near)
    assert not has_converged(near, far)
