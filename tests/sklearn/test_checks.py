"""Every estimator under scikit-learn's own checks: it fails those alone that are told."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data as check_weights,
)

from diffclust import sklearn
from diffclust.models import AbstractModel
from diffclust.sklearn import EXPECTED_FAILURES, expected_failed_checks

ROW, TWO_ROWS, FIVE_ROWS = ((height, -1) for height in (1, 2, 5))
SCATTERING = {"num_angles": 2, "num_dimensions": 2, "num_scales": 1}
QUICK: dict[str, dict[str, Any]] = {
    "KMeans": {},
    "AffineInvariantKMeans": {"image_shape": ROW, "max_iter": 2, "split_merge": False},
    "DeformationInvariantKMeans": {
        "image_shape": TWO_ROWS, "landmarks": (2, 2), "max_iter": 2, "split_merge": False,
    },
    "TransformationInvariantKMeans": {"image_shape": ROW, "align_steps": 1, "steps": (0, 2, 0)},
    "DTIKMeans": {"image_shape": FIVE_ROWS, "transforms": "aff", "steps": (0, 2, 0)},
    "DTIGaussianMixture": {"image_shape": FIVE_ROWS, "transforms": "aff", "steps": (0, 2, 0)},
    "GaussianMixture": {"image_shape": ROW, "steps": (5, 0)},
    "ScatteringKMeans": {"image_shape": ROW, "max_iter": 3, "num_removed": 0, **SCATTERING},
    "ProjectedScatteringSpectralClustering": {
        "image_shape": ROW, "num_removed": (0,), "num_neighbours": (2,), **SCATTERING,
    },
    "DeformationInvariantSpectralClustering": {
        "image_shape": TWO_ROWS, "landmarks": (2, 2), "num_removed": (0,), "num_neighbours": (2,),
        "num_candidates": 3, **SCATTERING,
    },
    "ShapeKMeans": {"max_iter": 2},
    "SeriesKMeans": {"max_iter": 2, "split_merge": False},
    "SeriesSpectralClustering": {"num_candidates": 3, "num_neighbours": (2,), "warps": False},
}  # fmt: skip
"""Settings under which a fit takes next to no time, most of which is compilation."""

SAID = {
    "rows of": "Found array with|image_shape=",
    "one row is all zero": r"blank images at",
    "in single precision": "is not equivalent",
    "training draws": "is not equivalent",
    "copies become": "is not equivalent",
    "runs begin": "is not equivalent",
    "series of two": "^ None$",
    "of rows of two": "would lose their digits",
    "of a row of two numbers one is NaN": "holds fewer than two values",
}
"""How a reason begins, and what the error then says: a check may fail for another one."""

IN_SECONDS = ("ShapeKMeans",)


@pytest.fixture(autouse=True)
def _forget_programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """A slow one compiles hundreds of programs that no other runs; a process holds only so many."""
    yield
    if request.node.get_closest_marker("slow"):
        jax.clear_caches()


def small(kind: type[BaseEstimator], name: str) -> BaseEstimator:
    return kind(n_clusters=2, n_init=1, random_state=0, **QUICK[name])


def by_chance(check: dict[str, Any]) -> bool:
    """Whether a check that is expected to fail may pass: a few samples can be cut alike anyhow."""
    return check["expected_to_fail_reason"].startswith("copies become")


def check_exactly(estimator: BaseEstimator, expected: dict[str, str]) -> None:
    """Runs all checks, of which those expected to fail must do so, for their reason."""
    reported = check_estimator(
        estimator, expected_failed_checks=expected, on_skip=None, on_fail=None
    )  # fmt: skip
    wrong = [
        f"{check['check_name']}: {check['status']} {check['exception']}"
        for check in reported
        if check["status"] == "failed"
        or (check["expected_to_fail"] and check["status"] != "xfail" and not by_chance(check))
    ]
    assert not wrong, "\n".join(wrong)
    assert expected.keys() <= {check["check_name"] for check in reported}
    for check in reported:
        if check["status"] == "xfail":
            error, reason = check["exception"], check["expected_to_fail_reason"]
            (said,) = [text for start, text in SAID.items() if reason.startswith(start)]
            assert re.search(said, f"{error} {error.__cause__}"), (check["check_name"], error)


@pytest.mark.parametrize(
    "name",
    [name if name in IN_SECONDS else pytest.param(name, marks=pytest.mark.slow) for name in QUICK],
)
def test_no_check_fails_but_those_that_are_told(name: str) -> None:
    estimator = small(getattr(sklearn, name), name)
    check_exactly(estimator, expected_failed_checks(estimator))


def test_what_is_told_is_of_estimators() -> None:
    named = {name for failures in EXPECTED_FAILURES for name in failures.estimators}
    assert (
        named
        < set(QUICK)
        == {n for n in sklearn.__all__ if hasattr(getattr(sklearn, n), "_settings")}
    )
    assert expected_failed_checks(sklearn.KMeans()) == {}


def test_the_page_lists_what_is_told() -> None:
    rows = [
        f"| {' '.join(f'`{name}`' for name in failures.estimators)} | {failures.reason} "
        f"| {' '.join(f'`{name}`' for name in failures.checks)} |"
        for failures in EXPECTED_FAILURES
    ]
    page = (Path(__file__).parents[2] / "docs" / "sklearn.md").read_text("utf-8")
    assert [line for line in page.splitlines() if "`check_" in line and line[0] == "|"] == rows


class Bars:
    """Rows of few numbers as images that are large enough: each number is a bar of 4 pixels."""

    def _least_features(self, model: AbstractModel) -> int:
        return 1

    def _checked(self, X: Any, model: AbstractModel | None = None) -> np.ndarray:
        rows = super()._checked(X, model)  # pyright: ignore
        return np.repeat(np.repeat(rows[:, None, :, None], 4, axis=1), 4, axis=2)


class DeformedBars(Bars, sklearn.DeformationInvariantKMeans):
    pass


class SpectralBars(Bars, sklearn.DeformationInvariantSpectralClustering):
    pass


class PredictedBars(Bars, sklearn.DTIKMeans):
    pass


class MixedBars(Bars, sklearn.DTIGaussianMixture):
    pass


class Polygons(sklearn.ShapeKMeans):
    """Rows of few numbers as shapes: each is how high a landmark lies beside three that stay."""

    def _least_features(self, model: AbstractModel) -> int:
        return 1

    def _checked(self, X: Any, model: AbstractModel | None = None) -> np.ndarray:
        rows = super()._checked(X, model)
        along = np.broadcast_to(100.0 * np.arange(rows.shape[1]), rows.shape)
        stay = np.broadcast_to([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]], (len(rows), 3, 2))
        return np.concatenate([stay, np.stack([along, rows], axis=-1)], axis=1).astype(rows.dtype)


LARGE_ENOUGH = {
    "DeformationInvariantKMeans": DeformedBars,
    "DeformationInvariantSpectralClustering": SpectralBars,
    "DTIKMeans": PredictedBars,
    "DTIGaussianMixture": MixedBars,
    "ShapeKMeans": Polygons,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE_ENOUGH)
def test_with_more_numbers_they_fail_no_more_than_others(name: str) -> None:
    reported = expected_failed_checks(small(getattr(sklearn, name), name))
    expected = {check: why for check, why in reported.items() if not why.startswith("rows of")}
    if name.startswith("Deformation"):
        expected = expected_failed_checks(sklearn.AffineInvariantKMeans()) | expected
    check_exactly(small(LARGE_ENOUGH[name], name), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AffineInvariantKMeans", "DeformationInvariantKMeans"])
def test_weights_are_copies_in_double_precision(name: str) -> None:
    with jax.enable_x64(True):
        check_weights(name, small(getattr(sklearn, name), name))


def test_weights_are_copies_of_shapes_with_other_seeds() -> None:
    check_weights(
        "ShapeKMeans", small(sklearn.ShapeKMeans, "ShapeKMeans").set_params(seeding="k-means++")
    )
