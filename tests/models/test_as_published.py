"""The papers' own settings."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from diffclust.alignment import Descent, OptaxMinimiser
from diffclust.methods import METHODS
from diffclust.models import (
    MODELS,
    PUBLISHED_LANDMARKS,
    PUBLISHED_RATES,
    AffineInvariantKMeans,
    DeformationInvariantKMeans,
    DTIGaussianMixture,
    DTIKMeans,
    ShapeKMeans,
    Training,
)
from diffclust.parallel import Data
from tests.registry import blobs

PUBLISHED = sorted(name for name, method in METHODS.items() if method.published)
KEY = jax.random.key(0)


def test_every_paper_is_here() -> None:
    assert PUBLISHED == ["ai-kmeans", "di-kmeans", "dti-gmm", "dti-kmeans", "pssc", "shape-kmeans"]
    assert sorted(name for name in MODELS if hasattr(MODELS[name], "as_published")) == PUBLISHED


@pytest.mark.parametrize("method", PUBLISHED)
def test_nothing_of_ours_is_in_it(method: str) -> None:
    model: Any = MODELS[method]
    made = model.as_published(3)
    assert type(made) is model
    settings = made.settings()
    if METHODS[method].sample_kind == "image":
        assert settings["register"] == "none"
    assert not settings.get("split_merge", False)
    assert not any(settings.get(f"{name}_penalty", 0.0) for name in ("affine", "bending"))
    assert not any(made.penalty() if hasattr(made, "penalty") else ())
    assert settings.get("shortlist") is None
    # As a file and the command line would make it.
    assert model.from_settings(settings) == made


@pytest.mark.parametrize("model", [AffineInvariantKMeans, DeformationInvariantKMeans])
def test_adam_tries_all_clusters_and_remembers_them(model: Any) -> None:
    made = model.as_published(3, learning_rate=PUBLISHED_RATES[2])
    aligner = made.aligner()
    assert isinstance(aligner, Descent)
    assert isinstance(aligner.minimiser, OptaxMinimiser)
    assert (aligner.num_candidates(3), made.solver().warm_starts) == (3, 3)
    # Equal models share what was compiled.
    assert aligner == model.as_published(3, learning_rate=PUBLISHED_RATES[2]).aligner()
    assert made.plan(28, 28).coarsening == 1
    # All of the paper's passes: at small rates alignments go on while no image changes.
    assert made.tolerance is None


@pytest.mark.slow
def test_di_kmeans_lowers_the_distortion_pass_by_pass() -> None:
    model = DeformationInvariantKMeans.as_published(3, landmarks=PUBLISHED_LANDMARKS[0])
    settings = {**model.settings(), "max_passes": 4}
    result = DeformationInvariantKMeans.from_settings(settings).fit(blobs(24), key=KEY)
    assert np.all(np.diff(result.history) < 1e-4 * result.history[0])
    assert result.history[-1] < 0.9 * result.history[0]
    np.testing.assert_allclose(np.linalg.norm(result.prototypes.reshape(3, -1), axis=1), 1.0, 1e-5)
    slow = DeformationInvariantKMeans.as_published(3, landmarks=(2, 2), learning_rate=1e-4)
    slow = DeformationInvariantKMeans.from_settings({**slow.settings(), "max_passes": 6})
    assert len(slow.fit(blobs(24), key=KEY).history) == 6


@pytest.mark.parametrize("model", [DTIKMeans, DTIGaussianMixture])
def test_epochs_are_the_authors_steps(model: Any) -> None:
    made = model.as_published(10)
    images = np.zeros((10_000, 8, 8, 1), np.float32)
    plan = made.training_plan(Data(images, chunk_size=64).description)
    # 300 epochs of 79 batches: their configuration of the MNIST test digits.
    assert [phase.steps for phase in plan.phases] == [79 * n for n in (50, 100, 50, 80, 20)]
    assert [phase.rate for phase in plan.phases] == pytest.approx([1e-3] * 4 + [1e-4])
    assert (plan.batch_size, plan.window, plan.refills_to_the_end) == (128, 50, True)
    assert (plan.split_merge_every, plan.noise, plan.least_share) == (0, 1e-4, 0.2)
    if model is DTIGaussianMixture:
        assert made.objective().followed is None
        assert made.energy().spatial_variances
        assert (made.objective().initial_variance, made.min_deviation) == (0.25, 0.25)
        assert model(10).objective().initial_variance < made.objective().initial_variance


def test_settings_beside_the_papers_are_given_by_their_names() -> None:
    made = DTIKMeans.as_published(3, epochs=(1, 4, 1), transforms="aff", batch_size=8)
    assert (made.training.epochs, made.training.batch_size) == ((1, 4, 1), 8)
    assert (made.training.split_merge, made.training.refill_every) == (False, 50)
    for steps in ({"steps": (1, 2, 3, 4, 5)}, {"max_steps": 500}):
        made = DTIKMeans.as_published(3, **steps)
        assert (made.training.epochs, made.training.refill_every) == (None, 50)
        assert made.training == dataclasses.replace(made.training, **steps)
    with pytest.raises(ValueError, match="give settings of training by their names"):
        DTIKMeans.as_published(3, training=Training(batch_size=8))


@pytest.mark.slow
def test_images_of_a_fit_by_adam_are_predicted_as_they_were_aligned() -> None:
    """Of small steps a fit takes those of all its passes."""
    model = AffineInvariantKMeans.as_published(2, learning_rate=0.01, max_passes=8)
    images = blobs(24)
    result = model.fit(images, key=KEY)
    again = result.predict(images)
    np.testing.assert_array_equal(again.clusters, result.assignments)
    np.testing.assert_allclose(again.distances.mean(), result.distances.mean(), rtol=0.1)
    few = dataclasses.replace(result.outcome, history=result.outcome.history[:1])
    assert dataclasses.replace(result, outcome=few).predict(images).distances.mean() > 2.0 * (
        again.distances.mean()
    )


def test_with_rotations_adam_follows_all_clusters() -> None:
    made = DeformationInvariantKMeans.as_published(10, transforms="turn-tps")
    assert made.aligner().num_candidates(10) == 10
    assert DeformationInvariantKMeans(10, transforms="turn-tps").aligner().num_candidates(10) == 3


@pytest.mark.slow
def test_dti_kmeans_is_fitted_with_running_moments() -> None:
    settings = {"transforms": "aff", "epochs": (1, 4, 1), "batch_size": 8}
    published = DTIKMeans.as_published(3).settings()
    result = DTIKMeans.from_settings({**published, **settings}).fit(blobs(24), key=KEY)
    mean, variance = result.outcome.learned.shared.stem_norm.moments
    assert np.all(np.asarray(variance) != 1.0)
    assert np.all(np.asarray(mean) != 0.0)
    np.testing.assert_array_equal(result.predict(blobs(24)).clusters, result.assignments)


def test_shapes_are_type_two_unless_asked() -> None:
    first = ShapeKMeans.as_published(2, variances="per_landmark", distance="wasserstein")
    assert (first.variances, first.distance, first.num_restarts) == (
        "per_landmark",
        "wasserstein",
        1,
    )
    assert ShapeKMeans.as_published(2).variances == "per_cluster"
    shapes = np.random.default_rng(0).normal(size=(2, 6, 2))[np.arange(20) % 2]
    shapes = shapes + 0.01 * np.random.default_rng(1).normal(size=shapes.shape)
    assert ShapeKMeans.as_published(2).fit(shapes, key=KEY).counts.sum() == 20
