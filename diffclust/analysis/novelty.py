"""Whether new samples are like the samples that a model was fitted to."""

import dataclasses

import jax
import numpy as np
from jaxtyping import Float

from diffclust.models.base import Result
from diffclust.models.selection import counted
from diffclust.solvers import Assignment

SIGNIFICANCE = 0.05
"""p-value at or below which a sample is considered far from its cluster."""


def conformal_p_values(result: Result, assignment: Assignment) -> Float[np.ndarray, " n"] | None:
    """Computes conformal p-values: shares of a cluster's fitted samples that conform no better.

    Args:
        result: A fitted model.
        assignment: The result of `result.predict` for the new samples.

    Returns:
        The `p_values` by the model's own nonconformity scores: the distances, or for a graph those
        to the nearest fitted samples. Directions found from few samples fit these better than
        others, so small fits give more small values. None for models whose networks were trained on
        the fitted samples, which therefore conform better than any others; of samples that were
        held out, `p_values` computes them.
    """
    if jax.tree.leaves(result.outcome.learned.clusters.predictor):
        return None
    new, own = assignment.nonconformity, result.outcome.assignment
    positions, fitted = counted(result.outcome), own.nonconformity
    own = jax.tree.map(lambda each: each[positions], own)
    if new is None:
        return p_values(own, assignment)
    fitted = result.model.nonconformity(result.outcome) if fitted is None else fitted
    both = ((own, fitted[positions]), (assignment, new))
    return p_values(*(dataclasses.replace(each, distances=values) for each, values in both))


def novelty(
    result: Result, assignment: Assignment, values: Float[np.ndarray, " n"]
) -> dict[str, float]:
    """Counts new samples that are far from their cluster: farther than 95 % of its fitted ones.

    If a cluster has fewer than 39 of these, new samples count that are farther than all of them.

    Args:
        result: A fitted model.
        assignment: The new samples, assigned by it.
        values: Their p-values.

    Returns:
        `far`, how many are, and `far_usual`, how many would be on average if they were like the
        fitted ones.
    """
    fitted = result.outcome.assignment.clusters[counted(result.outcome)]
    ranks = 1 + np.bincount(fitted, minlength=result.model.num_clusters)
    # The p-values of a cluster are multiples of 1 / ranks.
    bounds = np.maximum(1.0, np.floor(SIGNIFICANCE * ranks)) / ranks
    own = np.where(ranks > 1, bounds, 0.0)[assignment.clusters]
    far = values <= own * (1.0 + 1e-9)
    return {"far": float(np.sum(far)), "far_usual": float(np.sum(own))}


def p_values(fitted: Assignment, new: Assignment) -> Float[np.ndarray, " n"]:
    """Computes conformal p-values of new samples by their distance to the cluster.

    These are conformal p-values with the distance as nonconformity measure. Of samples from the
    same distribution as the fitted ones, a share of at most p has a value of at most p. But
    prototypes are closer to the samples that they are means of, so small clusters give somewhat
    more small values.

    Args:
        fitted: The samples of the fit.
        new: Other samples, assigned by the same model.

    Returns:
        `(1 + m) / (1 + n)` for each new sample, where m of its cluster's n fitted samples are at
        least as far.

    References:
        Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005, Sec. 2.2.
    """
    values = np.ones(len(new))
    for cluster in np.unique(new.clusters):
        own = np.sort(fitted.distances[fitted.clusters == cluster])
        here = new.clusters == cluster
        values[here] = 1 + len(own) - np.searchsorted(own, new.distances[here])
        values[here] /= 1 + len(own)
    return values
