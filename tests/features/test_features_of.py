import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from diffclust.features import orthogonal_complement
from diffclust.features.orthogonal_complement import (
    OnCanvas,
    features_of,
    fit_projection,
    project_images,
)
from tests.registry import blobs


def pixels(image: Array) -> Array:
    """A feature map that keeps what it sees."""
    return image.reshape(-1)


@pytest.mark.parametrize("height", [3, 4, 7])
@pytest.mark.parametrize("width", [2, 5, 8])
def test_images_lie_in_the_middle_of_a_blank_canvas(height: int, width: int) -> None:
    image = 1.0 + np.arange(height * width * 2, dtype=np.float32).reshape(height, width, 2)
    canvas = np.asarray(OnCanvas(pixels, 7, 8)(jnp.asarray(image))).reshape(7, 8, 2)
    rows, columns = (np.flatnonzero(canvas.any(axis)) for axis in ((1, 2), (0, 2)))
    np.testing.assert_array_equal(canvas[np.ix_(rows, columns)], image)
    # An odd pixel is below or to the right.
    assert rows[0] == (7 - height) // 2
    assert columns[0] == (8 - width) // 2
    assert np.count_nonzero(canvas) == image.size


def test_images_are_enlarged_by_linear_interpolation() -> None:
    image = np.random.default_rng(0).uniform(0.2, 1.0, (3, 2, 1)).astype(np.float32)
    canvas = np.asarray(OnCanvas(pixels, 12, 8, 3)(jnp.asarray(image))).reshape(12, 8)
    assert not canvas[0].any()
    assert not canvas[10:].any()
    assert not canvas[:, [0, 7]].any()

    def enlarged(values: np.ndarray) -> np.ndarray:
        """Between the centres of the pixels; beyond the outermost ones nothing changes."""
        place = (np.arange(3 * len(values)) + 0.5) / 3 - 0.5
        return np.interp(place, np.arange(len(values)), values)

    expected = np.apply_along_axis(enlarged, 1, np.apply_along_axis(enlarged, 0, image[..., 0]))
    np.testing.assert_allclose(canvas[1:10, 1:7], expected, rtol=1e-5)


def test_features_of_a_last_chunk_that_is_not_full() -> None:
    images = blobs(7, 4, 5)
    reported: list[tuple[int, int]] = []
    result = list(
        features_of(pixels, images, chunk_size=3, report=lambda *numbers: reported.append(numbers))
    )
    np.testing.assert_array_equal(np.concatenate(result), images.reshape(7, -1))
    assert [len(part) for part in result] == [3, 3, 1]
    assert reported == [(3, 7), (6, 7), (7, 7)]


def test_features_computed_twice_are_those_that_were_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    images = blobs(20, 5, 6, 2, seed=2)
    result, reported = {}, {}
    for most in (0, 2**20):
        monkeypatch.setattr(orthogonal_complement, "_MOST_STORED", most)
        stages: list[tuple[str, int, int]] = []
        result[most] = fit_projection(
            pixels,
            images,
            num_directions=6,
            chunk_size=8,
            report=lambda *reported, stages=stages: stages.append(reported),
        )
        reported[most] = stages
    (twice, coordinates), (once, kept) = result[0], result[2**20]
    np.testing.assert_array_equal(coordinates, kept)
    np.testing.assert_array_equal(twice.basis, once.basis)
    features = [("features", done, 20) for done in (8, 16, 20)]
    assert reported[2**20] == [*features, ("directions", 1, 1)]
    assert reported[0] == [*features, ("directions", 1, 1), *features]


@pytest.mark.parametrize("normalisation", ["none", "root", "standardise", "largest"])
def test_new_images_have_the_coordinates_of_the_fit(normalisation: str) -> None:
    images = blobs(20, 5, 6, seed=2)
    directions, coordinates = fit_projection(
        pixels, images, num_directions=6, normalisation=normalisation, path_size=5
    )
    assert coordinates.shape == (20, 6)
    again = project_images(pixels, directions, images[3:11], chunk_size=3)
    np.testing.assert_allclose(again, coordinates[3:11], rtol=1e-4, atol=1e-5)
    # Leading first, and about the mean.
    variances = coordinates.var(axis=0)
    assert (np.diff(variances) <= 1e-6).all()
    np.testing.assert_allclose(coordinates.mean(axis=0), 0.0, atol=1e-4)
