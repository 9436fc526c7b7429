"""Which of scikit-learn's own checks an estimator fails, and why.

They are true of scikit-learn's tables with `image_shape=(1, -1)`, and where there are landmarks or
networks `(2, -1)` or `(5, -1)`: rows that are no square image need a shape.
"""

import dataclasses
from collections.abc import Iterable

from diffclust.methods import METHODS, Method
from diffclust.models import MODELS
from diffclust.sklearn.estimators import Clusterer


@dataclasses.dataclass(frozen=True)
class ExpectedFailures:
    """Checks that some estimators fail for one reason.

    Attributes:
        reason: Why.
        estimators: Names of the estimators.
        checks: Names of the checks.
    """

    reason: str
    estimators: tuple[str, ...]
    checks: tuple[str, ...]


_EQUIVALENCE = "check_sample_weight_equivalence_on_dense_data"
_TOO_SMALL = (
    "rows of up to 5 numbers make no image of 2 × 2 pixels, as landmarks need, or of 4 × 4, as "
    "networks do, and no shape of 3 landmarks"
)


_LARGE = [
    method
    for method in METHODS.values()
    if MODELS[method.name].from_settings({"num_clusters": 1}).least_size > 2
]
_PREDICTED = [method for method in _LARGE if method.solver == "gradient"]
_SHAPES = [method for method in _LARGE if method.sample_kind == "shape"]
_SEARCHED = [
    method
    for method in METHODS.values()
    if method.solver == "lloyd" and method.moves == "samples" and method not in _SHAPES
]


def _expect(reason: str, methods: Iterable[Method], checks: str) -> ExpectedFailures:
    """Names of checks are separated by blanks."""
    return ExpectedFailures(reason, tuple(m.model for m in methods), tuple(checks.split()))


EXPECTED_FAILURES = (
    _expect(
        _TOO_SMALL,
        _LARGE,
        """
        check_clustering check_dict_unchanged check_dont_overwrite_parameters
        check_estimators_dtypes check_estimators_fit_returns_self check_estimators_nan_inf
        check_estimators_overwrite_params check_estimators_pickle
        check_f_contiguous_array_estimator check_fit2d_predict1d check_fit_check_is_fitted
        check_fit_idempotent check_fit_score_takes_y check_methods_sample_order_invariance
        check_methods_subset_invariance check_n_features_in check_pipeline_consistency
        check_readonly_memmap_input check_sample_weights_list check_sample_weights_not_an_array
        check_sample_weights_not_overwritten check_sample_weights_shape
        """,
    ),
    _expect(
        _TOO_SMALL,
        [m for m in _LARGE if m.has_prototypes and not m.words.is_density],
        """
        check_transformer_data_not_an_array check_transformer_general
        check_transformer_preserve_dtypes
        """,
    ),
    _expect(_TOO_SMALL, [m for m in _LARGE if m in _SEARCHED], "check_transformer_n_iter"),
    _expect(
        "rows of 4 numbers make no image of 4 × 4 pixels, and no shape of 3 landmarks",
        [*_PREDICTED, *_SHAPES],
        "check_n_features_in_after_fitting check_positive_only_tag_during_fit",
    ),
    _expect(
        "rows of 4 numbers make no shape of 3 landmarks",
        _SHAPES,
        "check_non_transformer_estimators_n_iter",
    ),
    _expect(
        "rows of 10 numbers make no image of 4 × 4 pixels",
        _PREDICTED,
        "check_dtype_object check_fit2d_1sample",
    ),
    _expect(
        "one row is all zero, and a blank image cannot be scaled to unit norm",
        [m for m in _SEARCHED if m.sample_kind == "image" and m not in _LARGE],
        "check_estimators_dtypes",
    ),
    _expect(
        "in single precision an alignment ends a little elsewhere for a weight than for copies; "
        "with jax_enable_x64 it passes",
        _SEARCHED,
        _EQUIVALENCE,
    ),
    _expect(
        "series of two values are brought together by warps of time, whatever blob they are of",
        [m for m in METHODS.values() if m.sample_kind == "series"],
        "check_clustering",
    ),
    _expect(
        "of rows of two numbers near 100 some hardly vary, and would lose their digits in single "
        "precision",
        [m for m in METHODS.values() if m.sample_kind == "series"],
        "check_fit_check_is_fitted",
    ),
    _expect(
        "of a row of two numbers one is NaN, and one value is no series",
        [m for m in METHODS.values() if m.sample_kind == "series"],
        "check_estimators_pickle",
    ),
    _expect(
        "training draws batches of samples, and copies make other batches than a weight does",
        [m for m in METHODS.values() if m.solver == "gradient"],
        _EQUIVALENCE,
    ),
    _expect(
        "copies become each other's neighbours in the graph, and a weight has no such neighbours",
        [m for m in METHODS.values() if m.selection == "eigengap"],
        _EQUIVALENCE,
    ),
    _expect(
        "runs begin with groups that are drawn shape by shape, whatever a shape weighs; with "
        "seeding='k-means++' it passes",
        _SHAPES,
        _EQUIVALENCE,
    ),
)
"""Every failure that is known; K-means has none."""


def expected_failed_checks(estimator: Clusterer) -> dict[str, str]:
    """Returns what scikit-learn's `check_estimator` takes by this name.

    Args:
        estimator: One of this package.

    Returns:
        The reason of each check that the estimator fails.
    """
    return {
        check: failures.reason
        for failures in EXPECTED_FAILURES
        if estimator._method.model in failures.estimators
        for check in failures.checks
    }
