"""Samples of a review: what is compared, pictures of any size, and images that stay on the disk."""

import io
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

from diffclust.data import Dataset, SeriesSet
from diffclust.data.stream import open_stream
from diffclust.models import Result, SeriesKMeans
from diffclust.review import ReviewSamples
from tests.review.made import COUNT, fitted


@pytest.fixture(scope="module")
def result() -> Result:
    return fitted()[0]


def test_large_images_are_compared_by_means_of_blocks(result: Result) -> None:
    images = np.random.default_rng(0).uniform(size=(5, 40, 20, 3)).astype(np.float32)
    points = ReviewSamples(result, Dataset(images)).points
    # Blocks of 3 x 3; at the edges what is left of them.
    padded = np.zeros((5, 42, 21, 3), np.float32)
    padded[:, :40, :20] = images
    expected = padded.reshape(5, 14, 3, 7, 3, 3).mean(axis=(2, 4)).reshape(5, -1)
    np.testing.assert_allclose(points, expected, rtol=1e-5)


def test_large_pictures_are_made_smaller(result: Result) -> None:
    images = np.random.default_rng(0).uniform(size=(2, 700, 350, 3)).astype(np.float32)
    kind, content = ReviewSamples(result, Dataset(images)).picture(1)
    assert kind == "image/png"
    with Image.open(io.BytesIO(content)) as picture:
        assert (picture.size, picture.mode) == ((160, 320), "RGB")


def test_lines_of_series_are_opaque() -> None:
    series = np.random.default_rng(0).normal(size=(6, 12, 1)).astype(np.float32)
    model = SeriesKMeans(1, num_restarts=1, max_passes=1, warps=False)
    drawn = model.fit(series, key=jax.random.key(0))
    kind, content = ReviewSamples(drawn, SeriesSet(series)).picture(1)
    assert kind == "image/svg+xml"
    assert b'style="--line: 1"' in content
    assert b"var(--line" in content


def test_images_that_stay_on_the_disk(result: Result, tmp_path: Path) -> None:
    images = np.random.default_rng(0).uniform(size=(9, 6, 6)).astype(np.float32)
    np.save(tmp_path / "images.npy", images)
    streamed = ReviewSamples(result, open_stream(str(tmp_path / "images.npy")))
    held = ReviewSamples(result, Dataset(images[..., None]))
    np.testing.assert_array_equal(streamed.points, held.points)
    assert streamed.picture(3) == held.picture(3)


def test_kept_coordinates_are_compared(result: Result) -> None:
    _, dataset = fitted()
    line = np.arange(COUNT, dtype=np.float32)[:, None] ** 2
    samples = ReviewSamples(result, dataset, line)
    assert samples.nearest(10, 4).tolist() == [10, 9, 11, 8]
    assert "scattering" in samples.compared
    # The smaller group is the one that moves, whichever comes first.
    for few in (range(9), range(40, COUNT)):
        line = np.arange(COUNT, dtype=np.float32)[:, None]
        line[few] += 1000.0
        halves = ReviewSamples(result, dataset, line).halves(np.arange(COUNT))
        assert np.flatnonzero(halves).tolist() == [*few]


def test_what_cannot_be_split(result: Result) -> None:
    samples = ReviewSamples(result, Dataset(np.full((4, 8, 8, 1), 0.5, np.float32)))
    for members in ([], [2], [0, 1, 3]):
        with pytest.raises(ValueError, match="no two kinds"):
            samples.halves(np.array(members, np.int64))


def test_other_samples_than_there_are(result: Result) -> None:
    samples = ReviewSamples(result, fitted()[1])
    for sample in (-1, COUNT):
        with pytest.raises(LookupError, match=f"there is no image {sample}"):
            samples.picture(sample)
        with pytest.raises(LookupError, match="there is no image"):
            samples.nearest(sample, 3)
    with pytest.raises(LookupError, match="are no recordings"):
        samples.sound(0)
