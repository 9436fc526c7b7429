"""What estimators have in common: from settings and rows of numbers to a fit and back."""

import contextlib
import dataclasses
import inspect
import math
from typing import Any, ClassVar

import jax
import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin
from sklearn.base import TransformerMixin as _TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    validate_data,
)

from diffclust.models import AbstractModel, Result
from diffclust.solvers import Assignment

_SKLEARN_NAMES = {
    "num_clusters": "n_clusters",
    "num_restarts": "n_init",
    "max_passes": "max_iter",
    "tolerance": "tol",
}
_LARGEST_SEED = 2**31 - 1


def _on_host(result: Result) -> Result:
    """A result whose arrays keep their precision whatever JAX's is, and where it is pickled."""
    learned = jax.tree.map(np.asarray, result.outcome.learned)
    return dataclasses.replace(result, outcome=dataclasses.replace(result.outcome, learned=learned))


def _put_back(result: Result, order: np.ndarray) -> Result:
    """A result of samples that were given in another order, in that in which they came."""
    found, back = result.outcome.assignment, np.argsort(order)
    fields = [field.name for field in dataclasses.fields(found)]
    assignment = dataclasses.replace(found, **{name: getattr(found, name)[back] for name in fields})
    return dataclasses.replace(
        result, outcome=dataclasses.replace(result.outcome, assignment=assignment)
    )


class Clusterer(ClusterMixin, BaseEstimator):
    """A model behind scikit-learn's face.

    A subclass names its model; its parameters are the model's settings, under scikit-learn's names
    where it has one, and those of `_own`.
    """

    _model: ClassVar[type[AbstractModel]]
    _own: ClassVar[dict[str, Any]] = {"random_state": None}
    _least_samples: ClassVar[int] = 1
    labels_: np.ndarray
    result_: Result

    def __init_subclass__(cls, *, model: type[AbstractModel] | None = None, **others: Any) -> None:
        """Gives the subclass an `__init__` with the parameters of its model.

        Args:
            model: The model, or None for a base of other classes.
            **others: None that are known.
        """
        super().__init_subclass__(**others)
        if model is None:
            return
        cls._model = model
        defaults = model.from_settings({"num_clusters": 8}).settings()
        named = {_SKLEARN_NAMES.get(name, name): value for name, value in defaults.items()}
        parameters = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value)
            for name, value in {**named, **cls._own}.items()
        ]
        first = parameters[0].replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = inspect.Signature([own, first, *parameters[1:]])

        def __init__(self: "Clusterer", *args: Any, **given: Any) -> None:
            bound = signature.bind(self, *args, **given)
            bound.apply_defaults()
            for name, value in list(bound.arguments.items())[1:]:
                setattr(self, name, value)

        # scikit-learn reads the parameters from here.
        __init__.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
        cls.__init__ = __init__

    def _settings(self) -> dict[str, Any]:
        """The model's settings, as they are now."""
        found = {}
        for name in self._model.setting_types():
            value = getattr(self, _SKLEARN_NAMES.get(name, name))
            found[name] = tuple(value) if isinstance(value, list) else value
        return found

    def _precision(self, X: np.ndarray) -> Any:
        """The precision in which is computed: JAX's, whatever that of the samples."""
        del X
        return contextlib.nullcontext()

    def _order(self, X: np.ndarray) -> np.ndarray | None:
        """In which order samples are given to the model; None for that in which they came."""
        del X

    def _least_features(self) -> int:
        """The fewest numbers that a sample has."""
        return 1

    def _checked(self, X: Any, *, reset: bool) -> np.ndarray:
        """Samples as an array of floats; `n_features_in_` is set or compared."""
        needed: dict[str, Any] = {"dtype": [np.float64, np.float32], "estimator": self}
        if reset:
            needed["ensure_min_samples"] = self._least_samples
            needed["ensure_min_features"] = self._least_features()
        if not (isinstance(X, np.ndarray | jax.Array) and X.ndim > 2):
            return validate_data(self, X, reset=reset, **needed)
        given = np.asarray(X)
        array = check_array(given, allow_nd=True, **needed)
        if given.dtype == np.uint8:
            array = array / 255  # as the library itself takes them
        count = int(np.prod(array.shape[1:]))
        if reset:
            self.n_features_in_ = count
        elif count != self.n_features_in_:
            raise ValueError(
                f"X has {count} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        return array

    def _samples(self, X: np.ndarray) -> np.ndarray:
        """Rows of numbers as samples of the model."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Clusters samples.

        Args:
            X: Rows of numbers `(n_samples, n_features)`, or samples of more axes as the model
                takes them.
            y: Not used.
            sample_weight: Weights of the samples, or None for ones.

        Returns:
            The estimator, fitted: `labels_`, `cluster_centers_`, `inertia_`, `n_iter_` and
            `result_`, all that the library knows of the fit.

        Raises:
            ValueError: If an argument is not what it should be.
        """
        del y
        array = self._checked(X, reset=True)
        model = self._model.from_settings(self._settings())
        if model.num_clusters > len(array):
            raise ValueError(
                f"n_samples={len(array)} should be >= n_clusters={model.num_clusters}."
            )
        extra = {}
        if sample_weight is not None:
            extra["sample_weight"] = _check_sample_weight(
                sample_weight, array, dtype=array.dtype, ensure_non_negative=True
            )
        # `RandomState` objects advance, whole numbers do not: as everywhere in scikit-learn.
        seed = check_random_state(self.random_state).randint(_LARGEST_SEED)
        order = self._order(array)
        if order is not None:
            array = array[order]
            extra = {name: value[order] for name, value in extra.items()}
        with self._precision(array):
            result = _on_host(model.fit(self._samples(array), key=jax.random.key(seed), **extra))
        self._shape = array.shape[1:]
        self.result_ = result if order is None else _put_back(result, order)
        self.labels_ = self.result_.assignments
        self.cluster_centers_ = result.prototypes.reshape(model.num_clusters, *self._shape)
        self.inertia_ = float(result.loss)
        self.n_iter_ = len(result.history)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The cluster of each sample.

        Args:
            X: As in `fit`.

        Returns:
            Integers `(n_samples,)`.
        """
        return self._assignment(X).clusters

    def score(self, X: Any, y: Any = None) -> float:
        """The opposite of the loss of samples: the greater the better.

        Args:
            X: As in `fit`.
            y: Not used.

        Returns:
            A number.
        """
        del y
        return -float(np.sum(self._assignment(X).distances))

    def _assignment(self, X: Any) -> Assignment:
        check_is_fitted(self)
        array = self._checked(X, reset=False)
        with self._precision(array):
            return self.result_.predict(self._samples(array))

    def _energies(self, X: Any) -> np.ndarray:
        """What each sample costs in every cluster, as floats of the samples' kind."""
        check_is_fitted(self)
        array = self._checked(X, reset=False)
        with self._precision(array):
            return self.result_.energies(self._samples(array)).astype(array.dtype)


class Distances(ClassNamePrefixFeaturesOutMixin, _TransformerMixin, Clusterer):
    """A model that tells how far each sample is from every cluster."""

    def transform(self, X: Any) -> np.ndarray:
        """How far each sample is from every cluster: roots of the energies.

        Args:
            X: As in `fit`.

        Returns:
            Distances `(n_samples, n_clusters)`; penalties of the alignments are part of them.
        """
        return np.sqrt(np.maximum(self._energies(X), 0.0))

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


class AnyOrder(Clusterer):
    """A model whose result depends neither on the order of samples nor on what weighs them.

    Equal samples come together, so that seeds are drawn alike from copies and from weights.
    """

    def _order(self, X: np.ndarray) -> np.ndarray:
        rows = X.reshape(len(X), -1)
        along = np.random.default_rng(0).normal(size=rows.shape[1])
        return np.argsort(rows.astype(np.float64) @ along, kind="stable")


class Images(Clusterer):
    """A model of images; rows of numbers are images whose pixels follow each other row by row."""

    _own: ClassVar[dict[str, Any]] = {"image_shape": None, "random_state": None}

    def _samples(self, X: np.ndarray) -> np.ndarray:
        if X.ndim > 2:
            return X
        height, width, *channels = self._image_shape(X.shape[1])
        return X.reshape(len(X), height, width, *(channels or [1]))

    def _image_shape(self, count: int) -> tuple[int, ...]:
        """Height, width and perhaps channels of images that have so many numbers."""
        if self.image_shape is None:
            side = math.isqrt(count)
            if side * side != count:
                raise ValueError(
                    f"X has {count} features, which make no square grey image; set image_shape to "
                    "(height, width) or (height, width, channels)"
                )
            return side, side
        shape = tuple(self.image_shape)
        if shape.count(-1) == 1:
            rest = count // max(-math.prod(shape), 1)
            shape = tuple(rest if size == -1 else size for size in shape)
        if len(shape) not in (2, 3) or min(shape) < 1 or math.prod(shape) != count:
            raise ValueError(
                f"image_shape={tuple(self.image_shape)} must be (height, width) or (height, width, "
                f"channels) of {count} features; one of them may be -1 to follow from the others"
            )
        return shape


class Warped(Images):
    """A model that bends images at landmarks, each of which needs a pixel."""

    def _least_features(self) -> int:
        return math.prod(self.landmarks)


class Predicted(Images):
    """A model whose network, which it has if it has transforms, reads 4 × 4 pixels or more."""

    def _least_features(self) -> int:
        return 16 if self.transforms else 1


class Compared(Images):
    """A model that compares images with each other."""

    _least_samples = 2


class Mixture(Images):
    """A model by which a sample belongs to several clusters in part."""

    def predict_proba(self, X: Any) -> np.ndarray:
        """The responsibility of each cluster for each sample.

        Args:
            X: As in `fit`.

        Returns:
            Shares `(n_samples, n_clusters)` that add up to one.
        """
        return softmax(-self._energies(X), axis=1)

    def score_samples(self, X: Any) -> np.ndarray:
        """The log-likelihood of each sample.

        Args:
            X: As in `fit`.

        Returns:
            Numbers `(n_samples,)`.
        """
        return logsumexp(-self._energies(X), axis=1)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of samples, as of scikit-learn's mixtures.

        Args:
            X: As in `fit`.
            y: Not used.

        Returns:
            A number.
        """
        del y
        return float(np.mean(self.score_samples(X)))
