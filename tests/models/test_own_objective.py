"""A model with an objective of the user's own."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust import DTIKMeans, Training, load, save
from diffclust.data import Dataset
from diffclust.distances import SquaredEuclidean
from diffclust.energies import HardMinimum
from diffclust.models import PrototypeObjective, warped_prototypes
from diffclust.report import write_report
from diffclust.sampling import Boundary
from diffclust.transforms import AbstractSpatialTransform, AbstractTransform, Affine
from tests.registry import Gain, blobs

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


class Lens(AbstractSpatialTransform):
    """Radial distortion: u ↦ u (1 + s p |u|²)."""

    strength: float = 1.0
    boundary: Boundary = eqx.field(static=True, default="edge")

    @property
    def num_params(self) -> int:
        return 1

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        return ("lens",)

    def deformation(self, params: jax.Array) -> jax.Array:
        return params**2

    def bind_map(self, points: jax.Array) -> Callable:
        bent = self.strength * points * jnp.sum(points**2, axis=0)[None]
        return lambda params: points + params[0] * bent


def test_transforms_of_one_s_own_move_prototypes(key: jax.Array, tmp_path: Path) -> None:
    def with_lens(strength: float) -> DTIKMeans:
        moves = (Affine(boundary="edge"), Lens(strength))
        objective = dataclasses.replace(OWN, transforms=moves)
        return DTIKMeans(2, training=TRAINING, own_objective=objective)

    model, images = with_lens(1.0), blobs(16)
    assert model.transform_names == ("Affine", "Lens")
    result = model.fit(images, key=key)
    assert result.outcome.assignment.params.shape == (16, 6 + 1)
    assert np.any(result.outcome.assignment.params[:, 6] != 0.0)
    write_report(tmp_path / "report.html", result, Dataset(images))
    assert "After <code>Lens</code> as well." in (tmp_path / "report.html").read_text("utf-8")
    save(tmp_path / "model", result)
    again = load(tmp_path / "model", like=model)
    np.testing.assert_array_equal(again.predict(images).clusters, result.assignments)
    with pytest.raises(ValueError, match=r"transforms.1.strength 1.0, and like= has 2.0"):
        load(tmp_path / "model", like=with_lens(2.0))


def test_a_short_list_is_refused() -> None:
    with pytest.raises(ValueError, match="shortlist=2"):
        DTIKMeans(3, training=Training(shortlist=2), own_objective=OWN)


def test_transforms_of_an_objective_and_of_the_model_are_not_both_given() -> None:
    objective = dataclasses.replace(OWN, transforms=(Affine(),))
    DTIKMeans(2, own_objective=objective)
    with pytest.raises(ValueError, match="transforms are those of own_objective, not 'aff'"):
        DTIKMeans(2, transforms="aff", own_objective=objective)


class Means(Gain):
    """A transform of means alone."""

    bind_variance = AbstractTransform.bind_variance


def test_transforms_that_do_not_move_variances_are_refused_by_a_mixture() -> None:
    dataclasses.replace(OWN, transforms=(Means(),))
    with pytest.raises(ValueError, match="Means does not say how it moves variances"):
        dataclasses.replace(OWN, transforms=(Affine(), Means()), initial_variance=0.1)
