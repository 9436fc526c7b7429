"""Fits of images that are read as they are needed are those of the same images in memory."""

import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Float, Int

from diffclust.alignment import NoAlignment
from diffclust.energies import TransformedDistance
from diffclust.image_source import ImageSource
from diffclust.models import (
    AbstractGradientModel,
    Clustering,
    DeformationInvariantKMeans,
    DTIGaussianMixture,
    DTIKMeans,
    GaussianMixture,
    KMeans,
    ProjectedScatteringSpectralClustering,
    Result,
    Training,
    TransformationInvariantKMeans,
)
from diffclust.parallel import Data, data_mesh
from diffclust.parallel.chunks import Batch, cut
from diffclust.solvers import Lloyd, LloydProblem
from diffclust.transforms import Identity
from tests.registry import blobs

COUNT = 70
FEW = 4
"""Chunks that may be alive: one is worked on, one is read, and one or two change hands."""
IMAGES = blobs(COUNT)


class Counting(ImageSource):
    """Images that are in memory after all, with a count of what was handed out and is alive."""

    def __init__(self, images: np.ndarray) -> None:
        self.images, self.alive, self.most, self.reads = images, 0, 0, 0

    @property
    def shape(self) -> tuple[int, int, int, int]:
        count, height, width, channels = self.images.shape
        return count, height, width, channels

    def read(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m height width channels"]:
        result = self.images[index]
        self.reads += 1
        if len(index) > 1:
            self.alive += 1
            self.most = max(self.most, self.alive)
            weakref.finalize(result, self._died)
        return result

    def _died(self) -> None:
        self.alive -= 1


def leaves(result: Result) -> dict[str, Any]:
    outcome = result.outcome
    parts = {"learned": outcome.learned, "assignment": vars(outcome.assignment)}
    actual = {jax.tree_util.keystr(k): v for k, v in jax.tree_util.tree_leaves_with_path(parts)}
    return {**actual, "history": outcome.history, "restarts": outcome.restarts}


def same(one: Result, other: Result) -> None:
    """Bit for bit."""
    result, wanted = leaves(one), leaves(other)
    assert result.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(result[name], value, err_msg=name)
        assert np.asarray(result[name]).dtype == np.asarray(value).dtype, name


def brief(**settings: Any) -> Training:
    return Training(max_steps=30, batch_size=16, **settings)


MODELS = {
    "kmeans": KMeans(3, num_restarts=2),
    "gmm": GaussianMixture(3, training=brief()),
    "di-kmeans": DeformationInvariantKMeans(3, landmarks=(2, 2), max_passes=3, penalty_rounds=1),
    "dti-kmeans": DTIKMeans(3, transforms="aff", training=brief()),
    "dti-gmm": DTIGaussianMixture(3, transforms="col-aff", training=brief()),
    "own-kmeans": Clustering(3, Lloyd(TransformedDistance(Identity()), NoAlignment())),
    "ti-kmeans": TransformationInvariantKMeans(3, transforms="aff", training=brief()),
}
QUICK = ("kmeans", "own-kmeans")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in MODELS],
)
def test_streamed_and_resident_fits_are_equal(name: str, key: jax.Array) -> None:
    model = MODELS[name]
    source = Counting(IMAGES)
    streamed = model.fit(source, key=key, chunk_size=8)
    resident = model.fit(IMAGES, key=key, chunk_size=8)
    same(streamed, resident)
    if "kmeans" in name and not isinstance(model, AbstractGradientModel):
        assert source.most <= FEW
    result, wanted = streamed.predict(source), resident.predict(IMAGES)
    for mine, theirs in zip(vars(result).values(), vars(wanted).values(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("double", [False, True])
def test_streamed_fits_on_several_devices_and_in_double_precision(
    double: bool, key: jax.Array
) -> None:
    with jax.enable_x64(double):
        mesh = None if double else data_mesh()
        fits = [
            model.fit(images, key=key, chunk_size=4, mesh=mesh)
            for model in (KMeans(3), GaussianMixture(3, training=brief()))
            for images in (Counting(IMAGES), IMAGES)
        ]
        same(fits[0], fits[1])
        same(fits[2], fits[3])
        assert fits[0].prototypes.dtype == (np.float64 if double else np.float32)


def test_no_more_than_a_few_chunks_are_alive() -> None:
    source = Counting(IMAGES)
    chunks = cut(source, None, size=4)
    assert chunks.count == 18
    assert source.reads == 0

    def most_alive(batches: Iterable[Batch]) -> int:
        seen: list[weakref.ref] = []
        most = 0
        for batch in batches:
            seen.append(weakref.ref(batch.samples))
            most = max(most, sum(ref() is not None for ref in seen))
        return most

    assert most_alive(chunks.batches) <= 2
    assert most_alive(chunks.batches) <= 2
    assert source.reads == 2 * chunks.count
    assert 1 <= source.most <= FEW
    assert most_alive(tuple(chunks.batches)) == chunks.count  # what must not be done is seen


def test_chunks_are_those_of_the_same_images_in_memory() -> None:
    """Coarse, of unit norm, padded; also one by one, and where some are gathered."""
    model = DeformationInvariantKMeans(3)
    images = blobs(COUNT, 16, 12)
    problem = LloydProblem(model.solver(), model.plan(16, 12))
    weight = np.linspace(1.0, 2.0, COUNT).astype(np.float32)
    streamed, resident = (
        problem.level(Data(samples, weight, 16), 2) for samples in (Counting(images), images)
    )
    index = np.array([69, 3, 3, 40, 15, 16, 0])
    np.testing.assert_array_equal(streamed.gather(index), resident.gather(index))
    np.testing.assert_array_equal(streamed.gather(np.arange(60)), resident.gather(np.arange(60)))
    np.testing.assert_array_equal(streamed.weights, resident.weights)
    assert streamed.sample == resident.sample
    assert streamed.batches[-1].samples.shape == (16, 8, 6, 1)
    for mine, theirs in zip(streamed.batches, resident.batches, strict=True):
        np.testing.assert_array_equal(mine.samples, theirs.samples)
        np.testing.assert_array_equal(mine.weight, theirs.weight)
    np.testing.assert_array_equal(streamed.batches[3].samples, resident.batches[3].samples)


class Broken(Counting):
    """Images of which the last cannot be read."""

    def read(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m height width channels"]:
        if COUNT - 1 in index:
            raise ValueError("image 69 is broken")
        return super().read(index)


def test_what_goes_wrong_while_reading_is_told_and_no_thread_is_left() -> None:
    before = threading.active_count()
    chunks = cut(Broken(IMAGES), None, size=8)
    seen: list[Batch] = []
    with pytest.raises(ValueError, match="image 69 is broken"):
        seen.extend(chunks.batches)
    assert len(seen) == 8
    for _ in chunks.batches:
        break
    assert threading.active_count() == before


def test_methods_that_hold_all_images_refuse() -> None:
    with pytest.raises(ValueError, match="take another method"):
        ProjectedScatteringSpectralClustering(3).validated(Counting(IMAGES))
    weight = np.arange(COUNT) > 0
    with pytest.raises(ValueError, match="take another method"):
        ProjectedScatteringSpectralClustering(3).fit(
            Counting(IMAGES), key=jax.random.key(0), sample_weight=weight.astype(float)
        )


def test_faulty_images_are_refused_with_their_indices() -> None:
    images = IMAGES.copy()
    images[[2, 30]] = 0.0
    with pytest.raises(ValueError, match="blank.*index 2, 30"):
        DeformationInvariantKMeans(2, landmarks=(2, 2)).prepared(Counting(images))
    images[5, 0, 0, 0] = np.inf
    with pytest.raises(ValueError, match="infinity at index 5"):
        KMeans(2).prepared(Counting(images))


def test_prototypes_of_given_clusters_are_means(key: jax.Array) -> None:
    groups = np.arange(COUNT) % 3
    model = GaussianMixture(3, training=brief())
    for images in (Counting(IMAGES), IMAGES):
        start = ("assignments", jnp.asarray(groups))
        first = model._init_learned(start, Data(images), key).clusters.prototype.mean
        for cluster in range(3):
            np.testing.assert_allclose(
                first[cluster], IMAGES[groups == cluster].mean(0), rtol=1e-6, atol=1e-7
            )


@pytest.mark.slow
def test_samples_take_a_few_bytes(tmp_path: Path) -> None:
    """Of the command line's process, as the operating system counts it."""
    done = subprocess.run(
        [sys.executable, "-m", "experiments.benchmarks.streaming", "--quick"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])["bytes_a_sample"]
    assert set(figures) == {"kmeans", "gmm"}
    assert max(figures.values()) <= 256
