import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from scipy.stats import multivariate_normal

import diffclust
from diffclust import ShapeKMeans
from diffclust.data import simulated_shapes
from diffclust.distances import DiagonalGaussian
from diffclust.distances.frechet import diagonal_fisher_rao_mean
from diffclust.metrics import scores
from diffclust.models import AbstractModel
from diffclust.parallel.chunks import Batch
from diffclust.registration import generalised_procrustes
from diffclust.solvers import compiled_lloyd, random_assignments

GROUPS = 2


@pytest.fixture(scope="module")
def drawn():
    """Two groups of shapes in the plane, each with other landmarks that vary much."""
    means = jax.random.normal(jax.random.key(0), (GROUPS, 6, 2)) * 0.3
    means = means + 4.0 * jax.random.normal(jax.random.key(1), (1, 6, 2))
    loud = jnp.asarray([[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]], jnp.float32)[..., None]
    shapes, group = simulated_shapes(
        means, 0.05 + 0.3 * loud, per_group=30, key=jax.random.key(2), translation=5.0
    )
    return np.asarray(shapes), np.asarray(group)


@pytest.fixture(scope="module")
def fitted(drawn):
    return ShapeKMeans(GROUPS, num_restarts=4).fit(drawn[0], key=jax.random.key(0))


def turned(shapes, *, scale=1.0):
    rng = np.random.default_rng(3)
    angle = rng.uniform(0, 2 * np.pi, len(shapes))
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1)
    sizes = np.exp(rng.normal(size=(len(shapes), 1, 1)) * np.log(scale))
    return sizes * shapes @ turn.reshape(-1, 2, 2) + rng.normal(size=(len(shapes), 1, 2))


def test_finds_the_groups(drawn, fitted):
    assert scores(drawn[1], fitted.assignments)["acc"] >= 0.98
    assert fitted.prototypes.shape == (GROUPS, 6, 2)
    assert fitted.sample_shape == (6, 2)


@pytest.mark.slow
@pytest.mark.parametrize(("registration", "scale"), [("similarity", 3.0), ("rigid", 1.0)])
def test_where_shapes_lie_makes_no_difference(drawn, registration, scale):
    shapes, _ = drawn
    model = ShapeKMeans(GROUPS, num_restarts=3, registration=registration)
    plain = model.fit(shapes, key=jax.random.key(1))
    moved = model.fit(turned(shapes, scale=scale), key=jax.random.key(1))
    # Restarts that end alike may name the clusters in another order.
    assert scores(plain.assignments, moved.assignments)["acc"] == 1.0
    np.testing.assert_allclose(plain.loss, moved.loss, rtol=1e-3)


@pytest.mark.parametrize("covariances", ["diagonal", "full"])
def test_the_loss_is_scipys_likelihood(drawn, covariances):
    result = ShapeKMeans(GROUPS, num_restarts=1, covariances=covariances).fit(
        drawn[0], key=jax.random.key(0)
    )
    registered = result.align(drawn[0], result.outcome.assignment.params)
    spread = np.asarray(result.outcome.learned.clusters.prototype.covariance)
    total = 0.0
    for shape, k in zip(registered, result.assignments, strict=True):
        for i, point in enumerate(shape):
            covariance = spread[k, i] if covariances == "full" else np.diag(spread[k, i])
            total -= multivariate_normal.logpdf(point, result.prototypes[k, i], covariance)
    np.testing.assert_allclose(result.loss, total, rtol=1e-3)


def test_the_likelihood_never_falls(fitted):
    history = np.asarray(fitted.history)
    # The prior shrinks variances towards ones that change too: a little slack.
    assert np.all(np.diff(history) <= 1e-3 * np.abs(history[:-1]))


def test_predicts_what_was_fitted_and_moved_copies(drawn, fitted):
    again = fitted.predict(drawn[0])
    np.testing.assert_array_equal(again.clusters, fitted.assignments)
    np.testing.assert_allclose(again.distances, fitted.distances, rtol=1e-2, atol=1e-2)
    elsewhere = fitted.predict(turned(drawn[0], scale=2.0))
    np.testing.assert_array_equal(elsewhere.clusters, fitted.assignments)


def test_shapes_of_fewer_landmarks_are_refused(drawn, fitted):
    with pytest.raises(ValueError, match="as many landmarks and dimensions as the fitted"):
        fitted.predict(drawn[0][:, :-1])


def test_registered_shapes_have_unit_size_and_lie_on_the_consensus(drawn, fitted):
    registered = fitted.align(drawn[0], fitted.outcome.assignment.params)
    sizes = np.sqrt(((registered - registered.mean(1, keepdims=True)) ** 2).sum((1, 2)))
    np.testing.assert_allclose(sizes, 1.0, rtol=1e-5)
    expected = np.asarray(generalised_procrustes(jnp.asarray(drawn[0])).registered)
    turn, _ = scipy.linalg.orthogonal_procrustes(expected.reshape(-1, 2), registered.reshape(-1, 2))
    np.testing.assert_allclose(expected @ turn, registered, atol=1e-5)
    # The principal axes of the mean lie along the coordinates.
    mean = registered.mean(0)
    assert abs((mean[:, 0] * mean[:, 1]).sum()) < 1e-5


@pytest.mark.slow
def test_a_mirrored_shape_is_another_one_unless_asked(drawn):
    shapes = drawn[0].copy()
    shapes[::2, :, 0] *= -1.0
    plain = ShapeKMeans(2, num_restarts=3).fit(shapes, key=jax.random.key(0))
    assert scores(np.arange(len(shapes)) % 2, plain.assignments)["acc"] == 1.0
    alike = ShapeKMeans(2, num_restarts=3, reflection=True).fit(shapes, key=jax.random.key(0))
    assert scores(drawn[1], alike.assignments)["acc"] >= 0.95


@pytest.mark.slow
def test_shapes_in_space():
    means = jax.random.normal(jax.random.key(5), (3, 7, 3))
    shapes, group = simulated_shapes(means, 0.1, per_group=12, key=jax.random.key(6))
    result = ShapeKMeans(3, num_restarts=5, covariances="full").fit(shapes, key=jax.random.key(0))
    assert scores(np.asarray(group), result.assignments)["acc"] == 1.0
    assert result.outcome.assignment.params.shape == (36, 1 + 9 + 3)


def test_saves_and_loads(drawn, fitted, tmp_path):
    diffclust.save(tmp_path / "model", fitted)
    loaded = diffclust.load(tmp_path / "model")
    before, after = fitted.predict(drawn[0]), loaded.predict(drawn[0])
    np.testing.assert_array_equal(before.distances, after.distances)
    assert loaded.model == fitted.model


def test_a_cluster_of_one_shape_has_the_floor(drawn):
    shapes = drawn[0].copy()
    assignments = np.minimum(np.arange(len(shapes)), 1)
    model = ShapeKMeans(2, prior=0.0, max_passes=1, min_variance=0.01)
    result = model.fit(shapes, key=jax.random.key(0), assignments=assignments)
    floor = result.outcome.figures["floor"]
    spread = np.asarray(result.outcome.learned.clusters.prototype.covariance)
    np.testing.assert_allclose(spread[0], floor, rtol=1e-5)
    assert result.outcome.figures["num_clipped"] >= spread[0].size


@pytest.mark.slow
def test_the_solver_can_be_mapped_over_data_sets(drawn):
    shapes = jnp.asarray(drawn[0])
    model = ShapeKMeans(GROUPS, registration="none", num_restarts=1)

    def run(shapes, key):
        reference = jnp.mean(shapes, axis=0)
        solver = model.solver(reference, model.initial_covariance(shapes, reference))
        batch = Batch(shapes, jnp.ones(shapes.shape[0]))
        start = random_assignments(key, shapes.shape[0], GROUPS)
        return compiled_lloyd(solver, batch, start, num_clusters=GROUPS)

    registered = generalised_procrustes(shapes).registered
    sets = jnp.stack([registered, 2.0 * registered])
    both = jax.vmap(run, in_axes=(0, None))(sets, jax.random.key(4))
    np.testing.assert_array_equal(both.cluster[0], both.cluster[1])
    alone = run(sets[1], jax.random.key(4))
    np.testing.assert_allclose(both.loss[1], alone.loss, rtol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (np.zeros((4, 3)), r"must be \[n, landmarks, dims\]"),
        (np.zeros((4, 2, 2)), "at least 3 landmarks"),
        (np.ones((4, 3, 2)), "in one point in 4 of 4 shapes, at 0, 1, 2, 3;"),
        (np.arange(24.0).reshape(4, 3, 2), "on one line: they do in 4 of 4 shapes, at 0, 1"),
        (np.full((4, 3, 2), np.nan), "missing, NaN or infinite landmarks, at 0, 1, 2, 3"),
        ([np.ones((5, 2)), np.ones((6, 2))], "different numbers of landmarks"),
        (np.array([["a"] * 3] * 3)[..., None].repeat(2, 2), "must hold numbers"),
    ],
)
def test_refuses_shapes_that_are_none(shapes, message):
    with pytest.raises(ValueError, match=message):
        ShapeKMeans(2).fit(shapes, key=jax.random.key(0))


def test_refuses_settings_that_mean_nothing(drawn):
    for settings, message in [
        ({"num_clusters": 0}, "num_clusters must be at least 1"),
        ({"min_variance": 0.0}, "min_variance"),
        ({"prior": -1.0}, "prior must be at least 0"),
        ({"registration": "none", "reflection": True}, "reflection=True needs registration"),
    ]:
        with pytest.raises(ValueError, match=message):
            ShapeKMeans(**{"num_clusters": 2, **settings})
    with pytest.raises(ValueError, match="number of shapes is 60"):
        ShapeKMeans(61).fit(drawn[0], key=jax.random.key(0))
    same = np.repeat(drawn[0][:1], 5, axis=0)
    with pytest.raises(ValueError, match="all shapes are the same"):
        ShapeKMeans(2).fit(same, key=jax.random.key(0))


@pytest.mark.parametrize(
    "registration",
    ["none", *[pytest.param(r, marks=pytest.mark.slow) for r in ("similarity", "rigid")]],
)
def test_far_from_the_origin_nothing_is_lost(drawn, registration):
    shapes = np.asarray(drawn[0], np.float64)
    if registration == "none":
        shapes = np.asarray(generalised_procrustes(jnp.asarray(drawn[0])).registered, np.float64)
    model = ShapeKMeans(GROUPS, num_restarts=2, registration=registration)
    here = model.fit(shapes, key=jax.random.key(0))
    there = model.fit(shapes + 4.5e8, key=jax.random.key(0))
    # Restarts may tie, in the last digits of their losses.
    assert scores(here.assignments, there.assignments)["acc"] == 1.0
    np.testing.assert_allclose(here.loss, there.loss, rtol=1e-3)
    result = there.align(shapes + 4.5e8, there.outcome.assignment.params)
    expected = here.align(shapes, here.outcome.assignment.params)
    np.testing.assert_allclose(result, expected, atol=1e-4)
    again = there.predict(shapes + 4.5e8)
    np.testing.assert_array_equal(again.clusters, there.assignments)


@pytest.mark.slow
def test_units_make_no_difference(drawn):
    model = ShapeKMeans(GROUPS, num_restarts=2)
    here = model.fit(drawn[0], key=jax.random.key(0))
    tiny = model.fit(1e-25 * drawn[0].astype(np.float64), key=jax.random.key(0))
    assert scores(here.assignments, tiny.assignments)["acc"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("variances", ["per_landmark", "per_cluster"])
@pytest.mark.parametrize("seeding", ["random", "k-means++"])
def test_a_fit_ends_at_frechet_means(drawn, variances, seeding):
    model = ShapeKMeans(
        GROUPS,
        distance="fisher-rao",
        centres="frechet",
        variances=variances,
        seeding=seeding,
        num_restarts=2,
    )
    result = model.fit(drawn[0], key=jax.random.key(0))
    registered = result.align(drawn[0], result.outcome.assignment.params)
    learned = result.outcome.learned.clusters.prototype
    for k in range(GROUPS):
        own = jnp.asarray(registered[result.assignments == k])
        carried = jnp.broadcast_to(learned.covariance[k][None], own.shape)
        mean = diagonal_fisher_rao_mean(DiagonalGaussian(own, carried))
        np.testing.assert_allclose(learned.centre.mean[k], mean.mean, atol=2e-3)
        np.testing.assert_allclose(learned.centre.variance[k], mean.variance, rtol=0.02)


@pytest.mark.parametrize(
    "settings",
    [
        {"registration": "rigd"},
        {"seeding": "kmeans++"},
        {"variances": "per-cluster"},
        {"covariances": "Full"},
        {"centres": "Frechet"},
        {"distance": "fisher_rao"},
        {"norm": "L2"},
    ],
    ids=str,
)
def test_names_settings_that_are_misspelt(settings):
    ((name, value),) = settings.items()
    model = ShapeKMeans(2)
    # Under test, jaxtyping's hook would refuse it before the model's own check.
    object.__setattr__(model, name, value)
    with pytest.raises(ValueError, match=f"{name} must be one of .*not '{re.escape(value)}'"):
        AbstractModel.__check_init__(model)


@pytest.mark.slow
def test_a_model_of_single_precision_predicts_under_double(drawn, fitted, tmp_path):
    diffclust.save(tmp_path / "model", fitted)
    with jax.enable_x64(True):
        again = diffclust.load(tmp_path / "model").predict(drawn[0])
    np.testing.assert_array_equal(again.clusters, fitted.assignments)


COUNTS = np.random.default_rng(4).integers(1, 4, 60)
WEIGHED = [
    {},
    {"covariances": "full", "variances": "isotropic"},
    {"distance": "fisher-rao", "registration": "rigid"},
    {"distance": "squared-wasserstein", "variances": "per_landmark", "registration": "none"},
    {"distance": "fisher-rao", "centres": "frechet"},
]


def started(count):
    return np.arange(count) * 7 % 5 % GROUPS


def assert_alike(one, other, shapes):
    """The same centres, variances and losses, to what rounding leaves of them."""
    first, second = (r.outcome.learned.clusters.prototype for r in (one, other))
    np.testing.assert_allclose(first.centre.mean, second.centre.mean, atol=1e-6)
    np.testing.assert_allclose(first.covariance, second.covariance, rtol=1e-4)
    assert one.loss == pytest.approx(other.loss, rel=1e-5)
    np.testing.assert_allclose(
        one.align(shapes, one.outcome.assignment.params),
        other.align(shapes, other.predict(shapes).params),
        atol=1e-5,
    )


@pytest.mark.parametrize("settings", WEIGHED, ids=str)
def test_whole_weights_are_repetitions(drawn, settings):
    shapes = np.asarray(drawn[0], np.float64)
    model, groups = ShapeKMeans(GROUPS, **settings), started(60)
    fit = {"key": jax.random.key(0), "chunk_size": 64}
    with jax.enable_x64(True):
        weighed = model.fit(shapes, assignments=groups, sample_weight=COUNTS, **fit)
        copied = np.repeat(shapes, COUNTS, axis=0)
        copies = model.fit(copied, assignments=np.repeat(groups, COUNTS), **fit)
        plain = model.fit(shapes, assignments=groups, **fit)
        np.testing.assert_array_equal(np.repeat(weighed.assignments, COUNTS), copies.assignments)
        assert_alike(weighed, copies, shapes)
    assert abs(weighed.loss - plain.loss) > 1e-2 * abs(plain.loss)
    assert np.abs(weighed.prototypes - plain.prototypes).max() > 1e-4


@pytest.mark.parametrize("settings", WEIGHED[::2], ids=str)
def test_shapes_of_weight_zero_are_left_out_and_assigned(drawn, settings):
    # Far from all others, so that they would show.
    shapes = drawn[0].copy()
    shapes[[0, 30]] = np.random.default_rng(0).normal(size=(2, 6, 2)) * 9
    weight = np.where(np.isin(np.arange(60), [0, 30]), 0.0, 1.0)
    kept = weight > 0
    model, fit = ShapeKMeans(GROUPS, **settings), {"key": jax.random.key(0), "chunk_size": 64}
    whole = model.fit(shapes, assignments=started(60), sample_weight=weight, **fit)
    part = model.fit(shapes[kept], assignments=started(60)[kept], **fit)
    np.testing.assert_array_equal(whole.assignments[kept], part.assignments)
    assert_alike(part, whole, shapes[kept])
    new = part.predict(shapes[~kept])
    for name in ("clusters", "distances", "margins", "runners_up", "params"):
        result = getattr(whole.outcome.assignment, name)
        assert len(result) == 60
        np.testing.assert_allclose(result[~kept], getattr(new, name), rtol=1e-3, atol=1e-5)


def test_equal_weights_change_nothing_but_the_size_of_the_loss(drawn):
    model = ShapeKMeans(GROUPS, num_restarts=2, prior=0.0)
    plain = model.fit(drawn[0], key=jax.random.key(0))
    weighed = model.fit(drawn[0], key=jax.random.key(0), sample_weight=np.full(60, 0.25))
    np.testing.assert_array_equal(plain.assignments, weighed.assignments)
    np.testing.assert_allclose(plain.prototypes, weighed.prototypes, atol=1e-5)
    assert weighed.loss == pytest.approx(0.25 * plain.loss, rel=1e-4)


def test_refuses_weights_that_mean_nothing(drawn):
    one = np.eye(60)[3]
    two = one + np.eye(60)[4]
    for model, given, message in [
        (ShapeKMeans(2), {"sample_weight": np.ones(3)}, r"\(60,\), one for each shape; got \(3,\)"),
        (ShapeKMeans(2), {"sample_weight": 0 * one}, "sample_weight is zero for all shapes"),
        (ShapeKMeans(2), {"sample_weight": one}, "number of shapes of positive weight is 1"),
        (ShapeKMeans(1), {"sample_weight": one}, "one shape of positive weight has no variance"),
        (
            ShapeKMeans(2),
            {"sample_weight": two, "assignments": 0 + (np.arange(60) < 2)},
            "leave cluster 1 empty; give every cluster at least one shape of positive weight",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(drawn[0], key=jax.random.key(0), **given)


def test_variances_are_shrunk_as_by_four_more_shapes_in_the_plane(drawn, fitted):
    registered = fitted.align(drawn[0], fitted.outcome.assignment.params)
    groups = [registered[fitted.assignments == k] for k in range(GROUPS)]
    scatters = [((own - own.mean(axis=0)) ** 2).sum(axis=0) for own in groups]
    within = sum(scatters) / len(registered)
    spread = fitted.outcome.learned.clusters.prototype.covariance
    for k, (own, scatter) in enumerate(zip(groups, scatters, strict=True)):
        expected = (scatter + 4 * within) / (len(own) + 4)
        floor = fitted.outcome.figures["floor"]
        np.testing.assert_allclose(spread[k], np.maximum(expected, floor), rtol=1e-3)


def test_variances_that_clusters_share_are_counted_once(drawn):
    model = ShapeKMeans(
        GROUPS, variances="per_landmark", min_variance=0.5, num_restarts=1, max_passes=3
    )
    result = model.fit(drawn[0], key=jax.random.key(0))
    spread = np.asarray(result.outcome.learned.clusters.prototype.covariance)[0]
    clipped = np.sum(spread <= result.outcome.figures["floor"] * (1 + 1e-6))
    assert 0 < clipped < spread.size
    assert result.outcome.figures["num_clipped"] == clipped
