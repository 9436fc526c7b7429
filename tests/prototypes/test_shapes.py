import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from diffclust.distances import DiagonalGaussian, Gaussian
from diffclust.distances.frechet import diagonal_fisher_rao_mean, wasserstein_mean
from diffclust.prototypes import FrechetShapes, MeanShapes, exemplar_of, gaussians

N, K, LANDMARKS, DIMS = 40, 3, 5, 2


@pytest.fixture
def shapes():
    rng = np.random.default_rng(0)
    return (5.0 + rng.normal(size=(N, LANDMARKS, DIMS))).astype(np.float32)


@pytest.fixture
def member():
    return np.eye(K, dtype=np.float32)[np.arange(N) % K]


def updated(shapes, member, *, full=False, floor=1e-6, **settings):
    initial = np.ones((LANDMARKS, DIMS, DIMS) if full else (LANDMARKS, DIMS), np.float32)
    family = MeanShapes(
        jnp.asarray(shapes.mean(0)), jnp.asarray(initial), jnp.float32(floor), **settings
    )
    previous = jax.vmap(family.init)(jnp.asarray(shapes[:K]))
    sums = family.statistics(jnp.asarray(shapes), None, jnp.asarray(member), previous)
    return family.update(sums, previous)


def groups(shapes):
    return [shapes[np.arange(N) % K == k].astype(np.float64) for k in range(K)]


def test_means_and_variances_are_those_of_each_cluster(shapes, member):
    result = updated(shapes, member)
    assert isinstance(result.centre, DiagonalGaussian)
    for k, own in enumerate(groups(shapes)):
        np.testing.assert_allclose(result.centre.mean[k], own.mean(0), rtol=1e-5)
        np.testing.assert_allclose(result.covariance[k], own.var(0), rtol=1e-4)
    np.testing.assert_array_equal(result.covariance, result.centre.variance)
    np.testing.assert_array_equal(exemplar_of(result), result.centre.mean)


def test_covariances_are_those_of_each_cluster(shapes, member):
    result = updated(shapes, member, full=True)
    assert isinstance(result.centre, Gaussian)
    for k, own in enumerate(groups(shapes)):
        for landmark in range(LANDMARKS):
            expected = np.cov(own[:, landmark].T, bias=True)
            np.testing.assert_allclose(result.covariance[k, landmark], expected, atol=1e-4)


@pytest.mark.parametrize("full", [False, True])
def test_shared_variances_are_total_or_within(shapes, member, full):
    total = updated(shapes, member, full=full, variances="per_landmark").covariance
    within = updated(
        shapes, member, full=full, variances="per_landmark", pooling="within"
    ).covariance
    axes = {"axis1": -2, "axis2": -1}
    if full:
        total, within = np.diagonal(total, **axes), np.diagonal(within, **axes)
    np.testing.assert_allclose(total[1], shapes.astype(np.float64).var(0), rtol=1e-4)
    scatter = sum(((own - own.mean(0)) ** 2).sum(0) for own in groups(shapes))
    np.testing.assert_allclose(within[2], scatter / N, rtol=1e-4)


@pytest.mark.parametrize("full", [False, True])
def test_round_variances_are_one_number(shapes, member, full):
    spread = np.asarray(updated(shapes, member, full=full, variances="isotropic").covariance)
    expected = shapes.astype(np.float64).var(0).mean()
    whole = expected * (np.eye(DIMS) if full else np.ones(DIMS))
    np.testing.assert_allclose(spread, np.broadcast_to(whole, spread.shape), rtol=1e-4, atol=1e-7)


def test_a_prior_counts_as_so_many_more_shapes(shapes, member):
    plain = np.asarray(updated(shapes, member).covariance)
    shrunk = np.asarray(updated(shapes, member, prior=7.0).covariance)
    sizes = member.sum(0)[:, None, None]
    within = (plain * sizes).sum(0) / N
    np.testing.assert_allclose(shrunk, (plain * sizes + 7 * within) / (sizes + 7), rtol=1e-4)


@pytest.mark.parametrize("full", [False, True])
def test_one_shape_has_the_floor_and_an_empty_cluster_stays(shapes, full):
    member = np.zeros((N, K), np.float32)
    member[0, 0], member[1:, 1] = 1.0, 1.0
    result = updated(shapes, member, full=full, floor=0.25)
    one = np.linalg.eigvalsh(result.covariance[0]) if full else result.covariance[0]
    np.testing.assert_allclose(one, 0.25, rtol=1e-5)
    # The third cluster was begun with the third shape.
    np.testing.assert_allclose(result.centre.mean[2], shapes[2], rtol=1e-6)
    np.testing.assert_allclose(result.covariance[2], 1.0)


@pytest.mark.parametrize("full", [False, True])
def test_digits_left_in_the_sums_of_an_emptied_cluster_do_no_harm(shapes, full):
    member = np.eye(K, dtype=np.float32)[np.arange(N) % 2]
    family = MeanShapes(
        jnp.asarray(shapes.mean(0)),
        jnp.ones((LANDMARKS, DIMS, DIMS) if full else (LANDMARKS, DIMS)),
        jnp.float32(1e-6),
        prior=4.0,
    )
    previous = jax.vmap(family.init)(jnp.asarray(shapes[:K]))
    sums = family.statistics(jnp.asarray(shapes), None, jnp.asarray(member), previous)
    left = eqx.tree_at(lambda s: s.first, sums, sums.first.at[2].set(1e-6))
    clean, result = family.update(sums, previous), family.update(left, previous)
    chex.assert_trees_all_equal(result, clean)


def test_sums_are_additive(shapes, member):
    family = MeanShapes(jnp.asarray(shapes.mean(0)), jnp.ones((LANDMARKS, DIMS)), jnp.float32(1e-6))
    previous = jax.vmap(family.init)(jnp.asarray(shapes[:K]))
    whole = family.statistics(jnp.asarray(shapes), None, jnp.asarray(member), previous)
    parts = [
        family.statistics(jnp.asarray(shapes[i::2]), None, jnp.asarray(member[i::2]), previous)
        for i in (0, 1)
    ]
    total = jax.tree.map(jnp.add, *parts)
    chex.assert_trees_all_close(whole, total, rtol=1e-7, atol=1e-4)


def test_the_rank_says_which_gaussian(shapes):
    assert isinstance(gaussians(jnp.asarray(shapes), jnp.asarray(shapes)), DiagonalGaussian)
    covariance = jnp.ones((*shapes.shape, DIMS))
    assert isinstance(gaussians(jnp.asarray(shapes), covariance), Gaussian)


@pytest.mark.slow
def test_passes_lead_to_the_frechet_mean(shapes, member):
    spread = np.random.default_rng(1).uniform(0.3, 2.0, (LANDMARKS, DIMS)).astype(np.float32)
    means = MeanShapes(
        jnp.asarray(shapes.mean(0)), jnp.asarray(spread), jnp.float32(1e-6), variances="isotropic"
    )
    family = FrechetShapes(means)
    result = jax.vmap(family.init)(jnp.asarray(shapes[:K]))
    for _ in range(40):
        sums = family.statistics(jnp.asarray(shapes), None, jnp.asarray(member), result)
        result = family.update(sums, result)
    carried = np.asarray(result.covariance)
    for k in range(K):
        own = jnp.asarray(shapes[np.arange(N) % K == k])
        members = DiagonalGaussian(own, jnp.broadcast_to(carried[k][None], own.shape))
        expected = diagonal_fisher_rao_mean(members)
        np.testing.assert_allclose(result.centre.mean[k], expected.mean, atol=1e-3)
        np.testing.assert_allclose(result.centre.variance[k], expected.variance, rtol=1e-3)
        # Gaussians that lie apart have a wider mean.
        assert np.all(np.asarray(result.centre.variance[k]) > carried[k])


def test_under_wasserstein_the_frechet_mean_is_the_mean(shapes, member):
    result = updated(shapes, member)
    for k in range(K):
        own = jnp.asarray(shapes[np.arange(N) % K == k])
        for landmark in range(LANDMARKS):
            carried = jnp.broadcast_to(result.covariance[k, landmark][None], own[:, landmark].shape)
            mean = wasserstein_mean(DiagonalGaussian(own[:, landmark], carried))
            np.testing.assert_allclose(mean.mean, result.centre.mean[k, landmark], rtol=1e-5)
            np.testing.assert_allclose(mean.variance, result.covariance[k, landmark], rtol=1e-5)


def test_slopes_are_finite_where_a_cluster_has_one_shape(shapes):
    alone = np.zeros((N, K), np.float32)
    alone[:, 0], alone[0] = 1.0, np.eye(K)[1]

    def total(shapes):
        result = updated(shapes, alone, full=True)
        return jnp.sum(result.covariance**2) + jnp.sum(result.centre.mean)

    assert np.isfinite(jax.jit(jax.grad(total))(jnp.asarray(shapes))).all()


@pytest.mark.parametrize("weight", [1e-33, 1e-25, 1.0, 1e25])
def test_means_and_variances_do_not_depend_on_the_unit_of_weights(shapes, member, weight):
    expected, scaled = updated(shapes, member), updated(shapes, np.float32(weight) * member)
    for one, other in zip(*map(jax.tree.leaves, (expected, scaled)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7)


def test_settings_that_it_does_not_know_are_refused(shapes):
    for settings in ({"variances": "none"}, {"pooling": "none"}, {"prior": -1.0}):
        # The jaxtyping hook sees some of them first.
        with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=next(iter(settings))):
            MeanShapes(shapes[0], shapes[0] ** 2, jnp.asarray(0.1), **settings)
