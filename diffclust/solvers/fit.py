"""A whole fit: seeding, restarts on coarse images, moves, and the best run finished on the fine."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, PyTree

from diffclust.image_source import ImageSource
from diffclust.parallel import gathered, own_part, replicate, rowwise, shard_rows
from diffclust.prototypes import Learned
from diffclust.solvers.base import AbstractSolver, Memory, remembered
from diffclust.solvers.chunks import Chunks, cut, largest_read
from diffclust.solvers.lloyd import Lloyd
from diffclust.solvers.moves import improve
from diffclust.solvers.progress import Callback, Progress, Snapshots, ignore
from diffclust.solvers.result import Assignment, Outcome
from diffclust.solvers.run import Going, Report, Run, assigned, host_assignment, run_lloyd
from diffclust.solvers.standing import Blank, Standing, Trying, read, written
from diffclust.solvers.start import (
    Plan,
    Start,
    blank_state,
    from_alignments,
    level_of,
    started,
)
from diffclust.solvers.weights import learn_weights
from diffclust.types import Key


def fit_prototypes(
    solver: Lloyd,
    plan: Plan,
    samples: PyTree,
    weight: Float[np.ndarray, " n"] | None,
    *,
    key: Key,
    start: Start = None,
    callback: Callback = ignore,
    snapshots: Snapshots | None = None,
) -> Outcome:
    """Fits prototypes to samples.

    Args:
        solver: Energy, aligner and prototype family.
        plan: How to proceed.
        samples: Samples with a leading axis.
        weight: Sample weights, or None.
        key: Random key.
        start: Where to start; a given start makes all restarts alike, so there is one.
        callback: Told of every chunk.
        snapshots: Where the fit saves its state and goes on from, or None.

    Returns:
        The outcome, for the restart of least loss.

    Raises:
        FitError: If a loss is not a number.
    """
    begun = time.perf_counter()
    finest = level_of(solver, plan, samples, weight, 1)
    level = (
        finest if plan.coarsening == 1 else level_of(solver, plan, samples, weight, plan.coarsening)
    )
    restarts = jax.random.split(key, plan.num_restarts if start is None else 1)
    at = Standing()
    if snapshots is not None:
        blank = (blank_state(solver, plan, chunks) for chunks in (level, finest))
        unseen = solver.remember(level.num_samples, plan.num_clusters, level.dtype)
        at = read(snapshots, level, Blank(*blank, memory=unseen))
    begun -= at.seconds

    def keep(at: Standing) -> None:
        if snapshots is not None:
            seconds = time.perf_counter() - begun
            snapshots.save(lambda: written(dataclasses.replace(at, seconds=seconds), level))

    fit = _Fit(solver, plan, level, finest, callback, keep)
    while at.restart < len(restarts):
        at = _restart(fit, at, start, restarts[at.restart])
    if at.stage != "refine" and plan.weight_rounds > 0:
        at = _weigh(fit, at)
    if plan.coarsening > 1:
        at = _refine(fit, at)
    best = at.best
    assert best is not None
    return Outcome(
        gathered(best.learned, plan.mesh),
        host_assignment(finest, best.memory),
        best.history,
        at.losses,
        best.status,
        plan.chunk_size,
        time.perf_counter() - begun,
    )


@dataclasses.dataclass(frozen=True)
class _Fit:
    """What stays the same throughout a fit; `keep` is called whenever it has got on."""

    solver: Lloyd
    plan: Plan
    level: Chunks
    finest: Chunks
    callback: Callback
    keep: Callable[[Standing], None]


def _restart(fit: _Fit, at: Standing, start: Start, key: Key) -> Standing:
    """One restart with its moves: where the fit stands after it."""
    solver, plan, level = fit.solver, fit.plan, fit.level
    report = _reporter(fit.callback, "pass", at.restart, at.least)
    trying = at.trying
    if trying is None:
        if at.going is None:
            if start is None:
                total = plan.num_clusters
                fit.callback(Progress("seeding", at.restart, 0, 0, total, None, at.least))
            going = Going(*started(solver, plan, level, fit.finest, start, key))
        else:
            going = at.going
        trying = Trying(_go_on(fit, level, at, going, report))
        at = dataclasses.replace(at, going=None, trying=trying)
        fit.keep(at)

    passes, loss = len(trying.run.history), trying.run.loss

    def tell(done: int, total: int) -> None:
        fit.callback(Progress("split", at.restart, passes, done, total, loss, at.least))

    # Handed over: of millions of samples, the memory of a run that was bettered is not kept.
    begun, at = [trying], dataclasses.replace(at, trying=None)
    del trying
    run = improve(
        solver,
        level,
        begun[0].run,
        plan.stopping,
        plan.moves,
        seed=int(jax.random.randint(key, (), 0, 2**30)),
        report=report,
        split_report=tell,
        begin=begun.pop(),
        keep=lambda trying: fit.keep(dataclasses.replace(at, trying=trying)),
    )
    best = run if at.best is None or run.loss < at.best.loss else at.best
    after = Standing("restarts", at.restart + 1, (*at.losses, run.loss), best)
    fit.keep(after)
    return after


def _weigh(fit: _Fit, at: Standing) -> Standing:
    """The penalty weights of the best run learned: where the fit stands after it."""
    run = at.best if at.trying is None else at.trying.run
    assert run is not None
    at = dataclasses.replace(at, stage="weights", best=None)
    best = learn_weights(
        fit.solver,
        fit.level,
        run,
        fit.plan.stopping,
        rounds=fit.plan.weight_rounds,
        shared=not fit.plan.weights_per_cluster,
        report=_reporter(fit.callback, "refine", int(np.argmin(at.losses)), at.least),
        begin=at.trying,
        keep=lambda trying: fit.keep(dataclasses.replace(at, trying=trying)),
    )
    return dataclasses.replace(at, best=best, trying=None)


def _refine(fit: _Fit, at: Standing) -> Standing:
    """The best run finished on the samples themselves: where the fit stands after it."""
    going, best = at.going, at.best
    if going is None:
        assert best is not None
        clusters = best.learned.clusters
        going = Going(from_alignments(fit.solver, fit.finest, best.memory, clusters), best.memory)
    report = _reporter(fit.callback, "refine", int(np.argmin(at.losses)), at.least)
    at = dataclasses.replace(at, stage="refine", best=None)
    return dataclasses.replace(at, going=None, best=_go_on(fit, fit.finest, at, going, report))


def _go_on(fit: _Fit, chunks: Chunks, at: Standing, going: Going, report: Report) -> Run:
    return run_lloyd(
        fit.solver,
        chunks,
        going.state,
        going.memory,
        fit.plan.stopping,
        history=going.history,
        report=report,
        keep=lambda going: fit.keep(dataclasses.replace(at, going=going)),
    )


def _reporter(callback: Callback, stage: str, restart: int, least: float | None) -> Report:
    def report(iteration: int, done: int, total: int, loss: float | None, learned: Learned) -> None:
        callback(Progress(stage, restart, iteration, done, total, loss, least, learned=learned))

    return report


@eqx.filter_jit
def _assign(
    solver: AbstractSolver,
    learned: PyTree,
    samples: PyTree,
    memory: Memory,
    mesh: Mesh | None,
) -> Memory:
    def run(everywhere: PyTree, rows: PyTree) -> Memory:
        (solver, learned), (samples, memory) = everywhere, rows
        return remembered(solver.assign(learned, samples, memory), memory.params.shape[1])

    return rowwise(run, mesh)((solver, learned), (samples, memory))


def assign_chunks(
    solver: AbstractSolver,
    learned: Learned,
    samples: PyTree,
    *,
    part: Callable[[Memory], PyTree],
    chunk_size: int,
    callback: Callback = ignore,
    mesh: Mesh | None = None,
) -> Any:
    """Assigns samples to clusters that stay as they are.

    Args:
        solver: What assigns.
        learned: The clusters and what goes with them.
        samples: Samples with a leading axis.
        part: What is kept of how a chunk was aligned to all its candidates, given and returned on
            the host.
        chunk_size: Samples a chunk, and a device.
        callback: Told of every chunk.
        mesh: Devices that share every chunk, or None for one.

    Returns:
        What was kept of each chunk, in the order of the samples.
    """
    if isinstance(samples, ImageSource):
        # The model may be of images in memory, whose chunks are larger.
        chunk_size = min(chunk_size, largest_read(math.prod(samples.shape[1:])))
    chunks = cut(samples, None, size=chunk_size, normalise=solver.normalise, mesh=mesh)
    blank = solver.remember(chunks.own_size, len(learned.clusters), chunks.dtype)
    learned, blank = replicate(learned, mesh), shard_rows(blank, mesh)

    def parts() -> Iterator[PyTree]:
        for number, batch in enumerate(chunks.batches):
            found = jax.block_until_ready(_assign(solver, learned, batch.samples, blank, mesh))
            callback(Progress("predict", 0, 0, number + 1, chunks.count))
            yield part(own_part(found, mesh))

    return chunks.stack(parts())


def assign_samples(
    solver: AbstractSolver,
    learned: Learned,
    samples: PyTree,
    *,
    chunk_size: int,
    callback: Callback = ignore,
    mesh: Mesh | None = None,
) -> Assignment:
    """Assigns samples to clusters that stay as they are.

    Args:
        solver: What assigns.
        learned: The clusters and what goes with them.
        samples: Samples with a leading axis.
        chunk_size: Samples a chunk, and a device.
        callback: Told of every chunk.
        mesh: Devices that share every chunk, or None for one.

    Returns:
        The assignment.
    """
    found = assign_chunks(
        solver,
        learned,
        samples,
        part=assigned,
        chunk_size=chunk_size,
        callback=callback,
        mesh=mesh,
    )
    return Assignment(*found)
