"""DTI K-means and its kin: what they find, how they go on, and what they refuse."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, PyTree

import diffclust
from diffclust import metrics
from diffclust.models import (
    MODELS,
    AbstractGradientModel,
    DTIGaussianMixture,
    DTIKMeans,
    GaussianMixture,
    Result,
    Training,
    TransformationInvariantKMeans,
    warped_prototypes,
)
from diffclust.models.gradient import mixture
from diffclust.parallel import Data
from diffclust.prototypes import Learned
from diffclust.solvers import FitError, Progress, Status, gradient_problem
from diffclust.solvers.gradient import BatchOrder
from diffclust.storage.snapshots import SnapshotFolder

KEY = jax.random.key(0)
LABELS = np.arange(60) % 3


def bars(channels: int = 1) -> np.ndarray:
    """Rings, crosses and bars, each shifted by up to two pixels: `(60, 12, 12, channels)`."""
    rng = np.random.default_rng(0)
    x, y = np.meshgrid(np.arange(12) - 5.5, np.arange(12) - 5.5)
    images = []
    for label in LABELS:
        u, v = x - rng.uniform(-1.5, 1.5), y - rng.uniform(-1.5, 1.5)
        radius = np.hypot(u, v)
        drawn = {
            0: np.abs(radius - 3.0),
            1: np.where(radius < 4.5, np.minimum(np.abs(u), np.abs(v)), 9.0),
            2: np.where(np.abs(v) < 4.5, np.abs(u - v / 2), 9.0),
        }[int(label)]
        images.append(np.exp(-(drawn**2)))
    return np.repeat(np.stack(images)[..., None], channels, axis=3).astype(np.float32)


IMAGES = bars()
BRIEF = Training(steps=(20, 150, 30), batch_size=20, learning_rate=2e-3)
SMALL = {
    "dti-kmeans": DTIKMeans(3, transforms="aff", training=BRIEF),
    "dti-gmm": DTIGaussianMixture(3, transforms="aff", training=BRIEF, initial_variance=0.1),
    "ti-kmeans": TransformationInvariantKMeans(3, training=BRIEF, align_steps=4),
    "gmm": GaussianMixture(3, training=Training(steps=(100, 30), batch_size=20)),
}
FITTED = {**SMALL, "dti-kmeans": dataclasses.replace(SMALL["dti-kmeans"], backbone="strided")}
"""What is fitted once; the smaller network compiles in less."""

ORACLE = jnp.asarray(IMAGES[:3])
"""One image of each kind."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.slow if name in ("ti-kmeans", "dti-gmm") else [])
        for name in SMALL
    ],
)
def fitted(request: pytest.FixtureRequest) -> Result:
    return FITTED[request.param].fit(IMAGES, key=KEY, prototypes=ORACLE)


def test_every_model_is_here() -> None:
    named = {name for name, m in MODELS.items() if issubclass(m, AbstractGradientModel)}
    assert named == set(SMALL)


def test_result_is_whole(fitted: Result) -> None:
    outcome = fitted.outcome
    assert fitted.prototypes.shape == (3, 12, 12, 1)
    # Windows of 50 steps, phase by phase, and the final loss.
    assert len(outcome.history) == (4 if fitted.model.method == "gmm" else 6)
    np.testing.assert_array_equal(
        outcome.extras["phases"], [0, 2] if fitted.model.method == "gmm" else [0, 1, 4]
    )
    responsibilities = outcome.extras["responsibilities"]
    np.testing.assert_allclose(responsibilities.sum(1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(responsibilities.argmax(1), fitted.assignments)
    assert np.all(np.isfinite(fitted.distances))
    assert np.all(fitted.margins >= 0)
    if fitted.model.method in ("dti-kmeans", "ti-kmeans"):
        np.testing.assert_allclose(fitted.distances.sum(), fitted.loss, rtol=1e-5)


def test_shifted_shapes_are_found(fitted: Result) -> None:
    result = metrics.scores(LABELS, fitted.assignments)["acc"]
    assert result > {"dti-kmeans": 0.9, "gmm": 0.34}.get(fitted.model.method, 0.75)


def test_new_images_go_where_the_old_ones_went(fitted: Result) -> None:
    result = fitted.predict(IMAGES)
    np.testing.assert_array_equal(result.clusters, fitted.assignments)
    np.testing.assert_allclose(result.distances, fitted.distances, rtol=1e-4, atol=1e-4)


def test_saved_and_loaded(fitted: Result, tmp_path: Path) -> None:
    diffclust.save(tmp_path / "model", fitted)
    again = diffclust.load(tmp_path / "model")
    assert again.model == fitted.model
    chex.assert_trees_all_equal(again.outcome.learned, fitted.outcome.learned)
    first, second = again.predict(IMAGES[:7]), fitted.predict(IMAGES[:7])
    for field in dataclasses.fields(first):
        np.testing.assert_array_equal(getattr(first, field.name), getattr(second, field.name))


def test_moved_prototypes_are_reconstructions(fitted: Result) -> None:
    assignment = fitted.outcome.assignment
    moved = warped_prototypes(fitted, assignment.clusters, assignment.params)
    assert moved.shape == IMAGES.shape
    if fitted.model.method in ("dti-kmeans", "ti-kmeans"):
        squared = np.sum((moved - IMAGES) ** 2, axis=(1, 2, 3))
        np.testing.assert_allclose(squared, fitted.distances, rtol=1e-3, atol=1e-4)
    still = warped_prototypes(fitted, assignment.clusters, assignment.params, transforms=0)
    np.testing.assert_allclose(still, fitted.prototypes[assignment.clusters], atol=1e-6)
    if assignment.params.shape[1] == 0:
        with pytest.raises(ValueError, match="moves nothing"):
            fitted.align(IMAGES, assignment.params)
    else:
        # Moved back, images are where the prototypes are.
        aligned = fitted.align(IMAGES, assignment.params)
        apart = [np.sum((each - still) ** 2) for each in (aligned, IMAGES)]
        assert apart[0] < 0.7 * apart[1], apart
    with pytest.raises(ValueError, match="params must have shape"):
        warped_prototypes(fitted, assignment.clusters, assignment.params[:5])
    for clusters in (assignment.clusters - 1, assignment.clusters + 1, assignment.clusters / 2.0):
        with pytest.raises(ValueError, match="clusters must"):
            warped_prototypes(fitted, clusters, assignment.params)
    with pytest.raises(ValueError, match="transforms must be at least 0"):
        warped_prototypes(fitted, assignment.clusters, assignment.params, transforms=-1)


def test_same_key_same_result() -> None:
    training = Training(steps=(5, 20, 5), batch_size=20)
    model = dataclasses.replace(FITTED["dti-kmeans"], training=training)
    one, other = (model.fit(IMAGES, key=jax.random.key(3)) for _ in range(2))
    assert one.history == other.history
    np.testing.assert_array_equal(one.prototypes, other.prototypes)


def test_starts_from_given_assignments() -> None:
    training = Training(steps=(1, 0, 0), batch_size=60)
    model = dataclasses.replace(FITTED["dti-kmeans"], training=training)
    result = model.fit(IMAGES, key=KEY, assignments=LABELS)
    means = np.stack([IMAGES[k == LABELS].mean(0) for k in range(3)])
    np.testing.assert_allclose(result.prototypes, means, atol=2e-3)  # one step of Adam away


@pytest.mark.slow
def test_least_loss_of_the_restarts_is_kept() -> None:
    model = DTIKMeans(
        3, transforms="", num_restarts=3, training=Training(steps=(15, 5), batch_size=20)
    )
    result = model.fit(IMAGES, key=KEY)
    assert len(result.outcome.restarts) == 3
    assert len(set(result.outcome.restarts)) > 1
    assert result.loss == pytest.approx(min(result.outcome.restarts), rel=1e-6)


@pytest.mark.slow
def test_weights_of_zero_leave_images_out() -> None:
    weight = np.where(LABELS < 2, 1.0, 0.0)
    model = DTIKMeans(2, transforms="aff", training=BRIEF)
    result = model.fit(IMAGES, key=KEY, sample_weight=weight, prototypes=IMAGES[:2])
    kept = LABELS < 2
    assert metrics.scores(LABELS[kept], result.assignments[kept])["acc"] > 0.9
    np.testing.assert_allclose(result.loss, result.distances[kept].sum(), rtol=1e-4)


def test_images_of_weight_zero_are_neither_seeds_nor_part_of_a_mean() -> None:
    model = GaussianMixture(3, training=Training(steps=(1, 0), batch_size=60, learning_rate=1e-9))
    weight = np.where(np.arange(60) < 6, np.arange(60) + 1.0, 0.0)
    seeded = model.fit(IMAGES, key=KEY, sample_weight=weight)
    nearest = np.abs(seeded.prototypes[:, None] - IMAGES).max(axis=(2, 3, 4)).argmin(axis=1)
    assert nearest.max() < 6
    weight[LABELS == 2] = 0
    result = model.fit(IMAGES, key=KEY, assignments=LABELS, sample_weight=weight)
    groups = [k == LABELS for k in range(3)]
    means = [np.average(IMAGES[g], 0, weight[g]) for g in groups[:2]] + [IMAGES[groups[2]].mean(0)]
    np.testing.assert_allclose(result.prototypes, means, atol=1e-5)


def test_mixtures_refine_all_clusters() -> None:
    for kind, followed in ((DTIGaussianMixture, 5), (DTIKMeans, 3)):
        aligner = kind(5, transforms="aff", refine_steps=2).aligner(1, 1, final=True)
        assert aligner.num_candidates(5) == followed
    own = DTIKMeans(5, transforms="aff", refine_steps=2, own_objective=mixture(0.25, 0.25))
    assert own.aligner(1, 1, final=True).num_candidates(5) == 5


@pytest.mark.slow
def test_a_model_of_single_precision_predicts_in_double(tmp_path: Path) -> None:
    training = Training(steps=(2, 4, 1), batch_size=20)
    result = dataclasses.replace(FITTED["dti-kmeans"], training=training).fit(IMAGES, key=KEY)
    diffclust.save(tmp_path / "model", result)
    expected = result.predict(IMAGES)
    with jax.enable_x64(True):
        actual = diffclust.load(tmp_path / "model").predict(IMAGES)
    np.testing.assert_array_equal(actual.clusters, expected.clusters)
    np.testing.assert_allclose(actual.distances, expected.distances, rtol=1e-3)


@pytest.mark.slow
def test_refining_lowers_distances() -> None:
    plain = SMALL["dti-kmeans"]
    # Half as many steps lower the loss by 3 or by 6 %: at pixel centres, where a prediction near
    # the identity reads, rounding chooses the side of the derivative of the first steps.
    refining = dataclasses.replace(plain, refine_steps=12)
    one, other = (m.fit(IMAGES, key=KEY, prototypes=ORACLE) for m in (plain, refining))
    assert other.loss < 0.95 * one.loss
    assert np.all(other.distances <= one.distances * (1 + 1e-4) + 1e-5)


@pytest.mark.slow
def test_a_short_list_of_all_clusters_changes_nothing() -> None:
    steps = {"steps": (10, 10, 20, 5), "batch_size": 20}
    whole, all_three, two = (
        DTIKMeans(3, transforms="aff-tps", training=Training(shortlist=kept, **steps)).fit(
            IMAGES, key=KEY, prototypes=ORACLE
        )
        for kept in (None, 3, 2)
    )
    np.testing.assert_array_equal(all_three.prototypes, whole.prototypes)
    np.testing.assert_allclose(two.loss, whole.loss, rtol=0.1)


@pytest.mark.slow
def test_colour_images_and_other_shapes() -> None:
    images = bars(3)[:, 1:] * np.asarray([1.0, 0.5, 0.2], np.float32)
    training = Training(steps=(10, 10, 10, 5), batch_size=16)
    model = DTIKMeans(3, transforms="col-proj", window=0.4, training=training)
    result = model.fit(images, key=KEY)
    assert result.prototypes.shape == (3, 11, 12, 3)
    assert result.outcome.assignment.params.shape == (60, 6 + 8)


class Interrupted(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dti-kmeans", "dti-gmm"])
def test_goes_on_where_it_stopped_bit_for_bit(method: str, tmp_path: Path) -> None:
    model = dataclasses.replace(
        SMALL[method],
        num_restarts=2,
        training=Training(steps=(60, 60, 60), batch_size=20),
    )
    whole = model.fit(IMAGES, key=KEY)

    def open_folder() -> SnapshotFolder:
        return SnapshotFolder(tmp_path / "states", run={"method": method}, every=0.0)

    for stop in (60, 110, 300):  # windows of 50: in a phase, after one, in the second restart

        def interrupt(progress: Progress, stop: int = stop) -> None:
            if progress.stage == "step" and progress.restart * 180 + progress.done >= stop:
                raise Interrupted

        with open_folder() as folder, pytest.raises(Interrupted):
            model.fit(IMAGES, key=KEY, snapshots=folder, callback=interrupt)
    start = []
    with open_folder() as folder:
        assert "snapshot" in (folder.last() or "")
        resumed = model.fit(
            IMAGES, key=KEY, snapshots=folder, callback=lambda p: start.append((p.restart, p.done))
        )
    assert start[0][0] == 1
    assert resumed.history == whole.history
    assert resumed.outcome.restarts == whole.outcome.restarts
    chex.assert_trees_all_equal(resumed.outcome.learned, whole.outcome.learned)
    np.testing.assert_array_equal(resumed.distances, whole.distances)


class InMemory:
    """Snapshots that JSON has been through, as in a folder; `most` is how many are taken."""

    def __init__(self, most: int = 10**6) -> None:
        self.saved: list[tuple[Any, str]] = []
        self.most = most

    def save(self, state: Callable[[], tuple[Any, dict[str, Any]]]) -> None:
        if len(self.saved) < self.most:
            arrays, about = state()
            self.saved.append((arrays, json.dumps(about)))

    def latest(self, like: Callable[[dict[str, Any]], Any]) -> tuple[Any, dict[str, Any]] | None:
        if not self.saved:
            return None
        arrays, about = self.saved[-1]
        expected = like(json.loads(about))
        assert jax.tree.structure(expected) == jax.tree.structure(arrays)
        assert [a.shape for a in jax.tree.leaves(expected)] == [
            a.shape for a in jax.tree.leaves(arrays)
        ]
        return arrays, json.loads(about)

    def last(self) -> str | None:
        return None


STILL = DTIKMeans(3, transforms="", training=Training(steps=(30, 10), batch_size=20))
"""The fastest fit there is."""


@pytest.mark.slow
def test_why_the_last_phase_ended_is_remembered() -> None:
    training = Training(steps=(400, 400), tolerance=0.99, batch_size=20)
    model, states = dataclasses.replace(STILL, training=training), InMemory()
    whole = model.fit(IMAGES, key=KEY, snapshots=states)
    assert whole.outcome.status is Status.LOSS
    reported: list[Progress] = []
    # Nothing is left to do but to assign the images.
    resumed = model.fit(IMAGES, key=KEY, snapshots=states, callback=reported.append)
    assert not [report for report in reported if report.stage == "step"]
    assert resumed.outcome.status is Status.LOSS
    assert STILL.fit(IMAGES, key=KEY).outcome.status is Status.MAX_PASSES


@pytest.mark.parametrize("restarts", [1, 2])
def test_seconds_of_all_processes_count(restarts: int) -> None:
    # Broken off in the first phase of the last run.
    states = InMemory(most=2 * restarts - 1)
    model = dataclasses.replace(STILL, num_restarts=restarts)
    model.fit(IMAGES, key=KEY, snapshots=states)
    arrays, about = states.saved[-1]
    states.saved[-1] = (arrays, json.dumps({**json.loads(about), "seconds": 1e4}))
    resumed = model.fit(IMAGES, key=KEY, snapshots=states)
    assert 1e4 < resumed.outcome.seconds < 2e4


def test_samples_are_assigned_once_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assign, seen = gradient_problem.assign_softly, []

    def counted(*arguments, **named):
        seen.append(arguments)
        return assign(*arguments, **named)

    monkeypatch.setattr(gradient_problem, "assign_softly", counted)
    model, reported = dataclasses.replace(STILL, num_restarts=3), []
    whole = model.fit(IMAGES, key=KEY, callback=reported.append)
    assert len(seen) == 3
    assert [p.stage for p in reported].count("predict") == 1
    assert reported[-1].stage == "predict"
    assert whole.loss == min(whole.outcome.restarts)


def test_the_best_run_of_an_earlier_process_is_assigned_anew() -> None:
    model = dataclasses.replace(STILL, num_restarts=3)
    for seed in range(10):
        key, states = jax.random.key(seed), InMemory(most=5)
        whole = model.fit(IMAGES, key=key, snapshots=states)
        losses = whole.outcome.restarts
        if losses[2] > min(losses):
            break
    assert losses[2] > min(losses)
    resumed = model.fit(IMAGES, key=key, snapshots=states)
    assert resumed.outcome.restarts == losses
    assert resumed.history == whole.history
    np.testing.assert_array_equal(resumed.distances, whole.distances)
    np.testing.assert_array_equal(
        resumed.outcome.extras["responsibilities"], whole.outcome.extras["responsibilities"]
    )


@pytest.mark.slow
def test_a_memory_is_kept_where_params_are_minimised() -> None:
    for name in ("dti-kmeans", "ti-kmeans"):
        states = InMemory()
        model = dataclasses.replace(
            SMALL[name], training=Training(steps=(50, 50, 50), batch_size=20)
        )
        model.fit(IMAGES, key=KEY, snapshots=states)
        running = [arrays for arrays, _ in states.saved if arrays.run.state is not None]
        kept = [arrays.run.memory is not None for arrays in running]
        # The first phase moves nothing; at its end the memory is that of the next one.
        assert kept == ([True] * 3 if name == "ti-kmeans" else [False] * 3)


def test_states_of_another_fit_are_refused(tmp_path: Path) -> None:
    with SnapshotFolder(tmp_path / "states", run={"seed": 0}):
        pass
    with pytest.raises(ValueError, match="had seed 0, not 1"):
        SnapshotFolder(tmp_path / "states", run={"seed": 1})


@pytest.mark.slow
def test_a_damaged_state_is_passed_over(tmp_path: Path) -> None:
    model = SMALL["dti-kmeans"]
    whole = model.fit(IMAGES, key=KEY)
    with SnapshotFolder(tmp_path / "states", run={}, every=0.0) as folder:
        model.fit(IMAGES, key=KEY, snapshots=folder)
    newest = max((tmp_path / "states" / "states").iterdir(), key=lambda p: int(p.name))
    for path in newest.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\0" * min(10, path.stat().st_size))
    with (
        SnapshotFolder(tmp_path / "states", run={}, every=1e9) as folder,
        pytest.warns(UserWarning, match="cannot be read"),
    ):
        again = model.fit(IMAGES, key=KEY, snapshots=folder)
    np.testing.assert_array_equal(again.prototypes, whole.prototypes)


def test_a_loss_that_is_no_number_stops_the_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(steps=(60, 1), batch_size=20, learning_rate=1e30)
    with pytest.raises(FitError, match=r"step \d+ of restart 0, phase \d+: the loss"):
        dataclasses.replace(STILL, training=training).fit(IMAGES, key=KEY)
    read, seen = gradient_problem._window_loss, []

    def broken(*arguments):
        seen.append(arguments)
        if len(seen) == 3:
            raise FitError("step 120: not a number")
        return read(*arguments)

    monkeypatch.setattr(gradient_problem, "_window_loss", broken)
    model = dataclasses.replace(STILL, training=Training(steps=(120, 20), batch_size=20))
    with (
        SnapshotFolder(tmp_path / "states", run={}, every=0.0) as folder,
        pytest.raises(FitError, match="step 120.*The last good state is snapshot 2 in"),
    ):
        model.fit(IMAGES, key=KEY, snapshots=folder)


def test_order_of_samples() -> None:
    stream = BatchOrder((10,), 4, KEY)
    seen = np.concatenate([stream.batch(step) for step in range(10)])
    for start in range(0, 40, 10):
        assert sorted(seen[start : start + 10]) == list(range(10))
    np.testing.assert_array_equal(BatchOrder((10,), 4, KEY).batch(7), seen[28:32])
    assert not np.array_equal(seen[:10], seen[10:20])


@pytest.mark.slow
def test_a_phase_ends_where_the_loss_stands_still() -> None:
    training = Training(steps=(2000, 2000), tolerance=0.05, batch_size=20)
    model = DTIKMeans(3, transforms="", training=training)
    states = InMemory()
    model.fit(IMAGES, key=KEY, snapshots=states)
    positions = [json.loads(about)["position"] for _, about in states.saved]
    assert positions[-2]["run"]["phase"] == 2
    assert len(positions) < 60


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"transforms": "aff-blur"}, "names joined by hyphens, such as aff-morpho-tps"),
        ({"transforms": "aff--tps"}, "names joined by hyphens"),
        ({"window": 0.0}, "window must be positive"),
        ({"refine_steps": -1}, "refine_steps must be at least 0"),
        ({"num_restarts": 0}, "num_restarts"),
        ({"deformation_penalty": -1.0}, "deformation_penalty"),
        ({"deformation_penalty": np.inf}, "deformation_penalty must be finite, not inf"),
    ],
)
def test_settings_that_mean_nothing(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DTIKMeans(3, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"least_share": 1.0}, "least_share must be below 1"),
        ({"max_steps": 3}, "max_steps"),
        ({"tolerance": -0.1}, "tolerance"),
        ({"batch_size": 0}, "batch_size"),
        ({"shortlist": 1}, "shortlist"),
        ({"steps": (1, -2)}, "steps"),
    ],
)
def test_training_that_means_nothing(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Training(**settings)


@pytest.mark.parametrize(
    ("model", "images", "message"),
    [
        (DTIKMeans(3, transforms="morpho"), bars(3), "no rule for images of 3 channels"),
        (DTIKMeans(3, transforms="tps", landmarks=(14, 14)), IMAGES, "landmarks"),
        (DTIKMeans(3, training=Training(batch_size=61)), IMAGES, "batch_size must be at most"),
        (DTIKMeans(3, training=Training(steps=(5, 5))), IMAGES, "steps must be 5 numbers"),
        (DTIKMeans(61), IMAGES, "61"),
        (DTIKMeans(3, training=Training(steps=(0, 0, 0, 0, 0))), IMAGES, "must not all be 0"),
        (
            DTIGaussianMixture(3, training=Training(steps=(5, 5, 5, 0, 0))),
            IMAGES,
            "never be learned",
        ),
    ],
)
def test_images_it_is_not_for(
    model: AbstractGradientModel, images: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model.fit(images, key=KEY)


def test_variances_must_be_positive() -> None:
    with pytest.raises(ValueError, match="initial_variance must be positive"):
        GaussianMixture(3, initial_variance=0.0)
    with pytest.raises(ValueError, match="min_deviation must be positive"):
        DTIGaussianMixture(3, min_deviation=-1.0)


def test_mixtures_begin_as_kmeans() -> None:
    """Until all transforms are learned, variances are fixed, and gradients those of K-means."""
    images = jnp.asarray(IMAGES)

    def gradient(model: AbstractGradientModel, transforms: int) -> PyTree:
        solver = model.solver(transforms, 1)

        def loss(learned: Learned) -> Array:
            return jnp.sum(solver.losses(learned, images, solver.assign(learned, images, None)))

        learned = model.init(images[:3], KEY)
        return eqx.filter_jit(eqx.filter_grad(loss))(learned).clusters.prototype

    model = DTIGaussianMixture(3, transforms="aff", followed=1)
    first, last = gradient(model, 0), gradient(model, 1)
    variance = model.initial_variance + model.min_deviation**2
    of_kmeans = gradient(DTIKMeans(3, transforms="aff"), 0)
    np.testing.assert_allclose(first.mean, of_kmeans / (2 * variance), rtol=1e-4, atol=1e-4)
    assert np.all(first.deviation == 0.0)
    assert np.any(last.deviation != 0.0)
    assert not DTIGaussianMixture.as_published(3).energy(1, 0).fixed_variances


@pytest.mark.parametrize(
    ("transforms", "start", "steps"),
    [
        ("col-aff-tps", "spatial", {2: 632, 3: 266 + 100}),
        ("col-aff-tps", "identity", {0: 100, 1: 266, 2: 266, 3: 266 + 100}),
        ("aff", "spatial", {1: 1000}),
        ("col", "spatial", {1: 1000}),
        ("", "spatial", {0: 1000}),
    ],
)
def test_training_begins_with_the_first_spatial_transform(
    transforms: str, start: Any, steps: dict[int, int]
) -> None:
    training = Training(max_steps=1000, curriculum_start=start)
    model = DTIKMeans(3, transforms=transforms, training=training)
    plan = model.training_plan(Data(IMAGES).description)
    found = dict.fromkeys(steps, 0)
    for phase in plan.phases:
        found[phase.solver] += phase.steps
    assert found == steps
    few = dataclasses.replace(model, training=training.shortened(2, plan, split_merge=False))
    short = few.training_plan(Data(IMAGES).description).phases
    assert [(p.solver, p.steps) for p in short] == [(p.solver, 2) for p in plan.phases]


def test_settings_are_flat() -> None:
    model = DTIKMeans(4, transforms="aff", training=Training(max_steps=77))
    settings = model.settings()
    assert settings["max_steps"] == 77
    assert "training" not in settings
    assert DTIKMeans.from_settings(settings) == model
    assert set(DTIKMeans.setting_types()) == set(settings)


def test_the_loss_and_its_history_count_weights() -> None:
    """Of whole batches, at a rate so low that nothing moves, all losses are alike."""
    still = {"learning_rate": 1e-9, "least_share": 0.0, "split_merge": False}
    training = Training(steps=(1, 2), batch_size=60, refill_every=1, **still)
    weight = np.random.default_rng(0).uniform(0.5, 4.0, 60)
    model = DTIKMeans(3, transforms="", training=training)
    result = model.fit(IMAGES, key=KEY, sample_weight=weight, prototypes=IMAGES[:3])
    squared = ((IMAGES[:, None] - IMAGES[None, :3]) ** 2).sum(axis=(2, 3, 4)).min(axis=1)
    assert result.loss == pytest.approx(weight @ squared, rel=1e-4)
    assert result.history == pytest.approx([result.loss] * 4, rel=1e-4)
    # Where the losses of each phase begin.
    assert result.outcome.extras["phases"].tolist() == [0, 1]
