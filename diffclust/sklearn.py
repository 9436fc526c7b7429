"""The library's methods as scikit-learn's estimators.

Take these in a `Pipeline` or a `GridSearchCV`, or where a program expects `fit_predict`. Everything
else (reports, saving, several devices) is offered by the fitted `result_`.
"""

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

from diffclust import models
from diffclust.models import AbstractModel, Result

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


class _Clusterer(ClusterMixin, BaseEstimator):
    """A model behind scikit-learn's face.

    A subclass names its model; its parameters are the model's settings, under scikit-learn's names
    where it has one, and those of `_own`.
    """

    _model: ClassVar[type[AbstractModel]]
    _own: ClassVar[dict[str, Any]] = {"random_state": None}
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

        def __init__(self: "_Clusterer", *args: Any, **given: Any) -> None:
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

    def _checked(self, X: Any, *, reset: bool) -> np.ndarray:
        """Samples as an array of floats; `n_features_in_` is set or compared."""
        floats = [np.float64, np.float32]
        if not (isinstance(X, np.ndarray | jax.Array) and X.ndim > 2):
            return validate_data(self, X, reset=reset, dtype=floats)
        array = check_array(np.asarray(X), allow_nd=True, dtype=floats)
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
            sample_weight: Weights of the samples, or None for ones; for models that take them.

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
            if "sample_weight" not in inspect.signature(model.fit).parameters:
                raise ValueError(f"{type(self).__name__} has no sample weights; leave them out")
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
        self.result_ = result
        self.labels_ = result.assignments
        if order is not None:
            self.labels_ = np.empty_like(self.labels_)
            self.labels_[order] = result.assignments
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
        check_is_fitted(self)
        array = self._checked(X, reset=False)
        with self._precision(array):
            return self.result_.predict(self._samples(array)).clusters

    def score(self, X: Any, y: Any = None) -> float:
        """The opposite of the loss of samples: the greater the better.

        Args:
            X: As in `fit`.
            y: Not used.

        Returns:
            A number.
        """
        del y
        check_is_fitted(self)
        array = self._checked(X, reset=False)
        with self._precision(array):
            return -float(np.sum(self.result_.predict(self._samples(array)).distances))

    def _energies(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        array = self._checked(X, reset=False)
        with self._precision(array):
            return self.result_.energies(self._samples(array))


class _Distances(ClassNamePrefixFeaturesOutMixin, _TransformerMixin, _Clusterer):
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


class KMeans(_Distances, model=models.KMeans):
    """K-means of rows of numbers: see `diffclust.KMeans`.

    It computes in the precision of what it is given, and the order of samples does not matter.
    """

    def _precision(self, X: np.ndarray) -> Any:
        return jax.enable_x64(X.dtype == np.float64)

    def _order(self, X: np.ndarray) -> np.ndarray:
        # Equal rows come together, so that seeds are drawn alike from copies and from weights.
        along = np.random.default_rng(0).normal(size=X.shape[1])
        return np.argsort(X.astype(np.float64) @ along, kind="stable")

    def _samples(self, X: np.ndarray) -> np.ndarray:
        return X.reshape(len(X), 1, -1, 1)


class _Images(_Clusterer):
    """A model of images; rows of numbers are images whose pixels follow each other row by row."""

    _own: ClassVar[dict[str, Any]] = {"image_shape": None, "random_state": None}

    def _samples(self, X: np.ndarray) -> np.ndarray:
        if X.ndim > 2:
            return X
        shape = self.image_shape
        if shape is None:
            side = math.isqrt(X.shape[1])
            if side * side != X.shape[1]:
                raise ValueError(
                    f"X has {X.shape[1]} features, which make no square grey image; set "
                    "image_shape to (height, width) or (height, width, channels)"
                )
            shape = (side, side)
        if len(shape) not in (2, 3) or math.prod(shape) != X.shape[1]:
            raise ValueError(
                f"image_shape={tuple(shape)} must be (height, width) or (height, width, channels) "
                f"of {X.shape[1]} features"
            )
        height, width, *channels = shape
        return X.reshape(len(X), height, width, *(channels or [1]))


class _Mixture(_Images):
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


class AffineInvariantKMeans(_Distances, _Images, model=models.AffineInvariantKMeans):
    """AI K-means: see `diffclust.AffineInvariantKMeans`."""


class DeformationInvariantKMeans(_Distances, _Images, model=models.DeformationInvariantKMeans):
    """DI K-means: see `diffclust.DeformationInvariantKMeans`."""


class TransformationInvariantKMeans(
    _Distances, _Images, model=models.TransformationInvariantKMeans
):
    """TI clustering: see `diffclust.TransformationInvariantKMeans`."""


class DTIKMeans(_Distances, _Images, model=models.DTIKMeans):
    """DTI K-means: see `diffclust.DTIKMeans`."""


class DTIGaussianMixture(_Mixture, model=models.DTIGaussianMixture):
    """DTI GMM: see `diffclust.DTIGaussianMixture`."""


class GaussianMixture(_Mixture, model=models.GaussianMixture):
    """A mixture of Gaussians with independent pixels: see `diffclust.GaussianMixture`."""


class ScatteringKMeans(_Images, model=models.ScatteringKMeans):
    """K-means of projected scattering coefficients: see `diffclust.ScatteringKMeans`."""


class ProjectedScatteringSpectralClustering(
    _Images, model=models.ProjectedScatteringSpectralClustering
):
    """PSSC: see `diffclust.ProjectedScatteringSpectralClustering`."""


class DeformationInvariantSpectralClustering(
    _Images, model=models.DeformationInvariantSpectralClustering
):
    """Spectral clustering by bent neighbours: see the model of that name."""


class ShapeKMeans(_Clusterer, model=models.ShapeKMeans):
    """K-means of shapes: see `diffclust.ShapeKMeans`.

    Rows of numbers are landmarks that follow each other: x1, y1, x2, y2, ...
    """

    _own: ClassVar[dict[str, Any]] = {"num_dimensions": 2, "random_state": None}

    def _samples(self, X: np.ndarray) -> np.ndarray:
        if X.ndim > 2:
            return X
        if X.shape[1] % self.num_dimensions:
            raise ValueError(
                f"X has {X.shape[1]} features, which are no landmarks of {self.num_dimensions} "
                "coordinates; set num_dimensions"
            )
        return X.reshape(len(X), -1, self.num_dimensions)
