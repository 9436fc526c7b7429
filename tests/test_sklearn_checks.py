"""Every estimator under scikit-learn's own checks: it fails those alone that are told."""

import re
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import check_estimator

from diffclust import sklearn
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
}  # fmt: skip
"""Settings under which a fit takes next to no time, most of which is compilation."""

SAID = {
    "rows of": "Found array with|image_shape=",
    "one row is all zero": r"blank images \(all zero\)",
    "in single precision": r"is not equivalent",
    "training draws": "is not equivalent",
}
"""How a reason begins, and what the error then says: a check may fail for another one."""

IN_SECONDS = ("GaussianMixture", "ShapeKMeans")


def small(kind: type[BaseEstimator], name: str) -> BaseEstimator:
    return kind(n_clusters=2, n_init=1, random_state=0, **QUICK[name])


def check_exactly(estimator: BaseEstimator, expected: dict[str, str]) -> None:
    """Runs all checks, of which those expected to fail must do so, for their reason."""
    told = check_estimator(
        estimator, expected_failed_checks=expected, on_skip=None, on_fail=None
    )  # fmt: skip
    wrong = [
        f"{check['check_name']}: {check['status']} {check['exception']}"
        for check in told
        if check["status"] == "failed" or (check["expected_to_fail"] and check["status"] != "xfail")
    ]
    assert not wrong, "\n".join(wrong)
    assert expected.keys() <= {check["check_name"] for check in told}
    for check in told:
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
    assert named < set(QUICK) == {n for n in sklearn.__all__ if hasattr(getattr(sklearn, n), "fit")}
    assert expected_failed_checks(sklearn.KMeans()) == {}


class Bars:
    """Rows of few numbers as images that are large enough: each number is a bar of 4 pixels."""

    def _least_features(self) -> int:
        return 1

    def _checked(self, X: Any, *, reset: bool) -> np.ndarray:
        rows = super()._checked(X, reset=reset)  # pyright: ignore
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

    def _least_features(self) -> int:
        return 1

    def _checked(self, X: Any, *, reset: bool) -> np.ndarray:
        rows = super()._checked(X, reset=reset)
        along = np.broadcast_to(100.0 * np.arange(rows.shape[1]), rows.shape)
        stay = np.broadcast_to([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]], (len(rows), 3, 2))
        return np.concatenate([stay, np.stack([along, rows], axis=-1)], axis=1).astype(rows.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DeformedBars, SpectralBars, PredictedBars, MixedBars, Polygons])
def test_rows_are_all_that_is_too_small(kind: type[BaseEstimator]) -> None:
    name = kind.__mro__[1 if kind is Polygons else 2].__name__
    told = expected_failed_checks(small(getattr(sklearn, name), name))
    others = {check: why for check, why in told.items() if not why.startswith("rows of")}
    if kind is DeformedBars:
        others |= expected_failed_checks(sklearn.AffineInvariantKMeans())
    check_exactly(small(kind, name), others)
