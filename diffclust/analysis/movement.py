"""The effect of alignment on a fit: movement, gain, and comparison with K-means."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust import _validation, metrics
from diffclust.alignment import NoAlignment
from diffclust.analysis.common_start import BASELINE, seeds_of
from diffclust.analysis.nuisances import EXPLAINED, NUISANCES, nuisances_explained
from diffclust.image_source import Images, ImageSource
from diffclust.methods import METHODS, plural
from diffclust.models.base import Result
from diffclust.models.images import AbstractImageModel
from diffclust.models.staged import AbstractStagedModel
from diffclust.parallel import Data
from diffclust.sampling import pixel_grid
from diffclust.solvers.assign import assign_samples
from diffclust.transforms import AbstractSequence, AbstractTransform, Affine
from diffclust.types import Image, Key, Params, Points, Scalar

_MAX_SAMPLES = 500
"""Number of samples to average over: enough for two digits."""

_MAX_CLUSTERED, _MAX_VALUES = 2000, 2**25
"""Most images, and most pixel values, that are clustered by plain K-means."""

_SMALL = {"displacement": 0.1, "prototype_displacement": 0.1, "gain": 0.02}
"""Pixels, and share of the loss, below which alignment had next to no effect."""

_SAME_ARI = 0.95
"""ARI above which two clusterings are nearly the same."""


def movement(
    result: Result, images: Any, *, key: Key, sample_weight: Any = None, assignments: Any = None
) -> dict[str, float]:
    """Measures how far a fit moved its samples, and what that changed.

    Args:
        result: A fit.
        images: The images that it was fitted to, in memory or not.
        key: The key of that fit.
        sample_weight: The weights of that fit, or None.
        assignments: The clusters that it started with, or None if it was seeded.

    Returns:
        Figures by name, as far as the method has them, with means over at most 500 images:

        - `registration_displacement`: how far registration moved pixels, in pixels: the root mean
          square over the canvas;
        - `displacement`, `prototype_displacement`: the same for the alignments of images, or of
          prototypes; for a spectral method that aligns pairs, for those to the clusters' means;
        - `gain`: the share of these images' summed distances, each to its best prototype, that
          movement removed; `log_density_gain`: for a mixture, in nats per image;
        - `kmeans_ari`: the adjusted Rand index with scikit-learn's K-means from the same start; or,
          if that cannot be drawn again, `raw_kmeans_ari` and `registered_kmeans_ari`, with K-means
          of at most 2,000 of the images as given and as registered;
        - `start_kept`: the share of images that are still in the cluster they started in;
        - `registered_stability`: the stability of PSSC's clusters of at most 1,000 registered
          images, for methods that have none of their own and whose frame was not tried;
        - `place_explained`, `size_explained`, `lightness_explained`: the share of the variance of
          the figures' positions in the given images, of their sizes, and of the images' lightness
          that lies between clusters, if there is any variance.

        Plain methods that move nothing have only the last four, and samples other than images only
        `start_kept`.
    """
    figures: dict[str, float] = {}
    if assignments is not None:
        figures["start_kept"] = float(np.mean(np.asarray(assignments) == result.assignments))
    method = result.model.descriptor
    is_registered = result.model.registers
    moves = method.moves != "nothing" or method.solver == "graph" or is_registered
    if method.sample_kind != "image":
        return figures
    every = _validation.images_or_source(images)
    chosen = np.unique(np.linspace(0, len(every) - 1, _MAX_SAMPLES).astype(int))
    part = np.asarray(every[chosen])
    mask = getattr(result.model, "mask", None)
    figures |= nuisances_explained(part, result.assignments[chosen], mask=mask)
    if not moves:
        return figures
    frame = cast(AbstractImageModel, result.model).prototype_frame if is_registered else None
    if frame is not None and frame.place != "none":
        params = jnp.asarray(frame.params_of(part)[:, -Affine().num_params :])
        moved = _displacement(Affine(), params, *part.shape[1:3])
        figures["registration_displacement"] = float(moved)
    if result.outcome.assignment.params.shape[1] and method.moves != "nothing":
        figures |= _alignment(result, chosen, part)
    if result.model.num_clusters == 1:
        return figures  # on one cluster every method agrees
    if is_registered and not {"stability", "stability_found"} & result.outcome.figures.keys():
        model = cast(AbstractImageModel, result.model)
        steady = model.stability_when_registered(Data(every))
        figures |= {} if steady is None else {"registered_stability": steady}
    if not method.comparable or isinstance(every, ImageSource):
        return figures | _agreement_with_kmeans(result, every)
    if method.moves == "nothing":
        return figures
    array = np.asarray(result.model.prepared(images))
    weight = _validation.weights(sample_weight, len(array))
    if assignments is None:
        start = array[seeds_of(result, Data(array, weight, result.outcome.chunk_size), key=key)]
    else:
        groups, clusters = np.asarray(assignments), range(result.model.num_clusters)
        each = [np.flatnonzero(groups == k) for k in clusters]
        ones = np.ones(len(array)) if weight is None else weight
        # If all images have weight zero, their plain mean.
        weights = [ones[rows] if ones[rows].any() else None for rows in each]
        start = [np.average(array[r], 0, w) for r, w in zip(each, weights, strict=True)]
    init = np.reshape(start, (len(start), -1))
    ari = _kmeans_ari(result.assignments, array, len(start), weight, n_init=1, init=init)
    return {**figures, "kmeans_ari": ari}


def _alignment(result: Result, chosen: np.ndarray, part: np.ndarray) -> dict[str, float]:
    """Measures how far alignment moved images or prototypes, and its gain over params of zero."""
    model, outcome = cast(AbstractImageModel, result.model), result.outcome
    array = model.in_prototype_frame(model.prepared(part))
    params = jnp.asarray(outcome.assignment.params[chosen])
    solver, data = model.solver_for(outcome, Data(array, None, outcome.chunk_size))
    if solver is None:
        clusters = jnp.asarray(result.assignments[chosen])
        after, before = map(float, _own_distances(result, jnp.asarray(array), params, clusters))
    else:
        # Both solvers have an aligner; a mixture's gets all candidates, as its lowest score counts.
        unmoved: Any = dataclasses.replace(cast(Any, solver), aligner=NoAlignment())
        before = float(assign_samples(unmoved, outcome.learned, data).distances.sum())
        after = float(result.distances[chosen].sum())
    figures = {"gain": 1.0 - after / before if before > 0.0 else 0.0}
    if model.words.is_density:
        figures = {"log_density_gain": (before - after) / len(chosen)}
    moved = _displacement(model.energy(array.shape[3]).transform, params, *array.shape[1:3])
    name = "displacement" if model.descriptor.moves == "samples" else "prototype_displacement"
    return {name: float(moved), **figures}


@eqx.filter_jit
def _own_distances(
    result: Result,
    images: Float[Array, "n height width channels"],
    params: Float[Array, "n params"],
    clusters: Array,
) -> tuple[Scalar, Scalar]:
    """Sums the energies of images to their own clusters, aligned and with params of zero."""
    solver = cast(AbstractStagedModel, result.model).alignment_model().solver()
    learned = result.outcome.learned.clusters

    def of_one(image: Image, own: Params, cluster: Array) -> tuple[Scalar, Scalar]:
        sample, energy = solver.normalise(image), solver.energy.bind(image)
        prototype = jax.tree.map(lambda leaf: leaf[cluster], learned)
        return energy(own, sample, prototype), energy(jnp.zeros_like(own), sample, prototype)

    after, before = jax.vmap(of_one)(images, params, clusters)
    return jnp.sum(after), jnp.sum(before)


def _agreement_with_kmeans(result: Result, images: Images) -> dict[str, float]:
    """The adjusted Rand index with plain K-means on some of the images."""
    model, clusters = result.model, result.model.num_clusters
    most = min(_MAX_CLUSTERED, _MAX_VALUES // int(np.prod(images.shape[1:])))
    chosen = np.unique(np.linspace(0, len(images) - 1, max(most, 2 * clusters)).astype(int))
    part = np.asarray(images[chosen])
    views = {"raw_kmeans_ari": part}
    if model.registers:
        views["registered_kmeans_ari"] = model.in_prototype_frame(model.prepared(part))
    own = result.assignments[chosen]
    return {name: _kmeans_ari(own, view, clusters, n_init=4) for name, view in views.items()}


def _kmeans_ari(
    own: np.ndarray, images: np.ndarray, num_clusters: int, weight: Any = None, **settings: Any
) -> float:
    """The agreement with scikit-learn's K-means, with its settings."""
    from sklearn.cluster import KMeans

    baseline = KMeans(num_clusters, random_state=0, **settings)
    with warnings.catch_warnings():
        # With equal images there may be fewer than clusters.
        warnings.simplefilter("ignore")
        labels = baseline.fit_predict(np.reshape(images, (len(images), -1)), sample_weight=weight)
    return float(metrics.adjusted_rand_index(own, labels))


@eqx.filter_jit
def _displacement(
    transform: AbstractTransform, params: Float[Array, "n params"], height: int, width: int
) -> Scalar:
    points = pixel_grid(height, width, params.dtype)
    pixels = jnp.array([width, height], params.dtype)[:, None, None] / 2

    def of_one(own: Params) -> Scalar:
        moved = (_composed_map(transform, own, points) - points) * pixels
        return jnp.sqrt(jnp.mean(jnp.sum(moved**2, axis=0)))

    return jnp.mean(jax.vmap(of_one)(params))


def _composed_map(transform: AbstractTransform, params: Params, points: Points) -> Points:
    """Composes the coordinate maps of a transform's spatial steps, and applies them to points."""
    if isinstance(transform, AbstractSequence):
        steps = zip(transform.transforms, transform.split(params), strict=True)
        for step, own in reversed(tuple(steps)):
            points = _composed_map(step, own, points)
        return points
    return points if transform.spatial is None else transform.spatial.warp(params, points)


def describe_movement(figures: Mapping[str, Any], noun: str = "image") -> str:
    """Describes in words what `movement` returned.

    Args:
        figures: The figures, possibly among others.
        noun: The word for a sample.

    Returns:
        A sentence for each figure present, with a hint if alignment had next to no effect.
    """
    nouns, sentences = plural(noun), []
    is_registered = "registration_displacement" in figures
    if is_registered:
        moved = figures["registration_displacement"]
        hint = ": next to nothing" if moved < _SMALL["displacement"] else ""
        sentences.append(f"Registration moved {nouns} by {_pixels(moved)} on average{hint}.")
    views = {
        "kmeans_ari": f"{'registered, ' * is_registered}from the same start",
        "raw_kmeans_ari": f"the {nouns} as they came",
        "registered_kmeans_ari": "registered",
    }
    named = [f"{figures[name]:.2f} ({view})" for name, view in views.items() if name in figures]
    # One cluster has nothing to be compared with, and its images may be as similar as they can get.
    sentences += _alignment_in_words(figures, nouns, hint=bool(named))
    if named:
        sentences.append(
            "The adjusted Rand index between these clusters and those of plain "
            f"{METHODS[BASELINE].title} is {', '.join(named)}: 0 by chance, 1 for the same."
        )
    if any(figures.get(name, 0.0) >= _SAME_ARI for name in ("kmeans_ari", "raw_kmeans_ari")):
        # K-means from the same start saw registered images, too.
        added = "alignment" if is_registered and "kmeans_ari" in figures else "the method"
        sentences.append(f"These are nearly its clusters: {added} added next to nothing.")
    # Of recordings as images they are pitch and loudness, which are no nuisances.
    if noun == "image":
        sentences += _nuisances_in_words(figures, is_registered=is_registered)
    if "start_kept" in figures:
        sentences.append(f"{figures['start_kept']:.0%} are still in the cluster they began in.")
    return " ".join(sentences)


def _nuisances_in_words(figures: Mapping[str, Any], *, is_registered: bool) -> list[str]:
    """Says which nuisances the clusters may reflect, in one sentence, and what removes them."""
    shares = {what: figures.get(f"{name}_explained", 0.0) for name, what in NUISANCES.items()}
    named = [f"{what} ({share:.0%})" for what, share in shares.items() if share >= EXPLAINED]
    if not named:
        return []
    *first, last = named
    listed = f"{', '.join(first)} and {last}" if first else last
    said = (
        f"The clusters may reflect no more than {listed}: in brackets, how much of its variance "
        "lies between clusters."
    )
    remedy = f"Registration takes {'them' if first else 'it'} out."
    return [said] if is_registered else [said, remedy]


def _pixels(number: float) -> str:
    """A number of pixels, in words."""
    shown = _two_digits(number)
    return f"{shown} pixel{'' if shown == '1' else 's'}"


def _two_digits(number: float) -> str:
    """A number with two significant digits: `0.34`, `3.4`, `340`."""
    shown = float(f"{number:.2g}")
    return f"{shown:.0f}" if abs(shown) >= 100 else f"{shown:g}"


def _alignment_in_words(figures: Mapping[str, Any], nouns: str, *, hint: bool) -> list[str]:
    """Says how far alignment moved what, and its gain, with a hint if that is little."""
    moved = {"displacement": nouns, "prototype_displacement": "prototypes"}
    gained = []
    if "gain" in figures:
        gained.append(f"took away {figures['gain']:.0%} of their distances")
    if "log_density_gain" in figures:
        nats = _two_digits(figures["log_density_gain"])
        gained.append(f"added {nats} nats to the log density of each")
    words = [f"{what} by {_pixels(figures[n])}" for n, what in moved.items() if n in figures]
    if not words or not gained:
        return []
    sentences = [f"Alignment moved {words[0]} on average, which {gained[0]}."]
    # Colour transforms alone move no pixel.
    is_small = any(0.0 < figures[name] < most for name, most in _SMALL.items() if name in figures)
    if hint and (is_small or figures.get("gain", 1.0) <= 0.0):
        sentences.append(
            "That is next to nothing: an uneven background, colours or clutter may hide what could "
            "be moved; try --register, --ground, or another --method."
        )
    return sentences
