"""The paper's algorithms of Type I and II, against a literal transcription in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust import ShapeKMeans
from diffclust.data import simulated_shapes
from diffclust.metrics import scores

GROUPS = 2


@pytest.fixture(scope="module")
def registered():
    means = jax.random.normal(jax.random.key(0), (GROUPS, 5, 2))
    loud = jnp.asarray([[3.0, 1, 1, 1, 1], [1, 1, 1, 1, 3]])[..., None]
    shapes, group = simulated_shapes(
        means, 0.35 * loud, per_group=20, key=jax.random.key(1), rotation=False, translation=0.0
    )
    return np.asarray(shapes, np.float64), np.asarray(group)


def fisher_rao(x, v, y, w):
    """Eq. 7 for two landmarks."""
    total = 0.0
    for m, n, s, t in zip(x, y, np.sqrt(v), np.sqrt(w), strict=True):
        far = np.hypot((m - n) / 2**0.5, s + t)
        near = np.hypot((m - n) / 2**0.5, s - t)
        total += np.log((far + near) / (far - near)) ** 2
    return (2 * total) ** 0.5


def wasserstein(x, v, y, w):
    """The 2-Wasserstein distance of two landmarks."""
    return (((x - y) ** 2).sum() + ((np.sqrt(v) - np.sqrt(w)) ** 2).sum()) ** 0.5


def literal(shapes, assigned, distance, *, type_two, norm, candidate=False):
    """Secs. 4.1 and 4.2."""
    assigned = assigned.copy()
    for _ in range(100):
        centres = np.stack([shapes[assigned == g].mean(0) for g in range(GROUPS)])
        if type_two:
            spread = np.stack([shapes[assigned == g].var(0) for g in range(GROUPS)])
        else:
            spread = np.stack([shapes.var(0)] * GROUPS)
        result = np.empty((len(shapes), GROUPS))
        for i, shape in enumerate(shapes):
            for h in range(GROUPS):
                carried = spread[h if candidate else assigned[i]]
                each = np.array(
                    [
                        distance(shape[k], carried[k], centres[h, k], spread[h, k])
                        for k in range(shapes.shape[1])
                    ]
                )
                result[i, h] = each.sum() if norm == "l1" else (each**2).sum() ** 0.5
        new = result.argmin(1)
        if (new == assigned).all():
            return new, result.min(1).sum()
        assigned = new
    raise AssertionError("no end")


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l1", pytest.param("l2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("type_two", [False, True], ids=["type-1", "type-2"])
@pytest.mark.parametrize("distance", [fisher_rao, wasserstein])
def test_ends_where_the_paper_does(registered, distance, type_two, norm):
    shapes, _ = registered
    start = np.random.default_rng(2).permutation(len(shapes)) % GROUPS
    expected, loss = literal(shapes, start, distance, type_two=type_two, norm=norm)
    model = ShapeKMeans(
        GROUPS,
        distance="fisher-rao" if distance is fisher_rao else "wasserstein",
        variances="per_cluster" if type_two else "per_landmark",
        norm=norm,
        registration="none",
        min_variance=1e-6,
    )
    result = model.fit(shapes, key=jax.random.key(0), assignments=start)
    np.testing.assert_array_equal(result.assignments, expected)
    np.testing.assert_allclose(result.loss, loss, rtol=1e-3)


def test_a_shape_may_have_the_variances_of_the_candidate(registered):
    shapes, _ = registered
    start = np.random.default_rng(2).permutation(len(shapes)) % GROUPS
    given = {"type_two": True, "norm": "l1", "candidate": True}
    expected, loss = literal(shapes, start, fisher_rao, **given)
    model = ShapeKMeans(
        GROUPS,
        distance="fisher-rao",
        shape_variances="candidate",
        registration="none",
        min_variance=1e-6,
    )
    result = model.fit(shapes, key=jax.random.key(0), assignments=start)
    np.testing.assert_array_equal(result.assignments, expected)
    np.testing.assert_allclose(result.loss, loss, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"distance": "fisher-rao", "variances": "isotropic"},
        {"distance": "fisher-rao", "centres": "frechet"},
        {"distance": "fisher-rao", "covariances": "full", "variances": "per_landmark"},
        {"distance": "squared-wasserstein", "variances": "isotropic"},
        {"distance": "printed-wasserstein", "variances": "per_landmark"},
        {"distance": "alpha-divergence", "alpha": -1.0, "variances": "per_landmark"},
        {"distance": "likelihood", "seeding": "k-means++"},
        {"distance": "likelihood", "variances": "isotropic", "covariances": "full"},
    ],
    ids=lambda s: "-".join(map(str, s.values())),
)
def test_every_setting_finds_groups_that_lie_apart(settings):
    means = jax.random.normal(jax.random.key(3), (3, 6, 2))
    shapes, group = simulated_shapes(means, 0.05, per_group=10, key=jax.random.key(4))
    result = ShapeKMeans(3, num_restarts=6, **settings).fit(shapes, key=jax.random.key(0))
    assert scores(np.asarray(group), result.assignments)["acc"] == 1.0
    assert np.isfinite(result.distances).all()


@pytest.mark.slow
def test_a_bounded_divergence_may_lose_less_than_groups_that_lie_apart():
    means = jax.random.normal(jax.random.key(3), (3, 6, 2))
    shapes, group = simulated_shapes(means, 0.05, per_group=10, key=jax.random.key(4))
    model = ShapeKMeans(
        3, num_restarts=6, distance="alpha-divergence", alpha=0.5, covariances="full"
    )
    result = model.fit(shapes, key=jax.random.key(0))
    groups = model.fit(shapes, key=jax.random.key(0), assignments=np.asarray(group))
    assert scores(np.asarray(group), groups.assignments)["acc"] == 1.0
    assert result.loss < groups.loss
