"""What tests of methods have in common that cut a graph: small images, and what always holds."""

import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

import diffclust
from diffclust import (
    DeformationInvariantKMeans,
    DeformationInvariantSpectralClustering,
    metrics,
)
from diffclust.alignment import AbstractAligner, Descent, Stage
from diffclust.models import Result
from diffclust.solvers import Progress, Status
from tests.registry import blobs

CHUNK = 48
"""Given to all fits, so that they share compiled programs."""


def quick_aligner(model: object) -> AbstractAligner:
    """In place of the one that makes good prototypes, which takes long to compile."""
    del model
    return Descent((Stage(3),))


def quick_portraits() -> Iterator[None]:
    """A fixture: prototypes of spectral methods are made quickly."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DeformationInvariantKMeans, "aligner", quick_aligner)
        yield


def quick_alignments() -> Iterator[None]:
    """A fixture: so they are, and pairs are judged quickly too."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DeformationInvariantKMeans, "aligner", quick_aligner)
        patched.setattr(
            DeformationInvariantSpectralClustering,
            "aligner",
            lambda self: Descent((Stage(3, blur=1 / 14), Stage(2))),
        )
        yield


def strokes(
    labels: np.ndarray, height: int = 8, width: int = 8, channels: int = 1, seed: int = 0
) -> np.ndarray:
    """Strokes that lie, stand or lean by their class, somewhere near the middle."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] - np.array([height - 1, width - 1])[:, None, None] / 2
    angle = np.pi / 3 * labels + rng.uniform(-0.12, 0.12, len(labels))
    across = np.cos(angle)[:, None, None] * y - np.sin(angle)[:, None, None] * x
    along = np.cos(angle)[:, None, None] * x + np.sin(angle)[:, None, None] * y
    place = rng.uniform(-0.6, 0.6, (2, len(labels), 1, 1))
    drawn = np.exp(-0.5 * (across - place[0]) ** 2 - (along - place[1]) ** 2 / height)
    colour = rng.uniform(0.7, 1.0, (len(labels), 1, 1, channels))
    return (drawn[..., None] * colour).astype(np.float32)


def far_groups(labels: np.ndarray) -> np.ndarray:
    """Groups whose members differ by next to nothing, and each other by much."""
    noise = np.random.default_rng(0).uniform(0, 0.01, (len(labels), 8, 8, 1))
    return (blobs(int(labels.max()) + 1, seed=4)[labels] + noise).astype(np.float32)


def check_cut(result: Result, images: np.ndarray) -> None:
    """What holds of every result, however odd the images."""
    count, clusters = len(images), result.model.num_clusters
    outcome = result.outcome
    assert outcome.status is Status.SOLVED
    assert result.history == (result.loss,)
    assert -1e-6 <= result.loss <= clusters
    assert result.assignments.shape == (count,)
    assert result.assignments.min() >= 0
    assert result.assignments.max() < clusters
    assert np.isfinite(result.distances).all()
    assert (result.distances >= 0).all()
    assert (result.margins >= 0).all()
    assert np.isfinite(outcome.assignment.params).all()
    if clusters > 1:
        assert (outcome.assignment.runners_up != result.assignments).all()
        assert np.isfinite(result.margins).all()
    assert result.prototypes.shape == (clusters, *result.registered(images[:1]).shape[1:])
    assert np.isfinite(result.prototypes).all()
    assert not result.prototypes[result.counts == 0].any()
    assert np.isfinite(result.align(images, outcome.assignment.params)).all()
    eigenvalues = outcome.extras["eigenvalues"]
    assert np.isfinite(eigenvalues).all()
    assert (np.diff(eigenvalues) <= 1e-9).all()
    assert eigenvalues[0] <= 1 + 1e-6
    pairs = outcome.extras.get("bridges", np.empty((0, 2), np.int32))
    assert pairs.shape[1:] == (2,)
    assert (result.assignments[pairs[:, 0]] != result.assignments[pairs[:, 1]]).all()
    assert len(set(pairs.ravel().tolist())) == pairs.size
    summary = json.loads(json.dumps(result.summary()))
    assert all(np.isfinite(summary[name]) for name in ("loss", *outcome.figures))
    assert (summary["method"], summary["status"]) == (result.model.method, "solved")
    for array in outcome.extras.values():
        assert np.isfinite(array).all()


def assert_same(one: Result, other: Result) -> None:
    """Bit for bit, but for the time it took."""
    for name in ("clusters", "distances", "margins", "runners_up", "params"):
        first, second = (getattr(r.outcome.assignment, name) for r in (one, other))
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second, err_msg=name)
    np.testing.assert_array_equal(one.prototypes, other.prototypes)
    assert one.outcome.extras.keys() == other.outcome.extras.keys()
    for name, array in one.outcome.extras.items():
        assert array.dtype == other.outcome.extras[name].dtype
        np.testing.assert_array_equal(array, other.outcome.extras[name], err_msg=name)
    assert one.outcome.figures == other.outcome.figures
    assert one.history == other.history


def check_saved(result: Result, images: np.ndarray, folder: Path) -> None:
    """What is loaded is what was saved, and predicts the same."""
    diffclust.save(folder, result)
    loaded = diffclust.load(folder)
    assert loaded.model == result.model
    assert_same(loaded, result)
    one, other = loaded.predict(images[::-1]), result.predict(images[::-1])
    for field in dataclasses.fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def check_start(result: Result, images: np.ndarray) -> None:
    """DI K-means can start from the clusters."""
    model = DeformationInvariantKMeans(
        3, landmarks=(2, 2), num_restarts=1, max_passes=2, split_merge=False
    )
    refined = model.fit(images, key=jax.random.key(0), assignments=result.assignments)
    assert metrics.adjusted_rand_index(result.assignments, refined.assignments) > 0.8


def stages(reported: list[Progress]) -> list[str]:
    """The stages of a fit in their order; one that comes again after another is named again."""
    for report in reported:
        assert 0 <= report.done <= report.total
    return [stage for stage, _ in itertools.groupby(report.stage for report in reported)]
