"""Which distances of shapes are metrics, and that the check notices those that are none."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import pytest

from diffclust.distances import (
    DiagonalGaussian,
    Gaussian,
    LandmarkDistance,
    SquaredEuclidean,
    kullback_leibler,
    squared_wasserstein,
)
from diffclust.testing import check_metric
from diffclust.types import Key
from tests.registry import gaussian_landmarks


@pytest.fixture(params=[False, True], ids=["single", "double"])
def either_precision(request: pytest.FixtureRequest) -> Iterator[None]:
    with jax.enable_x64(request.param):
        yield


def any_covariances(key: Key) -> Gaussian:
    """Four landmarks in the plane whose coordinates vary together."""
    mean, root = jax.random.split(key)
    roots = jax.random.normal(root, (4, 2, 2))
    covariance = roots @ jnp.swapaxes(roots, 1, 2) + 0.5 * jnp.eye(2)[None]
    return Gaussian(jax.random.normal(mean, (4, 2)), covariance)


METRICS: dict[str, Callable[[Key], DiagonalGaussian | Gaussian]] = {
    "diagonal_fisher_rao": gaussian_landmarks,
    "fisher_rao": any_covariances,
    "wasserstein": any_covariances,
    "hellinger": any_covariances,
}


@pytest.mark.usefixtures("either_precision")
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize(
    "name",
    [
        # The exact one is long in compiling.
        pytest.param(name, marks=pytest.mark.slow if name == "fisher_rao" else [])
        for name in METRICS
    ],
)
def test_sums_over_landmarks_are_metrics(name: str, norm: str, key: Key) -> None:
    check_metric(LandmarkDistance(name, norm=norm), key=key, draw=METRICS[name])


@pytest.mark.usefixtures("either_precision")
@pytest.mark.parametrize("name", ["diagonal_fisher_rao", "wasserstein"])
def test_diagonal_ones_are_metrics(name: str, key: Key) -> None:
    check_metric(LandmarkDistance(name), key=key, draw=gaussian_landmarks)


@pytest.mark.parametrize(
    ("between", "law"),
    [
        (squared_wasserstein, "the triangle inequality"),
        (kullback_leibler, "symmetry"),
        # It does not look at the means.
        ("same_mean_fisher_rao", "zero only at equality"),
    ],
    ids=["squared", "one-sided", "blind"],
)
def test_what_is_no_metric_is_noticed(between: Callable | str, law: str, key: Key) -> None:
    with pytest.raises(AssertionError, match=f"LandmarkDistance: {law}"):
        check_metric(LandmarkDistance(between), key=key, draw=any_covariances)


def test_a_squared_distance_has_the_other_laws(key: Key) -> None:
    def draw(key: Key) -> jax.Array:
        return jax.random.uniform(key, (3, 4, 1))

    check_metric(SquaredEuclidean(), key=key, draw=draw, triangle=False)
    with pytest.raises(AssertionError, match="SquaredEuclidean: the triangle inequality"):
        check_metric(SquaredEuclidean(), key=key, draw=draw)
