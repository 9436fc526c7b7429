"""The evidence of a fit, which compares grids and penalty weights without labels."""

import dataclasses
import math
from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from diffclust import _validation
from diffclust.energies import FitStatistics, estimate_noise, log_evidence
from diffclust.models.base import AbstractModel, Result
from diffclust.models.kmeans import AbstractPrototypeModel
from diffclust.parallel import Data
from diffclust.parallel.data import PerSample
from diffclust.solvers import LloydRun
from diffclust.solvers.lloyd_run import sum_over_chunks
from diffclust.solvers.penalty_learning import warp_statistics


def check_evidence(model: AbstractModel) -> AbstractPrototypeModel:
    """Refuses a model whose fits have no evidence.

    Args:
        model: The model.

    Returns:
        The model.

    Raises:
        ValueError: If the model has no warps, or does not penalise them.
    """
    if not model.descriptor.has_evidence:
        raise ValueError(f"{model.method} has no penalised warps, and so no evidence")
    prototypes = cast(AbstractPrototypeModel, model)
    if min(prototypes.penalty()) == 0.0:
        raise ValueError(
            f"penalty weights of {prototypes.penalty()} have no evidence; all of them must be "
            "positive"
        )
    return prototypes


def _with_first(array: Array, values: np.ndarray) -> Array:
    """A copy with other values in the first column, made on the host."""
    copied = np.array(array)
    copied[:, 0] = values
    return jax.device_put(copied)


@eqx.filter_jit
def _total(fit: FitStatistics, penalty: Array) -> Array:
    """The log-evidence under the noise that best explains a fit."""
    return log_evidence(fit, estimate_noise(fit, penalty))


def evidence_of(
    result: Result, images: Any, *, sample_weight: Any = None, pixels: float | None = None
) -> tuple[float, float]:
    """The log-evidence of a fit per image, comparable between grids and penalty weights.

    It decreases if warps are so free that they can explain anything. The distortion, in contrast,
    only improves with freer warps.

    Args:
        result: A fit of a model with penalised warps.
        images: The images that it was fitted to.
        sample_weight: The weights they were fitted with, or None.
        pixels: Effective number of independent pixels. Fits are comparable only with the same
            number: pass the value returned for the first fit to all others.

    Returns:
        The evidence in nats per image of weight one, and the number of pixels.

    Raises:
        ValueError: If the model has no penalties, one of them is zero, `pixels` is not positive, or
            every image equals its prototype.

    References:
        MacKay (1992), Bayesian interpolation; see `diffclust.energies.log_evidence`.
    """
    model = check_evidence(result.model)
    if pixels is not None:
        _validation.positive(pixels, "pixels", least=0, strictly=True)
    array = model.prepared(images)
    solver, assignment = model.solver(), result.outcome.assignment
    weight = None if sample_weight is None else _validation.weights(sample_weight, len(array))
    chunks = Data(array, weight, result.outcome.chunk_size).level(1, solver.normalise)
    unseen = solver.init_memory(len(array), model.num_clusters, chunks.dtype)
    known = dataclasses.replace(
        unseen,
        cluster=_with_first(unseen.cluster, assignment.clusters),
        params=_with_first(unseen.params, assignment.params),
    )
    learned = result.outcome.learned
    state, memory = sum_over_chunks(
        solver.step, chunks, solver.init(learned.clusters), chunks.scatter(known)
    )
    run = LloydRun(learned, PerSample(memory), state.tally, result.history, result.outcome.status)
    warps = warp_statistics(solver, chunks, run)
    if pixels is not None:
        warps = dataclasses.replace(warps, pixels=np.asarray(pixels, warps.pixels.dtype))
    total = float(_total(warps, learned.clusters.penalty))
    if not math.isfinite(total):
        raise ValueError(
            "the evidence is not a number: the fit leaves no noise, as if every image were equal "
            "to its prototype; give more different images, or ask for fewer clusters"
        )
    mass = len(array) if weight is None else float(np.sum(weight, dtype=np.float64))
    return total / mass, float(np.asarray(warps.pixels))
