"""A model with an objective of the user's own."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust import DTIKMeans, Training, load, save
from diffclust.distances import SquaredEuclidean
from diffclust.energies import HardMinimum
from diffclust.models import PrototypeObjective, warped_prototypes
from tests.registry import blobs

TRAINING = Training(max_steps=20, batch_size=8, split_merge=False, curriculum=False)
OWN = PrototypeObjective(SquaredEuclidean(), HardMinimum(), followed=1)


@pytest.mark.slow
@pytest.mark.parametrize("double", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_same_objective_gives_the_same_result(key: jax.Array, double: bool) -> None:
    with jax.enable_x64(double):
        images = blobs(16).astype(jnp.result_type(float))
        base = DTIKMeans(3, transforms="aff", training=TRAINING)
        expected = base.fit(images, key=key)
        result = dataclasses.replace(base, own_objective=OWN).fit(images, key=key)
        np.testing.assert_array_equal(result.prototypes, expected.prototypes)
        np.testing.assert_array_equal(result.assignments, expected.assignments)
        assert result.prototypes.dtype == images.dtype
        assert result.history == expected.history
        again = result.predict(images)
        np.testing.assert_array_equal(again.clusters, expected.assignments)
        moved = warped_prototypes(result, again.clusters, again.params)
        assert moved.shape == images.shape


def test_it_is_loaded_with_the_model_that_was_fitted(key: jax.Array, tmp_path: Path) -> None:
    base = DTIKMeans(2, transforms="", training=TRAINING)
    model = dataclasses.replace(base, own_objective=OWN)
    images = blobs(8)
    result = model.fit(images, key=key)
    save(tmp_path / "model", result)
    again = load(tmp_path / "model", like=model)
    np.testing.assert_array_equal(again.predict(images).distances, result.predict(images).distances)
    for like in (None, base):
        with pytest.raises(ValueError, match="user's own|PrototypeObjective"):
            load(tmp_path / "model", like=like)


def test_a_short_list_is_refused() -> None:
    with pytest.raises(ValueError, match="shortlist=2"):
        DTIKMeans(3, training=Training(shortlist=2), own_objective=OWN)
