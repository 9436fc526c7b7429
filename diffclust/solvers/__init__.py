"""Solvers: seeding, Lloyd's algorithm in pure steps, moves out of poor optima, and whole fits.

Take `Lloyd` to drive the steps yourself (under `pmap`, say); `fit_prototypes` is the whole loop
that the models use.
"""

from diffclust.solvers.chunks import Chunks, cut, default_chunk_size
from diffclust.solvers.fit import Plan, assign_samples, fit_prototypes
from diffclust.solvers.lloyd import Batch, Lloyd, LloydState, Memory, Tally
from diffclust.solvers.moves import Moves
from diffclust.solvers.progress import Callback, FitError, Progress, Status
from diffclust.solvers.result import Assignment, Outcome
from diffclust.solvers.run import Run, Stopping, run_lloyd
from diffclust.solvers.seeding import kmeans_plus_plus

__all__ = [
    "Assignment",
    "Batch",
    "Callback",
    "Chunks",
    "FitError",
    "Lloyd",
    "LloydState",
    "Memory",
    "Moves",
    "Outcome",
    "Plan",
    "Progress",
    "Run",
    "Status",
    "Stopping",
    "Tally",
    "assign_samples",
    "cut",
    "default_chunk_size",
    "fit_prototypes",
    "kmeans_plus_plus",
    "run_lloyd",
]
