"""Solvers: seeding, Lloyd's algorithm and gradient EM in pure steps, and whole fits as problems.

Use `Lloyd` or `GradientEM` to drive the steps yourself (under `pmap`, for example); `run` drives a
whole fit, given a problem and `diffclust.parallel.Data`. `kmeans` clusters the rows of an
embedding.
"""

from diffclust.solvers.aligned_means import aligned_means, alignment_chunks
from diffclust.solvers.assign import all_energies, assign_samples, assign_softly
from diffclust.solvers.base import AbstractSolver, Adjoint, Memory
from diffclust.solvers.compiled import CompiledRun, compiled_lloyd, compiled_seeds
from diffclust.solvers.driver import AbstractProblem, Stages, State, run
from diffclust.solvers.gradient import GradientEM, GradientPlan, GradientState, Phase
from diffclust.solvers.gradient_problem import GradientProblem
from diffclust.solvers.lloyd import Lloyd, LloydState, Tally
from diffclust.solvers.lloyd_problem import LloydPlan, LloydProblem, Start
from diffclust.solvers.lloyd_run import LloydRun, Stopping, clusters_of, lloyd_iterations
from diffclust.solvers.point_clusters import PointClusters, kmeans, nearest_centres, representatives
from diffclust.solvers.result import (
    Assignment,
    Callback,
    Cancelled,
    FitError,
    Outcome,
    Progress,
    Snapshots,
    Status,
    best_restart,
    ignore,
    warn_if_risen,
)
from diffclust.solvers.seeding import distances_to_seeds, kmeans_plus_plus, random_assignments
from diffclust.solvers.split_merge import SplitMerge
from diffclust.solvers.staged_problem import Context, FitStage, StagedProblem

__all__ = [
    "AbstractProblem",
    "AbstractSolver",
    "Adjoint",
    "Assignment",
    "Callback",
    "Cancelled",
    "CompiledRun",
    "Context",
    "FitError",
    "FitStage",
    "GradientEM",
    "GradientPlan",
    "GradientProblem",
    "GradientState",
    "Lloyd",
    "LloydPlan",
    "LloydProblem",
    "LloydRun",
    "LloydState",
    "Memory",
    "Outcome",
    "Phase",
    "PointClusters",
    "Progress",
    "Snapshots",
    "SplitMerge",
    "StagedProblem",
    "Stages",
    "Start",
    "State",
    "Status",
    "Stopping",
    "Tally",
    "aligned_means",
    "alignment_chunks",
    "all_energies",
    "assign_samples",
    "assign_softly",
    "best_restart",
    "clusters_of",
    "compiled_lloyd",
    "compiled_seeds",
    "distances_to_seeds",
    "ignore",
    "kmeans",
    "kmeans_plus_plus",
    "lloyd_iterations",
    "nearest_centres",
    "random_assignments",
    "representatives",
    "run",
    "warn_if_risen",
]
