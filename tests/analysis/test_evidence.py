"""The evidence of a fit counts samples by their weights."""

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
