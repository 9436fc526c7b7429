"""One estimator for each method, with what estimators have in common."""

import contextlib
import dataclasses
import functools
import math
import re
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

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

from diffclust import _validation, models
from diffclust._renamed import current_settings
from diffclust.methods import Method, method_of
from diffclust.models import AbstractModel, Result
from diffclust.models.selection import IS_POSITIVE
from diffclust.solvers import Assignment, ignore

_SKLEARN_NAMES = {
    "num_clusters": "n_clusters",
    "num_restarts": "n_init",
    "max_passes": "max_iter",
    "tolerance": "tol",
}
_PARAMETERS = {"image": {"image_shape": None}, "shape": {"num_dimensions": 2}}
"""What estimators have to be told of the samples of each kind that rows of numbers are."""

_LARGEST_SEED = 2**31 - 1
_LARGEST_INTENSITY = 2.0
"""Floats above it are no intensities in [0, 1], with noise or without."""


class _Range(NamedTuple):
    """What is known of samples as they were given."""

    dtype: str
    is_scaled: bool
    largest: float


def _of_one_length(series: Any) -> Any:
    """Series, those of unequal lengths filled up with NaN, which also stands for masked values."""
    if not isinstance(series, list | tuple):
        return _validation.filled(series) if np.ma.is_masked(series) else series
    shapes = set(map(np.shape, series))
    apart = len(shapes) > 1 or any(len(shape) > 1 for shape in shapes)
    return _validation.series(series, "X") if apart else series


def _filled_up(series: np.ndarray, width: int) -> np.ndarray:
    """Series with NaN behind them, so that each has so many numbers, where they have fewer."""
    missing = max(0, width // max(1, math.prod(series.shape[2:])) - series.shape[1])
    padding = [(0, 0), (0, missing), *[(0, 0)] * (series.ndim - 2)]
    return np.pad(
        series.astype(np.result_type(series, np.float32)), padding, constant_values=np.nan
    )


def _restored(result: Result, order: np.ndarray) -> Result:
    """A result of samples that were given in another order, in that in which they came.

    Its arrays are NumPy's: they keep their precision whatever JAX's is, and where it is pickled.
    """
    outcome, back = result.outcome, np.argsort(order)
    learned = jax.tree.map(np.asarray, outcome.learned)
    assignment = jax.tree.map(lambda values: values[back], outcome.assignment)
    extras = dict(outcome.extras)
    if IS_POSITIVE in extras:
        extras[IS_POSITIVE] = extras[IS_POSITIVE][back]
    outcome = dataclasses.replace(outcome, learned=learned, assignment=assignment, extras=extras)
    return dataclasses.replace(result, outcome=outcome)


@contextlib.contextmanager
def _parameters_named() -> Iterator[None]:
    """Gives settings in messages the names that they have as parameters."""
    try:
        yield
    except ValueError as error:
        words = re.sub(r"\w+", lambda word: _SKLEARN_NAMES.get(word[0], word[0]), str(error))
        if words == str(error):
            raise
        raise ValueError(words) from error


class _Predictor(ClusterMixin, BaseEstimator):
    """An estimator whose fitted `result_` predicts."""

    labels_: np.ndarray
    result_: Result

    def _apply(self, method: str, X: Any) -> Any:
        """Applies a method of the result to samples."""
        raise NotImplementedError

    def _keep(self, result: Result) -> None:
        """Keeps a fit, and sets the attributes that scikit-learn's clusterers have after one."""
        self.result_, self.labels_ = result, result.assignments
        self.inertia_, self.n_iter_ = float(result.loss), len(result.history)

    def predict(self, X: Any) -> np.ndarray:
        """The cluster of each sample.

        Args:
            X: As in `fit`.

        Returns:
            Integers `(n_samples,)`.
        """
        return self._apply("predict", X).clusters

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The opposite of the loss of samples: the greater the better.

        Args:
            X: As in `fit`.
            y: Not used.
            sample_weight: Weights of the samples, or None for ones.

        Returns:
            A number.
        """
        distances = self._losses(self._apply("predict", X))
        if sample_weight is not None:
            distances = distances * _check_sample_weight(sample_weight, distances)
        return -float(np.sum(distances))

    def _losses(self, predicted: Assignment) -> np.ndarray:
        """The loss of each sample."""
        return predicted.distances


class Clusterer(_Predictor):
    """A model with scikit-learn's interface.

    A subclass names its model; its parameters are the model's settings, under scikit-learn's names
    where it has one, what rows of numbers are, and `random_state`. What samples look like follows
    from the method's descriptor: where nothing is moved, pixels need no places, and rows of any
    numbers will do. Images are rows whose pixels follow each other row by row, shapes rows of
    landmarks (x1, y1, x2, y2, ...), and a row is a series.
    """

    _model: ClassVar[type[AbstractModel]]
    _method: ClassVar[Method]

    def __init_subclass__(cls, *, model: type[AbstractModel] | None = None, **others: Any) -> None:
        """Gives the subclass an `__init__` with the parameters of its model.

        Args:
            model: The model, or None for a base of other classes.
            **others: None that are known.
        """
        super().__init_subclass__(**others)
        if model is None:
            return
        cls._model, cls._method = model, method_of(model)
        own = {} if cls._takes_rows() else _PARAMETERS.get(cls._method.sample_kind, {})
        least = {"num_clusters": 8}
        defaults = least | model.from_settings(least).settings()
        named = {_SKLEARN_NAMES.get(name, name): value for name, value in defaults.items()}
        fields = [
            (name, Any, dataclasses.field(default=value, kw_only=name != "n_clusters"))
            for name, value in {**named, **own, "random_state": None}.items()
        ]
        made = dataclasses.make_dataclass(cls.__name__, fields).__init__

        # scikit-learn reads the parameters from what is wrapped.
        @functools.wraps(made)
        def __init__(self: "Clusterer", *args: Any, **given: Any) -> None:
            made(self, *args, **current_settings(given, warns_at=3))

        cls.__init__ = __init__

    def _settings(self) -> dict[str, Any]:
        """The model's settings, as they are now."""
        names = self._model.setting_types()
        return {name: getattr(self, _SKLEARN_NAMES.get(name, name)) for name in names}

    @classmethod
    def _takes_rows(cls) -> bool:
        """Whether samples are rows of any numbers."""
        return cls._method.solver == "lloyd" and cls._method.moves == "nothing"

    def _needs_places(self) -> bool:
        """Whether samples of a method that takes rows must be images all the same."""
        return self._takes_rows() and (self.register != "none" or self.mask is not None)

    def _precision(self, X: np.ndarray) -> Any:
        """JAX's precision, whatever that of the samples; that of rows of numbers is their own."""
        if self._takes_rows():
            return jax.enable_x64(X.dtype == np.float64)
        return contextlib.nullcontext()

    def _order(self, X: np.ndarray) -> np.ndarray:
        """Returns the order in which samples are given to the model.

        Where neither their order nor what weighs them matters, equal samples come together, so that
        seeds are drawn alike from copies and from weights.
        """
        if self._method.solver == "gradient" or self._method.selection == "eigengap":
            return np.arange(len(X))
        rows = np.nan_to_num(X.reshape(len(X), -1))
        along = np.random.default_rng(0).normal(size=rows.shape[1])
        return np.argsort(rows.astype(np.float64) @ along, kind="stable")

    def _checked(self, X: Any, model: AbstractModel | None = None) -> tuple[np.ndarray, _Range]:
        """Samples as an array of floats; given a model, `n_features_in_` is set, else compared."""
        needed: dict[str, Any] = {"dtype": [np.float64, np.float32], "estimator": self}
        reset, is_shape = model is not None, self._method.sample_kind == "shape"
        if is_shape:
            _validation.count(self.num_dimensions, "num_dimensions")
        if model is not None:
            needed["ensure_min_samples"] = 2 if is_shape or self._method.solver == "graph" else 1
            needed["ensure_min_features"] = self._least_features(model)
        if self._method.sample_kind == "series":
            needed["ensure_all_finite"] = "allow-nan"
            is_list = isinstance(X, list | tuple) and len(X) > 0
            # Lists of equally many numbers are rows, which have to be as long as fitted ones.
            is_list = is_list and (
                all(isinstance(x, np.ndarray) for x in X) or len({*map(np.size, X)}) > 1
            )
            X = _of_one_length(X)
            if is_list and not reset:
                X = _filled_up(np.asarray(X), self.n_features_in_)
        else:
            _validation.unmasked(X, "X")
            if isinstance(X, list | tuple) and len(X) and np.ndim(X[0]) > 1:
                X = np.asarray(X)
        is_array = isinstance(X, np.ndarray | jax.Array)
        dtype = np.asarray(X).dtype
        is_of_bytes = self._method.sample_kind == "image" and _validation.is_of_bytes(dtype)
        if is_array and X.ndim > 2:
            array = check_array(np.asarray(X), allow_nd=True, **needed)
            validate_data(self, array.reshape(len(array), -1), reset=reset, skip_check_array=True)
        else:
            array = validate_data(self, X, reset=reset, **needed)
            is_of_bytes &= not self._takes_rows()
        if is_of_bytes:
            array = array / np.iinfo(dtype).max  # as the library itself takes them
        is_image = self._method.sample_kind == "image"
        largest = float(np.abs(array).max()) if is_image else 0.0
        return array, _Range(dtype.name, is_of_bytes, largest)

    def _check_range(self, given: _Range) -> None:
        """Refuses bytes, which are scaled, where fitted floats were not, and the other way round.

        Args:
            given: What is known of the samples.
        """
        # An earlier version pickled a plain tuple, and one before none.
        fitted = _Range._make(getattr(self, "_range", given))
        bound, largest = fitted.largest, given.largest
        if given.is_scaled != fitted.is_scaled and max(largest, bound) > _LARGEST_INTENSITY:
            raise ValueError(
                f"the fitted samples were {fitted.dtype}, up to {bound:.4g} when they were "
                f"compared, and these are {given.dtype}, up to {largest:.4g}: uint8 and uint16 are "
                "scaled to [0, 1], and other numbers are not; give both in one way"
            )

    def _least_features(self, model: AbstractModel) -> int:
        """The least numbers of a row that make a sample."""
        is_shape = self._method.sample_kind == "shape"
        return model.least_size * (self.num_dimensions if is_shape else 1)

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's tags: whether NaN is taken for what is missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._method.sample_kind == "series"
        return tags

    def _samples(self, X: np.ndarray) -> np.ndarray:
        """Rows of numbers as samples of the model."""
        needs_places = self._needs_places()
        if needs_places and X.ndim < 3:
            raise ValueError(
                "register and mask need images, and X has rows of numbers; give an array of "
                "shape (n, height, width) or (n, height, width, channels)"
            )
        if self._takes_rows() and not needs_places:
            return X.reshape(len(X), 1, -1, 1)
        if X.ndim > 2 or self._method.sample_kind == "series":
            return X
        count = X.shape[1]
        if self._method.sample_kind == "image":
            height, width, *channels = _image_shape(self.image_shape, count)
            return X.reshape(len(X), height, width, *(channels or [1]))
        if count % self.num_dimensions:
            raise ValueError(
                f"X has {count} features, which are no landmarks of {self.num_dimensions} "
                "coordinates; set num_dimensions"
            )
        return X.reshape(len(X), -1, self.num_dimensions)

    @_parameters_named()
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
        model = self._model.from_settings(self._settings())
        array, given = self._checked(X, model)
        if model.num_clusters > len(array):
            raise ValueError(
                f"n_samples={len(array)} should be >= n_clusters={model.num_clusters}."
            )
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, array, dtype=array.dtype, ensure_non_negative=True
            )
        key = _key(self.random_state)
        order = self._order(array)
        weight = None if sample_weight is None else sample_weight[order]
        with self._precision(array):
            samples = self._samples(array[order])
            try:
                result = model.fit(samples, key=key, sample_weight=weight, callback=ignore)
            except ValueError:
                # A message names samples by their places, which are those of X here.
                model.prepared(self._samples(array))
                raise
            self._keep(_restored(result, order))
        self._range = given
        # Registered images have a size of their own.
        own = result.prototypes.shape if result.model.registers else array.shape
        shape = (-1,) if array.ndim == 2 else own[1:]
        self.cluster_centers_ = result.prototypes.reshape(model.num_clusters, *shape)
        return self

    def _apply(self, method: str, X: Any) -> Any:
        """Applies a method of the result to samples; arrays become floats of the samples' kind."""
        check_is_fitted(self)
        array, given = self._checked(X)
        self._check_range(given)
        # Rows of pixels have lost their shape; all other samples are compared by the model.
        size, fitted = array.shape[1:3], self.cluster_centers_.shape[1:3]
        has_rows = self._takes_rows() and not self._needs_places()
        if has_rows and len(size) == len(fitted) == 2 and size != fitted:
            raise ValueError(f"X has images of {size} pixels, and the fitted ones had {fitted}")
        with self._precision(self.cluster_centers_):
            values = getattr(self.result_, method)(self._samples(array))
        return values.astype(array.dtype) if isinstance(values, np.ndarray) else values


class Distances(ClassNamePrefixFeaturesOutMixin, _TransformerMixin, Clusterer):
    """A model that gives the distance of each sample to every cluster."""

    def transform(self, X: Any) -> np.ndarray:
        """Distance of each sample to every cluster: roots of the energies.

        Args:
            X: As in `fit`.

        Returns:
            Distances `(n_samples, n_clusters)`; penalties of the alignments are part of them.
        """
        return np.sqrt(np.maximum(self._apply("energies", X), 0.0))

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


class Mixture(Clusterer):
    """A model by which a sample belongs to several clusters in part."""

    def predict_proba(self, X: Any) -> np.ndarray:
        """The responsibility of each cluster for each sample.

        Args:
            X: As in `fit`.

        Returns:
            Shares `(n_samples, n_clusters)` that add up to one.
        """
        return softmax(-self._apply("energies", X), axis=1)

    def score_samples(self, X: Any) -> np.ndarray:
        """The log-likelihood of each sample.

        Args:
            X: As in `fit`.

        Returns:
            Numbers `(n_samples,)`.
        """
        return logsumexp(-self._apply("energies", X), axis=1)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The mean log-likelihood of samples, as of scikit-learn's mixtures.

        Args:
            X: As in `fit`.
            y: Not used.
            sample_weight: Weights of the samples, or None for ones.

        Returns:
            A number.
        """
        values = self.score_samples(X)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, values)
        return float(np.average(values, weights=sample_weight))


class ModelClusterer(_Predictor):
    """Any model as an estimator: a `Clustering` of one's own, or one with its own objective.

    Samples are what the model takes, trees included.
    """

    def __init__(self, model: AbstractModel, *, random_state: Any = None) -> None:
        """Keeps the parameters.

        Args:
            model: The model.
            random_state: A whole number, a `RandomState` or None.
        """
        self.model = model
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Clusters samples.

        Args:
            X: The samples, as `model.fit` takes them.
            y: Not used.
            sample_weight: Weights of the samples, or None for ones.

        Returns:
            The estimator, fitted: `labels_`, `cluster_centers_`, `inertia_`, `n_iter_` and
            `result_`.

        Raises:
            ValueError: If an argument is not what it should be.
        """
        key = _key(self.random_state)
        self._keep(self.model.fit(X, key=key, sample_weight=sample_weight, callback=ignore))
        self.cluster_centers_ = self.result_.prototypes
        return self

    def _apply(self, method: str, X: Any) -> Any:
        """Applies a method of the result to samples."""
        check_is_fitted(self)
        return getattr(self.result_, method)(X)


def _key(random_state: Any) -> jax.Array:
    """A key; `RandomState` objects advance, whole numbers do not, as everywhere in scikit-learn."""
    return jax.random.key(check_random_state(random_state).randint(_LARGEST_SEED))


def _image_shape(given: Any, count: int) -> tuple[int, ...]:
    """Height, width and perhaps channels of images that have so many numbers."""
    if given is None:
        side = math.isqrt(count)
        if side * side != count:
            raise ValueError(
                f"X has {count} features, which make no square grey image; set image_shape to "
                "(height, width) or (height, width, channels)"
            )
        return side, side
    try:
        shape = tuple(given)
        if len(shape) not in (2, 3) or min(shape) < -1 or 0 in shape:
            raise ValueError
        return np.broadcast_to(0, count).reshape(shape).shape
    except (TypeError, ValueError):
        raise ValueError(
            f"image_shape={given!r} must be (height, width) or (height, width, channels) of "
            f"{count} features; one of them may be -1 to follow from the others"
        ) from None


class KMeans(Distances, model=models.KMeans):
    """K-means of rows of numbers: see `diffclust.KMeans`.

    It computes in the precision of what it is fitted to.
    """


class AffineInvariantKMeans(Distances, model=models.AffineInvariantKMeans):
    """AI K-means: see `diffclust.AffineInvariantKMeans`."""


class DeformationInvariantKMeans(Distances, model=models.DeformationInvariantKMeans):
    """DI K-means: see `diffclust.DeformationInvariantKMeans`."""


class TransformationInvariantKMeans(Distances, model=models.TransformationInvariantKMeans):
    """TI clustering: see `diffclust.TransformationInvariantKMeans`."""


class DTIKMeans(Distances, model=models.DTIKMeans):
    """DTI K-means: see `diffclust.DTIKMeans`."""


class DTIGaussianMixture(Mixture, model=models.DTIGaussianMixture):
    """DTI GMM: see `diffclust.DTIGaussianMixture`."""


class GaussianMixture(Mixture, model=models.GaussianMixture):
    """A mixture of Gaussians with independent pixels: see `diffclust.GaussianMixture`."""


class ScatteringKMeans(Clusterer, model=models.ScatteringKMeans):
    """K-means of projected scattering coefficients: see `diffclust.ScatteringKMeans`."""

    def _losses(self, predicted: Assignment) -> np.ndarray:
        """Squared distances in scattering space."""
        return predicted.distances**2


class ProjectedScatteringSpectralClustering(
    Clusterer, model=models.ProjectedScatteringSpectralClustering
):
    """PSSC: see `diffclust.ProjectedScatteringSpectralClustering`."""


class DeformationInvariantSpectralClustering(
    Clusterer, model=models.DeformationInvariantSpectralClustering
):
    """Spectral clustering by bent neighbours: see the model of that name."""


class ShapeKMeans(Clusterer, model=models.ShapeKMeans):
    """K-means of shapes: see `diffclust.ShapeKMeans`.

    Rows of numbers are landmarks that follow each other: x1, y1, x2, y2, ...
    """


class SeriesKMeans(Distances, model=models.SeriesKMeans):
    """K-means of series: see `diffclust.SeriesKMeans`; a row of numbers is a series."""


class SeriesSpectralClustering(Clusterer, model=models.SeriesSpectralClustering):
    """Spectral clustering of series: see `diffclust.SeriesSpectralClustering`; rows are series."""
