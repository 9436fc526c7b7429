"""Which of scikit-learn's own checks an estimator fails, and why.

They are true of scikit-learn's tables with `image_shape=(1, -1)`, and where there are landmarks or
networks `(2, -1)` or `(5, -1)`: rows that are no square image need a shape.
"""

import dataclasses
from collections.abc import Callable

from sklearn.base import BaseEstimator

from diffclust.methods import METHODS, Method
from diffclust.models import MODELS


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


def _expect(reason: str, applies: Callable[[Method], bool], checks: str) -> ExpectedFailures:
    """Names of checks are separated by blanks."""
    estimators = tuple(method.model for method in METHODS.values() if applies(method))
    return ExpectedFailures(reason, estimators, tuple(checks.split()))


def _is_large(method: Method) -> bool:
    """Whether samples are more than a few numbers."""
    return MODELS[method.name].from_settings({"num_clusters": 1}).least_size > 2


def _has_distances(method: Method) -> bool:
    return method.has_prototypes and not method.words.is_density


def _is_predicted(method: Method) -> bool:
    return method.solver == "gradient" and _is_large(method)


def _is_shapes(method: Method) -> bool:
    return method.sample_kind == "shape"


def _descends(method: Method) -> bool:
    """Whether samples are moved by a search of params."""
    return method.solver == "lloyd" and method.moves == "samples" and not _is_shapes(method)


EXPECTED_FAILURES = (
    _expect(
        _TOO_SMALL,
        _is_large,
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
        lambda method: _is_large(method) and _has_distances(method),
        """
        check_transformer_data_not_an_array check_transformer_general
        check_transformer_preserve_dtypes
        """,
    ),
    _expect(
        _TOO_SMALL,
        lambda method: _is_large(method) and _descends(method),
        "check_transformer_n_iter",
    ),
    _expect(
        "rows of 4 numbers make no image of 4 × 4 pixels, and no shape of 3 landmarks",
        lambda method: _is_predicted(method) or _is_shapes(method),
        "check_n_features_in_after_fitting check_positive_only_tag_during_fit",
    ),
    _expect(
        "rows of 4 numbers make no shape of 3 landmarks",
        _is_shapes,
        "check_non_transformer_estimators_n_iter",
    ),
    _expect(
        "rows of 10 numbers make no image of 4 × 4 pixels",
        _is_predicted,
        "check_dtype_object check_fit2d_1sample",
    ),
    _expect(
        "one row is all zero, and an image without ink cannot be scaled to unit norm",
        lambda method: (
            _descends(method) and method.sample_kind == "image" and not _is_large(method)
        ),
        "check_estimators_dtypes",
    ),
    _expect(
        "in single precision an alignment ends a little elsewhere for a weight than for copies; "
        "with jax_enable_x64 it passes",
        _descends,
        _EQUIVALENCE,
    ),
    _expect(
        "series of two values are brought together by warps of time, whatever blob they are of",
        lambda method: method.sample_kind == "series",
        "check_clustering",
    ),
    _expect(
        "training draws batches of samples, and copies make other batches than a weight does",
        lambda method: method.solver == "gradient",
        _EQUIVALENCE,
    ),
    _expect(
        "copies become each other's neighbours in the graph, and a weight has no such neighbours",
        lambda method: method.selection == "eigengap",
        _EQUIVALENCE,
    ),
    _expect(
        "runs begin with groups that are drawn shape by shape, whatever a shape weighs; with "
        "seeding='k-means++' it passes",
        _is_shapes,
        _EQUIVALENCE,
    ),
)
"""Every failure that is known; K-means has none."""


def expected_failed_checks(estimator: BaseEstimator) -> dict[str, str]:
    """What scikit-learn's `check_estimator` and `parametrize_with_checks` take by this name.

    Args:
        estimator: One of this package.

    Returns:
        The reason of each check that the estimator fails.
    """
    return {
        check: failures.reason
        for failures in EXPECTED_FAILURES
        if type(estimator).__name__ in failures.estimators
        for check in failures.checks
    }
