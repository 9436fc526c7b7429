"""Models that earlier versions saved load for ever, and predict what they predicted then."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

import diffclust
from diffclust.methods import METHODS

SAVED = Path(__file__).parents[1] / "data" / "saved_format_2.tar.gz"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model of every method, its predictions, and the samples, as version 0.1 wrote them."""
    folder = tmp_path_factory.mktemp("saved")
    with tarfile.open(SAVED) as archive:
        archive.extractall(folder, filter="data")
    return folder


OLD = [name for name, method in METHODS.items() if method.sample_kind != "series"]
"""Methods of version 0.1."""
SLOW = ("ai-kmeans", "di-kmeans", "di-spectral", "pssc", "scattering-kmeans")
"""They take long to compile, and others predict in the same ways: by descent, and by features."""


@pytest.mark.parametrize("method", OLD)
def test_model_of_version_0_1_loads(method: str, saved: Path) -> None:
    model = diffclust.load(saved / method).model
    assert model.method == method
    # Which was saved before there was this setting, and fitted as with this value.
    assert model.settings().get("bias_correction", "fit") == "fit"
    assert getattr(model, "register", "none") == "none"


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in OLD]
)
def test_model_of_version_0_1_predicts_what_it_did(method: str, saved: Path) -> None:
    result = diffclust.load(saved / method)
    kind = "shapes" if METHODS[method].sample_kind == "shape" else "images"
    with np.load(saved / "samples.npz") as samples, np.load(saved / f"{method}.npz") as expected:
        actual = result.predict(samples[kind])
        np.testing.assert_array_equal(actual.clusters, expected["clusters"])
        np.testing.assert_allclose(actual.distances, expected["distances"], rtol=1e-4, atol=1e-4)


def test_figures_of_version_0_1_have_their_present_names(saved: Path) -> None:
    figures = diffclust.load(saved / "shape-kmeans").outcome.figures
    assert figures["num_clipped"] == 0.0
    assert "floored" not in figures
