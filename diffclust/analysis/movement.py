"""What alignment did for a fit: how far it moved samples, what that gained, what K-means does."""

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust import metrics
from diffclust.alignment import NoAlignment
from diffclust.analysis.common_start import BASELINE, fit_from_common_start, other_method
from diffclust.image_source import ImageSource
from diffclust.methods import METHODS
from diffclust.models.base import Result
from diffclust.models.kmeans import AbstractPrototypeModel
from diffclust.parallel import Data
from diffclust.sampling import pixel_grid
from diffclust.solvers import ignore
from diffclust.solvers.assign import assign_samples
from diffclust.transforms import AbstractSpatialTransform
from diffclust.types import Key

_MOST_SAMPLES = 500
"""What is averaged over: enough for two digits."""

LITTLE = {"displacement": 0.1, "gain": 0.02}
"""Pixels, and the share of the loss, below which alignment did next to nothing."""


def movement(
    result: Result,
    images: Any,
    *,
    key: Key,
    sample_weight: Any = None,
    assignments: Any = None,
    kmeans: Result | None = None,
) -> dict[str, float]:
    """How far a fit moved its samples, and what came of it.

    Args:
        result: A fit by passes of Lloyd's algorithm that moves images.
        images: The images it was fitted to.
        key: The key of that fit.
        sample_weight: The weights of that fit, or None.
        assignments: The clusters that it began with, or None where it seeded itself.
        kmeans: A fit of plain K-means from the same start, where there is one.

    Returns:
        By name: `displacement`, how far pixels were moved, in pixels: the root of the mean square
        over the canvas, averaged over (at most 500) images; `gain`, the share of these images'
        summed distances, each to its best prototype, that movement took away; `kmeans_ari`, the
        adjusted Rand index with plain K-means from the same start, where that can be drawn again;
        `start_kept`, the share of images that are still in the cluster they began in. Nothing for
        methods that do not move images by maps of coordinates.
    """
    model, figures = cast(AbstractPrototypeModel, result.model), {}
    if assignments is not None:
        figures["start_kept"] = float(np.mean(np.asarray(assignments) == result.assignments))
    spatial = model.spatial_transform
    if spatial is None or spatial.num_params == 0 or model.descriptor.solver != "lloyd":
        return figures
    chosen = np.unique(np.linspace(0, len(images) - 1, _MOST_SAMPLES).astype(int))
    part = np.asarray(model.validated(images)[chosen])
    data = Data(part, None, result.outcome.chunk_size)
    at_rest = dataclasses.replace(model.solver(), aligner=NoAlignment())
    before = assign_samples(at_rest, result.outcome.learned, data).distances.sum()
    params = jnp.asarray(result.outcome.assignment.params[chosen])
    figures["displacement"] = float(_displacement(spatial, params, *part.shape[1:3]))
    figures["gain"] = float(1.0 - result.distances[chosen].sum() / before) if before > 0.0 else 0.0
    if not model.descriptor.comparable or isinstance(images, ImageSource):
        return figures
    shared: dict[str, Any] = {"key": key, "sample_weight": sample_weight}
    if kmeans is None and assignments is not None:
        baseline, array = other_method(model, BASELINE), model.validated(images)
        kmeans = baseline.fit(array, assignments=assignments, callback=ignore, **shared)
    elif kmeans is None:
        (kmeans,) = fit_from_common_start(result, images, [BASELINE], **shared).results
    ari = metrics.adjusted_rand_index(result.assignments, kmeans.assignments)
    return {**figures, "kmeans_ari": float(ari)}


@eqx.filter_jit
def _displacement(
    transform: AbstractSpatialTransform, params: Float[Array, "n params"], height: int, width: int
) -> Float[Array, ""]:
    points = pixel_grid(height, width, params.dtype)
    pixels = jnp.array([width, height], params.dtype)[:, None, None] / 2

    def of_one(own: Float[Array, " params"]) -> Float[Array, ""]:
        moved = (transform.warp(own, points) - points) * pixels
        return jnp.sqrt(jnp.mean(jnp.sum(moved**2, axis=0)))

    return jnp.mean(jax.vmap(of_one)(params))


def describe_movement(figures: Mapping[str, Any], noun: str = "image") -> str:
    """Describes in words what `movement` returned.

    Args:
        figures: Its figures, perhaps among others.
        noun: What a sample is called.

    Returns:
        A sentence for each figure that is there, with a hint where alignment did next to nothing.
    """
    sentences = []
    if "gain" in figures:
        sentences.append(
            f"Alignment moved {noun}s by {figures['displacement']:.2g} pixels on average, which "
            f"took away {figures['gain']:.0%} of their distances."
        )
        if any(figures[name] < least for name, least in LITTLE.items()):
            sentences.append(
                "That is next to nothing: an uneven ground, colours or clutter may hide what could "
                "be moved; try --register, --ground, or a spectral --method."
            )
    if "kmeans_ari" in figures:
        sentences.append(
            f"Plain {METHODS[BASELINE].title} from the same start agrees with this by an ARI of "
            f"{figures['kmeans_ari']:.2f}."
        )
    if "start_kept" in figures:
        sentences.append(f"{figures['start_kept']:.0%} are still in the cluster they began in.")
    return " ".join(sentences)
