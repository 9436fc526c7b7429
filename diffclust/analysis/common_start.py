"""Fits of several methods from a common k-means++ start, for comparison."""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from diffclust import _validation
from diffclust._random import split_key
from diffclust.methods import METHODS
from diffclust.models import MODELS, AbstractPrototypeModel, Result
from diffclust.parallel import Data
from diffclust.solvers import Callback, best_restart, distances_to_seeds, ignore, kmeans_plus_plus
from diffclust.types import Key

COMPARABLE: dict[str, type[AbstractPrototypeModel]] = {
    name: cast(type[AbstractPrototypeModel], MODELS[name])
    for name, method in METHODS.items()
    if method.comparable
}
"""The methods that can be compared."""

BASELINE = next(name for name in COMPARABLE if METHODS[name].moves == "nothing")
"""The one of these that moves nothing."""

_SHARED = (
    *("affine_penalty", "unit_norm", "boundary", "pixel_weights", "split_merge"),
    *("mask", "register", "ground"),
)
"""Settings that the other methods take over if they differ from the fitted method's defaults."""


@dataclasses.dataclass(frozen=True, eq=False)
class CommonStart:
    """The results of several methods that started from the same prototypes.

    Attributes:
        start: The images that all prototypes started as.
        indices: Their indices in the data.
        results: The fits, in the order in which they were requested, without the given one.
        split_merge: Whether fits try to split one cluster and remove another.
    """

    start: Float[np.ndarray, "clusters height width channels"]
    indices: np.ndarray
    results: tuple[Result, ...]
    split_merge: bool = False


def fit_from_common_start(
    result: Result,
    images: Any,
    methods: Sequence[str],
    *,
    key: Key,
    sample_weight: Any = None,
    callback: Callback = ignore,
) -> CommonStart:
    """Fits other methods from the prototypes that a fit's best restart started with.

    Each of the other methods has one run, with the settings that it shares with the fitted one.

    Args:
        result: A fit of one of `COMPARABLE` that was seeded by k-means++.
        images: The images that it was fitted to.
        methods: Names of the other methods.
        key: The key of that fit, which draws the same start again.
        sample_weight: The weights of that fit, or None.
        callback: Called after every chunk.

    Returns:
        The start and the other fits.

    Raises:
        ValueError: If the fitted method or another one is not in `COMPARABLE`.
        FitError: If a loss is not finite.

    References:
        Cosentino et al., DI K-means, Fig. 3 and Sec. 4.2: all methods start from the same
        k-means++ prototypes.
    """
    model = cast(AbstractPrototypeModel, result.model)
    if not model.descriptor.comparable:
        raise ValueError(
            f"{model.method} has no start in common with others; only {', '.join(COMPARABLE)} have"
        )
    unknown = [name for name in methods if name not in COMPARABLE]
    if unknown:
        raise ValueError(f"methods must be among {', '.join(COMPARABLE)}, not {', '.join(unknown)}")
    array = model.prepared(images)
    weight = _validation.weights(sample_weight, len(array))
    indices = seeds_of(result, Data(array, weight, result.outcome.chunk_size), key=key)
    start = np.asarray(array[indices])
    others = (other_method(model, name).without_registration for name in methods)
    fits = tuple(
        other.fit(array, key=key, prototypes=start, sample_weight=sample_weight, callback=callback)
        for other in others
    )
    return CommonStart(start, indices, fits, split_merge=model.split_merge)


def seeds_of(result: Result, data: Data, *, key: Key) -> Int[np.ndarray, " clusters"]:
    """The samples that the best restart of a fit started with, drawn again.

    Args:
        result: A fit of one of `COMPARABLE` that was seeded by k-means++.
        data: The prepared images that it was fitted to, and their weights.
        key: The key of that fit.

    Returns:
        The indices of these samples.
    """
    model, losses = cast(AbstractPrototypeModel, result.model), result.outcome.restarts
    best = split_key(key, len(losses), best_restart(losses))
    solver = model.solver()
    chunks = data.level(1, solver.normalise)
    to_all = eqx.Partial(distances_to_seeds, solver.energy, solver.family)
    return np.asarray(kmeans_plus_plus(chunks, model.num_clusters, to_all, key=best))


def other_method(model: AbstractPrototypeModel, name: str) -> AbstractPrototypeModel:
    """Another method with the settings that it shares with a model, for one run.

    Args:
        model: The model.
        name: The method, one of `COMPARABLE`.

    Returns:
        A model with the same number of clusters.
    """
    kind, settings = COMPARABLE[name], model.settings()
    usual = type(model)(model.num_clusters).settings()
    given = {n for n in _SHARED if n in settings and settings[n] != usual[n]}
    shared = {n: settings[n] for n in given if n in kind.setting_types()}
    return kind(model.num_clusters, **shared)
