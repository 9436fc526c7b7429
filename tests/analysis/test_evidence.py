"""The evidence of a fit: it counts samples by their weights, and is a number or refused."""

import jax
import numpy as np
import pytest
import scipy.ndimage

from diffclust.analysis.evidence import evidence_of
from diffclust.models import AffineInvariantKMeans

KEY = jax.random.key(0)


@pytest.mark.slow
def test_evidence_of_weights_is_that_of_as_many_copies():
    draw = np.random.default_rng(0)
    images = scipy.ndimage.gaussian_filter(draw.uniform(size=(12, 8, 8, 1)), (0, 1, 1, 0))
    images, start = images.astype(np.float32), np.arange(12) % 2
    counts = 1 + np.arange(12) % 3
    copies = np.repeat(np.arange(12), counts)
    model = AffineInvariantKMeans(2, num_restarts=1, max_passes=2, split_merge=False)
    weighed = model.fit(images, key=KEY, assignments=start, sample_weight=counts)
    copied = model.fit(images[copies], key=KEY, assignments=start[copies])
    np.testing.assert_array_equal(weighed.assignments[copies], copied.assignments)
    actual, _ = evidence_of(weighed, images, sample_weight=counts, pixels=10.0)
    expected, _ = evidence_of(copied, images[copies], pixels=10.0)
    assert actual == pytest.approx(expected, rel=1e-3)
    unweighed, _ = evidence_of(weighed, images, pixels=10.0)
    assert abs(actual - unweighed) > 0.01 * abs(actual)


def test_images_that_leave_no_noise_and_numbers_of_pixels_that_are_none_are_refused():
    # A single pixel, whose norm and mean have no rounding.
    copies = np.zeros((2, 4, 4, 1), np.float32)
    copies[:, 1, 2] = 1.0
    result = AffineInvariantKMeans(1, num_restarts=1, max_passes=2).fit(copies, key=KEY)
    for pixels in (0.0, np.nan):
        with pytest.raises(ValueError, match="pixels must be above 0"):
            evidence_of(result, copies, pixels=pixels)
    with pytest.raises(ValueError, match="as if every image were equal to its prototype"):
        evidence_of(result, copies)
