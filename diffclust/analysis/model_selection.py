"""Choice of the number of clusters or of a landmark grid without labels, with reasons."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from diffclust import _validation
from diffclust.graphs import SpectralEmbedding
from diffclust.models.base import Result
from diffclust.solvers import PointClusters, kmeans
from diffclust.types import Key

_CLEAR_GAP = 1.5
"""How many times wider than every other gap of its graph the chosen one must be to be clear."""

_CLEAR_DEPTH = 0.02
"""By how much an elbow must be deeper than that of evenly spread data, as a share of the fall."""

_CLEAR_EVIDENCE = 0.05
"""By what share of the range of all evidences the highest must exceed the next."""


@dataclasses.dataclass(frozen=True)
class Grounds:
    """The best of several settings, and the reason.

    Attributes:
        best: Index of the best setting; None if there is none.
        is_clear: Whether it is clearly better than the others.
        reason: The reason, in a sentence or two.
    """

    best: int | None
    is_clear: bool
    reason: str


def elbow(num_clusters: Sequence[int], losses: Sequence[float]) -> int | None:
    """The number of clusters after which the loss falls more slowly.

    This is where the curve lies farthest below the chord between its ends. First the curve is
    corrected to what perfect fits would give, by taking for each K the lowest loss of any number of
    clusters up to K: a good fit of K clusters is also one of more clusters. Taking the lower convex
    hull would not change the choice, as the point farthest below a line is a corner of the hull.

    The choice depends on the range of K, and means little if the curve has no clear elbow: look at
    the curve.

    Args:
        num_clusters: Values of K, all different, in any order.
        losses: The loss for each K, summed or averaged; may be negative.

    Returns:
        One of the K, the smallest of several equally good ones; None if there is no elbow: with
        fewer than three K, or if no loss is below the chord.

    Raises:
        ValueError: If the two differ in length, a K occurs twice, or a loss is not finite.

    References:
        Satopää et al., Finding a "Kneedle" in a Haystack, 2011; Monnier et al., DTI clustering,
        App. C.3.
    """
    ks, values = np.asarray(num_clusters), np.asarray(losses, dtype=np.float64)
    if ks.shape != values.shape or ks.ndim != 1:
        raise ValueError(
            f"every K needs one loss; got {ks.shape} values of K and {values.shape} losses"
        )
    if len(np.unique(ks)) != len(ks):
        raise ValueError(f"every K may occur once only; got {ks.tolist()}")
    if not np.isfinite(values).all():
        raise ValueError(f"losses must be finite numbers; got {values.tolist()}")
    if len(ks) < 3:
        return None
    order = np.argsort(ks)
    ks, values = ks[order], np.minimum.accumulate(values[order])
    share = (ks - ks[0]) / (ks[-1] - ks[0])
    below = values[0] + share * (values[-1] - values[0]) - values
    # Rounding of a straight line does not count as an elbow.
    if below.max() <= 1e-9 * np.abs(values).max():
        return None
    return int(ks[below.argmax()])


def grounds_of_losses(
    num_clusters: Sequence[int], losses: Sequence[float], *, rounding: float = 0.0
) -> Grounds:
    """Whether the losses for several K have an elbow that data without clusters would not have.

    Args:
        num_clusters: Values of K, ascending.
        losses: The loss for each K.
        rounding: How much equal losses may differ.

    Returns:
        The grounds for the choice by `elbow`.
    """
    chosen = elbow(num_clusters, losses)
    if max(losses) - min(losses) <= rounding:
        reason = "No clear choice: the losses of these K differ by rounding alone."
        return Grounds(None, False, reason)
    if chosen is None:
        reason = (
            "No clear choice: the loss has no elbow over these K, of which it takes at least "
            "three. Try other numbers of clusters, or choose by eye."
        )
        return Grounds(None, False, reason)
    counts = np.asarray(num_clusters, np.float64)
    best = list(num_clusters).index(chosen)
    curves = (losses, _evenly_spread(counts, losses))
    depth, smooth = (_depths(counts, curve)[best] for curve in curves)
    reason = (
        f"At K = {chosen} the loss lies farthest below the straight line between its ends (its "
        f"elbow), by {depth:.0%} of its fall; over this range evenly spread data without any "
        f"clusters would have up to {smooth:.0%} there"
    )
    if depth <= smooth + _CLEAR_DEPTH:
        reason = (
            f"No clear choice. {reason}, and an elbow must be deeper than that by "
            f"{_CLEAR_DEPTH:.0%}. Look at the curve, the silhouette and the stability."
        )
        return Grounds(best, False, reason)
    reason = f"{reason}. The choice depends on the range of K that was tried."
    if num_clusters[0] > 1:
        reason += f" K = {num_clusters[0]} begins it and cannot be chosen; begin at 1 to judge it."
    return Grounds(best, True, reason)


def _evenly_spread(counts: np.ndarray, losses: Sequence[float]) -> np.ndarray:
    """Losses of data without clusters, which decrease like K^(-2/d) in d dimensions (Zador, 1982).

    The exponent is the one by which the losses decrease from end to end, but at least that of the
    plane, 1, and at most that of a line, 2; the latter also where losses are negative.
    """
    first, last = losses[0], min(losses)
    steepness = math.log(first / last) / math.log(counts[-1] / counts[0]) if last > 0.0 else 2.0
    return counts ** -np.clip(steepness, 1.0, 2.0)


def _depths(counts: np.ndarray, losses: Sequence[float] | np.ndarray) -> np.ndarray:
    """How far the losses lie below the chord between their ends, as fractions of their fall."""
    values = np.minimum.accumulate(np.asarray(losses, np.float64))
    fall, share = values[0] - values[-1], (counts - counts[0]) / (counts[-1] - counts[0])
    return (values[0] - values) / fall - share if fall > 0.0 else np.zeros(len(values))


def eigengaps(result: Result) -> dict[int, float]:
    """The gaps between the eigenvalues of a graph that has been cut, for `grounds_of_gaps`.

    Args:
        result: A fit of a spectral method: its K and a few more have gaps.

    Returns:
        The gap λ_k - λ_(k+1) for every k, from 1.
    """
    eigenvalues = np.asarray(result.outcome.extras["eigenvalues"], np.float64)
    return dict(enumerate((-np.diff(eigenvalues)).tolist(), start=1))


def grounds_of_gaps(num_clusters: Sequence[int], gaps: Sequence[Mapping[int, float]]) -> Grounds:
    """Whether a graph falls into one number of parts much more clearly than into any other.

    If graphs depend on K, the gaps of different graphs are not on a common scale: each K is
    compared with the gaps of the graph that its fit cuts.

    Args:
        num_clusters: Values of K, ascending.
        gaps: For each K, the gaps of its graph, from `eigengaps`. If the graph does not depend on
            K, those of a fit of the largest K serve for all: `[gaps] * len(num_clusters)`.

    Returns:
        The grounds for the K whose gap is widest relative to the others of its graph. The choice is
        clear if this gap is much wider than every other, does not end the range, and is the only
        such gap.

    References:
        von Luxburg (2007), A tutorial on spectral clustering, Sec. 8.3.
    """
    ratios, seconds = [], []
    for count, own in zip(num_clusters, gaps, strict=True):
        # Every connected graph has one part; its gap says nothing about clusters.
        others = [gap for k, gap in own.items() if k not in (1, count)]
        seconds.append(max(others, default=0.0))
        second = max(seconds[-1], np.finfo(np.float64).tiny) if others else math.inf
        ratios.append(own.get(count, 0.0) / second if count > 1 else 0.0)
    best = int(np.argmax(ratios))
    chosen, several = num_clusters[best], len(set(map(id, gaps))) > 1
    reason = (
        f"Of the gaps between eigenvalues of {'its' if several else 'the'} graph the one between "
        f"number {chosen} and the next is {gaps[best].get(chosen, 0.0):.4g}, and the widest other "
        f"{seconds[best]:.4g}"
    )
    if several:
        reason += "; graphs follow K here, and gaps are compared within one graph"
    rivals = [k for k, ratio in zip(num_clusters, ratios, strict=True) if ratio >= _CLEAR_GAP]
    if rivals != [chosen] or best == len(num_clusters) - 1:
        named = ", ".join(map(str, rivals))
        also = f" Several graphs name one: {named}." if len(rivals) > 1 else ""
        reason = (
            f"No clear choice. {reason}.{also} A clear one is {_CLEAR_GAP:g} times as wide, and "
            "does not stand at the end of the range; try other numbers, or choose by eye."
        )
        return Grounds(best, False, reason)
    reason += f": it falls into {chosen} parts more clearly than into any other number."
    return Grounds(best, True, reason)


def grounds_of_evidence(names: Sequence[str], values: Sequence[float]) -> Grounds:
    """Whether one landmark grid has clearly the highest evidence.

    Args:
        names: Names of the grids, in ascending order of their landmarks.
        values: Their log-evidence per image.

    Returns:
        The grounds for the grid with the highest evidence. The choice is clear if it clearly
        exceeds the next, and a finer grid was tried.
    """
    best = int(np.argmax(values))
    if len(values) == 1:
        return Grounds(best, False, f"No clear choice: a grid of {names[best]} alone was tried.")
    others = np.delete(np.asarray(values, np.float64), best)
    reason = (
        f"The log-evidence of an image is greatest for a grid of {names[best]}, "
        f"{values[best]:.4g}, and the next is {others.max():.4g}. It weighs how well the warps fit "
        "against how much they could fit; the loss cannot choose, as every landmark lowers it"
    )
    if best == len(values) - 1:
        reason = f"No clear choice. {reason}. It stands at the end of the range: try finer grids."
        return Grounds(best, False, reason)
    margin, width = values[best] - others.max(), values[best] - others.min()
    if margin == 0.0 or (len(others) > 1 and margin < _CLEAR_EVIDENCE * width):
        reason = (
            f"No clear choice. {reason}. The difference is a hair's: under {_CLEAR_EVIDENCE:.0%} "
            "of the range. Of two that are as good the smaller grid is the quicker one."
        )
        return Grounds(best, False, reason)
    return Grounds(best, True, f"{reason}.")


def clusters_of_leading(result: Result, num_clusters: int, *, key: Key) -> PointClusters | None:
    """The clusters for as many or fewer K of a graph that has been cut, without another fit.

    Args:
        result: A fit of a spectral method.
        num_clusters: K, at most that of the fit.
        key: Random key of the k-means.

    Returns:
        k-means of the leading eigenvectors, with as many in excess of K as in the fit; None if the
        fit has eigenvectors only of representatives, not of the samples.

    Raises:
        ValueError: If K is larger than that of the fit.
    """
    extras, most = result.outcome.extras, result.model.num_clusters
    embedding = SpectralEmbedding.of_basis(extras["eigenvalues"], extras["basis"])
    _validation.count(num_clusters, "num_clusters")
    if num_clusters > most:
        raise ValueError(f"num_clusters must be at most the {most} of the fit, not {num_clusters}")
    if "scales" not in extras:
        return None
    vectors = embedding.leading(num_clusters + max(0, embedding.basis.shape[1] - most))
    restarts = result.model.num_restarts
    weight = extras.get("weight")
    return kmeans(vectors, num_clusters, key=key, num_restarts=restarts, weight=weight, warns=False)
