"""K-means of series under warps of time, through a model of one's own."""

from pathlib import Path

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import diffclust
from diffclust.alignment import Descent, Stage
from diffclust.energies import TransformedDistance
from diffclust.features import square_root_velocity
from diffclust.metrics import scores
from diffclust.models import Clustering, SeriesKMeans, SeriesSpectralClustering
from diffclust.prototypes import UnitNormSeries
from diffclust.solvers import Lloyd
from diffclust.transforms import TimeWarp


def bumps() -> tuple[np.ndarray, np.ndarray]:
    """Two kinds of three bumps at warped times; some series end early."""
    rng, labels = np.random.default_rng(0), np.arange(20) % 2
    times = np.linspace(0, 1, 40)[None] ** np.exp(rng.normal(0, 0.2, (20, 1)))
    apart = times[:, :, None] - np.array([0.2, 0.5, 0.8])
    heights = np.array([[1.0, 1.0, 1.0], [1.0, -0.5, 1.0]])[labels]
    series = np.einsum("ntb,nb->nt", np.exp(-0.5 * (apart / 0.06) ** 2), heights)
    ends = rng.integers(36, 41, 20)
    cut = np.where(np.arange(40)[None] < ends[:, None], series, np.nan)
    return cut[..., None].astype(np.float32), labels


@pytest.mark.slow
def test_warped_series_of_unequal_lengths_are_clustered() -> None:
    series, labels = bumps()
    energy = TransformedDistance(TimeWarp(6), missing=True)
    lloyd = Lloyd(energy, Descent((Stage(6, blur=1 / 28), Stage(6))), UnitNormSeries())
    model = Clustering(2, lloyd, penalties=(0.05,), has_missing=True, num_restarts=2, max_passes=8)
    result = model.fit(series, key=jax.random.key(0))
    assert scores(labels, result.assignments)["acc"] >= 0.9
    assert np.all(np.isfinite(result.prototypes))
    assert result.prototypes.shape == (2, 40, 1)
    # New series start from the identity, not from where passes have led.
    assert np.mean(result.predict(series).clusters == result.assignments) >= 0.9


@pytest.mark.slow
def test_square_root_velocities_are_compared_where_asked_for() -> None:
    series, labels = bumps()
    # Velocities do not see the values that series start from.
    shifted = series + 100.0 * np.random.default_rng(1).normal(size=(20, 1, 1)).astype(np.float32)
    settings = {"num_restarts": 1, "max_passes": 4, "standardise": False, "num_intervals": 4}
    model = SeriesKMeans(2, representation="srvf", **settings)
    whole = model.prepared(np.nan_to_num(series))
    inner = np.asarray(square_root_velocity(jnp.asarray(np.nan_to_num(series[0]))))
    between = 0.5 * (inner[1:] + inner[:-1])
    assert np.corrcoef(whole[0, 1:-1, 0], between[:, 0])[0, 1] > 0.98
    assert model.energy().transform.preserve_norm
    result = model.fit(shifted, key=jax.random.key(0))
    assert scores(labels, result.assignments)["acc"] == 1.0
    assert result.prototypes.shape == (2, 40, 1)
    assert np.all(np.isfinite(result.prototypes))
    np.testing.assert_array_equal(result.predict(shifted).clusters, result.assignments)
    # The hook that checks annotations under test is there first.
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match="representation"):
        SeriesKMeans(2, representation="q")


@pytest.mark.slow
def test_a_graph_that_was_saved_in_single_precision_is_read_in_double(tmp_path: Path) -> None:
    series = np.nan_to_num(bumps()[0])
    result = SeriesSpectralClustering(2, num_intervals=3).fit(series, key=jax.random.key(0))
    diffclust.save(tmp_path / "model", result)
    with jax.enable_x64(True):
        again = diffclust.load(tmp_path / "model").predict(series.astype(np.float64))
    np.testing.assert_array_equal(again.clusters, result.assignments)


def test_series_of_one_value_are_alike(key: jax.Array) -> None:
    flat = np.repeat(np.array([[0.1], [0.3], [0.7], [1.3]]), 30, axis=1)
    waves = np.sin(np.linspace(0, 6, 30))[None] * np.ones((4, 1))
    result = SeriesKMeans(2, warps=False).fit(np.concatenate([flat, waves]), key=key)
    assert scores(np.repeat([0, 1], 4), result.assignments)["acc"] == 1.0


def test_masked_values_are_missing(key: jax.Array) -> None:
    values = np.random.default_rng(0).normal(size=(12, 20)).cumsum(axis=1)
    masked = np.ma.masked_array(values, mask=False)
    masked[2, 15:] = np.ma.masked
    expected = SeriesKMeans(2, warps=False).fit(masked.filled(np.nan), key=key)
    for given in (masked, list(masked)):
        actual = SeriesKMeans(2, warps=False).fit(given, key=key)
        np.testing.assert_array_equal(actual.assignments, expected.assignments)
        assert actual.loss == expected.loss


def test_series_without_velocities_are_refused() -> None:
    series = np.tile(np.arange(7.0), (3, 1))
    series[1, [1, 2, 4, 5]] = np.nan
    with pytest.raises(ValueError, match="index 1 have too few velocities"):
        SeriesKMeans(2, representation="srvf").fit(series, key=jax.random.key(0))


@pytest.mark.slow
def test_new_series_are_aligned_about_as_well_as_fitted_ones(key: jax.Array) -> None:
    walks = np.random.default_rng(0).normal(size=(12, 15)).cumsum(axis=1)[..., None]
    result = SeriesKMeans(2, num_restarts=1).fit(walks.astype(np.float32), key=key)
    again = result.predict(walks.astype(np.float32))
    np.testing.assert_array_equal(again.clusters, result.assignments)
    # Of as many steps as one pass has the sum was a third greater.
    assert again.distances.sum() < 1.15 * result.distances.sum()


def test_velocities_are_divided_by_the_root_of_their_speed() -> None:
    series = np.random.default_rng(0).normal(size=(3, 9, 2))
    model = SeriesKMeans(2, representation="srvf", standardise=False)
    velocity = np.gradient(series, axis=1)
    speed = np.hypot(velocity[..., 0], velocity[..., 1])[..., None]
    np.testing.assert_allclose(model.preprocessed(series), velocity / np.sqrt(speed))
