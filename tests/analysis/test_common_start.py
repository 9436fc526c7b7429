"""What the methods of a comparison take over from the one that was fitted."""

from typing import Any

import jax
import numpy as np
import pytest

from diffclust import AffineInvariantKMeans, DeformationInvariantKMeans, KMeans
from diffclust.analysis import fit_from_common_start
from diffclust.analysis.common_start import other_method
from diffclust.masks import as_mask

UPRIGHT: dict[str, Any] = {"register": "upright", "ground": "none"}


def weights(model: Any, name: str) -> tuple[float, ...]:
    other: Any = other_method(model, name)
    return other.without_registration.penalty()


def test_each_method_weighs_maps_as_is_usual_for_it_and_for_the_frame() -> None:
    for given in (AffineInvariantKMeans, DeformationInvariantKMeans, KMeans):
        assert weights(given(3), "ai-kmeans") == (0.5,)
        assert weights(given(3), "di-kmeans") == (0.5, 0.015)
        assert weights(given(3, **UPRIGHT), "ai-kmeans") == (0.5,)
        assert weights(given(3, **UPRIGHT), "di-kmeans") == (1.0, 0.012)
    for model in (AffineInvariantKMeans, DeformationInvariantKMeans):
        assert weights(model(3, affine_penalty=2.0), "ai-kmeans") == (2.0,)
        assert weights(model(3, affine_penalty=2.0, **UPRIGHT), "di-kmeans") == (2.0, 0.012)


def test_a_mask_hides_pixels_of_images_that_are_not_registered() -> None:
    mask = as_mask(np.eye(4, dtype=np.float32))
    frames: list[tuple[dict[str, Any], str | None]] = [({}, mask), (UPRIGHT, None)]
    for frame, expected in frames:
        other = other_method(DeformationInvariantKMeans(3, mask=mask, **frame), "kmeans")
        assert other.without_registration.mask == expected
        assert not other.without_registration.registers


@pytest.mark.slow
def test_the_start_of_a_weighed_fit_is_drawn_again_with_its_weights():
    draw = np.random.default_rng(0)
    images = draw.uniform(size=(40, 6, 6, 1)).astype(np.float32)
    weight = np.where(np.arange(40) % 4 == 3, draw.uniform(0.5, 2.0, 40), 0.0)
    model = KMeans(3, num_restarts=2, split_merge=False)
    result = model.fit(images, key=jax.random.key(0), sample_weight=weight)
    common = fit_from_common_start(result, images, (), key=jax.random.key(0), sample_weight=weight)
    assert (weight[common.indices] > 0).all()
    np.testing.assert_array_equal(common.start, images[common.indices])
    again = model.fit(images, key=jax.random.key(0), prototypes=common.start, sample_weight=weight)
    np.testing.assert_array_equal(again.assignments, result.assignments)
    assert again.loss == pytest.approx(result.loss, rel=1e-6)


@pytest.mark.slow
def test_the_start_is_that_of_the_best_restart() -> None:
    images = np.random.default_rng(0).uniform(size=(40, 6, 6, 1)).astype(np.float32)
    model, best = KMeans(4, num_restarts=3, split_merge=False), set()
    for seed in range(4):
        result = model.fit(images, key=jax.random.key(seed))
        best.add(int(np.argmin(result.outcome.restarts)))
        start = fit_from_common_start(result, images, (), key=jax.random.key(seed)).start
        again = model.fit(images, key=jax.random.key(0), prototypes=start)
        np.testing.assert_array_equal(again.assignments, result.assignments)
    assert best != {0}


@pytest.mark.slow
def test_other_methods_are_given_the_weights() -> None:
    images = np.random.default_rng(0).uniform(size=(12, 6, 6, 1)).astype(np.float32)
    weight = np.where(np.arange(12) < 9, 2.0, 0.0)
    result = KMeans(2, num_restarts=1, max_passes=2, split_merge=False).fit(
        images, key=jax.random.key(0), sample_weight=weight
    )
    (other,) = fit_from_common_start(
        result, images, ["ai-kmeans"], key=jax.random.key(0), sample_weight=weight
    ).results
    assert other.loss == pytest.approx(float(np.sum(weight * other.distances)), rel=1e-4)
