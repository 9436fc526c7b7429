"""Whole fits of a solver, without a model."""

from typing import Any

import jax
import numpy as np

from diffclust.parallel import Data
from diffclust.solvers import Lloyd, LloydPlan, LloydProblem, Outcome, run


def fit_prototypes(
    solver: Lloyd,
    plan: LloydPlan,
    samples: Any,
    weight: np.ndarray | None,
    *,
    key: jax.Array,
    chunk_size: int = 16,
    start: Any = None,
    snapshots: Any = None,
    mesh: Any = None,
) -> Outcome:
    data = Data(samples, weight, chunk_size, mesh)
    return run((LloydProblem(solver, plan, start),), data, key, snapshots=snapshots)
