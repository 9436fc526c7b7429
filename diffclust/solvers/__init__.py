"""Solvers: seeding, Lloyd's algorithm in pure steps, moves out of poor optima, and whole fits.

Take `Lloyd` to drive the steps yourself (under `pmap`, say); `fit_prototypes` is the whole loop
that the models use. `cluster_rows` clusters the rows of a spectral embedding.
"""

from diffclust.solvers.base import AbstractSolver, Batch, Memory
from diffclust.solvers.chunks import Chunks, cut, default_chunk_size
from diffclust.solvers.fit import assign_samples, fit_prototypes
from diffclust.solvers.lloyd import Lloyd, LloydState, Tally
from diffclust.solvers.moves import Moves
from diffclust.solvers.progress import Callback, Cancelled, FitError, Progress, Status
from diffclust.solvers.result import Assignment, Outcome
from diffclust.solvers.rows import RowClusters, cluster_rows, nearest_centres
from diffclust.solvers.run import Run, Stopping, run_lloyd
from diffclust.solvers.seeding import kmeans_plus_plus
from diffclust.solvers.start import Plan
from diffclust.solvers.transfer_cut import representatives
from diffclust.solvers.whole import WholeRun, random_assignments, run_whole

__all__ = [
    "AbstractSolver",
    "Assignment",
    "Batch",
    "Callback",
    "Cancelled",
    "Chunks",
    "FitError",
    "Lloyd",
    "LloydState",
    "Memory",
    "Moves",
    "Outcome",
    "Plan",
    "Progress",
    "RowClusters",
    "Run",
    "Status",
    "Stopping",
    "Tally",
    "WholeRun",
    "assign_samples",
    "cluster_rows",
    "cut",
    "default_chunk_size",
    "fit_prototypes",
    "kmeans_plus_plus",
    "nearest_centres",
    "random_assignments",
    "representatives",
    "run_lloyd",
    "run_whole",
]
