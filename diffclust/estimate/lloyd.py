"""What a fit by Lloyd's algorithm will take: more samples take more passes to come to rest."""

import dataclasses
import math
import statistics
from typing import Any

import numpy as np

from diffclust.estimate.rehearsal import Rehearsal, rehearse, some_of
from diffclust.estimate.result import StageCost
from diffclust.models import AbstractModel, AbstractPrototypeModel
from diffclust.solvers import Progress, SplitMerge, default_chunk_size
from diffclust.types import Key

_SHARE = 24
"""One sample in so many is rehearsed with, so that it takes a small part of the fit's time."""

_MOST = 4096
_EACH = 10
"""Samples for each cluster, at least."""

_STEPS = 3
"""Chunks of the true size that are timed, beside the first, which compiles."""

_GROWTH = 0.35
"""Passes until no sample changes its cluster, moves included, grow as about this power of the
number of samples: K-means of 500 to 16,000 MNIST digits, three seeds each. Where a small fall of
the loss ends a run, they do not grow."""

_TYPICAL = 25
"""Passes of a restart, moves included, of 1,000 images: the same experience."""


@dataclasses.dataclass(frozen=True)
class _Chunk:
    """What a step over one chunk of the fit takes, wall-clock and processor seconds."""

    wall: float
    cpu: float


def lloyd_stages(
    model: AbstractModel,
    samples: Any,
    *,
    key: Key,
    chunk_size: int | None,
    seconds: float,
    short: float,
) -> tuple[StageCost, ...]:
    """The stages of a fit by Lloyd's algorithm.

    Two rehearsals: a few steps over one chunk, compiled as the fit needs it, and a fit of a few
    samples to its end, for the number of passes.

    Args:
        model: The model.
        samples: All samples.
        key: Random key.
        chunk_size: Samples a chunk of the fit, or None for the model's choice.
        seconds: About how long a rehearsal may take.
        short: The second is left out where the fit takes less by the first and by experience.

    Returns:
        The stages.
    """
    count = len(samples)
    full = chunk_size_of(model, samples, chunk_size)
    first = rehearse(
        model,
        some_of(samples, full, key),
        key=key,
        chunk_size=full,
        seconds=seconds,
        until=lambda progress: progress.stage == "pass" and progress.iteration >= _STEPS,
    )
    chunk = _chunk(first)
    chunks = -(-count // full)
    begin = first.cost("begin").scaled(count / min(count, full))
    seeding = _seeding(first, chunk).scaled(chunks * model.num_restarts)
    typical = min(_TYPICAL * _growth(model, count / 1000), _limit(model)) * model.num_restarts
    rough = StageCost("pass", chunk.wall, chunk.cpu, chunk.wall, chunk.wall)
    rough = rough.scaled(typical * chunks, least=0.3, most=3.0)
    if rough.seconds + seeding.seconds < short:
        return begin, seeding, rough
    few = min(count, max(min(count // _SHARE, _MOST), _EACH * model.num_clusters, 32))
    small = min(full, 16 * -(-few // 16))
    seen = rehearse(model, some_of(samples, few, key), key=key, chunk_size=small, seconds=seconds)
    passing = _passes(model, seen, count / few, chunk, chunks)
    refining = _refining(seen, chunk, chunks)
    splitting = _splitting(model, seen, few, count, chunk, full)
    again = ("split",) if _trial(model, few) != _trial(model, count) else ()
    compiling = seen.compiling(*again, *(("refine",) if small != full else ()))
    return tuple(
        stage
        for stage in (begin, seeding, passing, splitting, refining, compiling)
        if stage.seconds > 0
    )


def chunk_size_of(model: AbstractModel, samples: Any, given: int | None) -> int:
    """Samples a chunk of a fit.

    Args:
        model: The model.
        samples: All samples.
        given: What was asked for, or None.

    Returns:
        What was given, or else the model's choice.
    """
    if given is not None:
        return given
    if isinstance(model, AbstractPrototypeModel):
        return model.default_chunk_size(samples)
    return default_chunk_size(samples[0], len(samples), 3 * model.num_clusters)


def _limit(model: AbstractModel) -> int:
    return getattr(model, "max_passes", 100)


def _growth(model: AbstractModel, ratio: float) -> float:
    """How many times more passes there are, for so many times more samples."""
    return ratio**_GROWTH if getattr(model, "tolerance", 0.0) == 0.0 else 1.0


def _chunk(seen: Rehearsal) -> _Chunk:
    """The typical step of those that compiled nothing."""
    steps = seen.of("pass")
    clean = [step for step in steps if not step.compiling] or steps or seen.of("seeding")
    return _Chunk(
        statistics.median(step.wall for step in clean),
        statistics.median(step.cpu for step in clean),
    )


def _seeding(seen: Rehearsal, chunk: _Chunk) -> StageCost:
    """Seeding from one chunk; its interval ends when the first step is done, too."""
    found = seen.cost("seeding")
    runs = max(len(seen.of("seeding")), 1)
    wall = max(found.seconds / runs - chunk.wall, 0.0)
    return StageCost("seeding", wall, max(found.cpu_seconds / runs - chunk.cpu, 0.0), wall, wall)


def _reports(seen: Rehearsal, stage: str) -> list[Progress]:
    told = (interval.progress for interval in seen.intervals)
    return [progress for progress in told if progress is not None and progress.stage == stage]


def _passes(
    model: AbstractModel, seen: Rehearsal, ratio: float, chunk: _Chunk, chunks: int
) -> StageCost:
    """As many passes as there were, and more for more samples."""
    reports = _reports(seen, "pass")
    passes = len(reports) / max((progress.total for progress in reports), default=1)
    runs = max(sum(p.iteration == 0 and p.done == 1 for p in reports), 1)
    cap = max(_limit(model) * runs / max(passes, 1.0), 1.0)
    widest = 2.0
    if seen.result is None:
        # It was broken off: restarts that did not come are taken to be like those that did.
        done = max(progress.restart for progress in reports) + 1
        usual = min(_TYPICAL, _limit(model)) * model.num_restarts
        passes, widest = max(1.5 * passes * model.num_restarts / done, usual), 4.0
    passes *= min(_growth(model, ratio), cap)
    cost = StageCost("pass", chunk.wall, chunk.cpu, chunk.wall, chunk.wall)
    return cost.scaled(passes * chunks, least=0.5, most=widest)


def _refining(seen: Rehearsal, chunk: _Chunk, chunks: int) -> StageCost:
    """Passes of the best run on the full images, and of learning penalties."""
    found, rehearsed = seen.cost("refine", typical=True), _chunk(seen)
    reports = _reports(seen, "refine")
    before = max((progress.total for progress in reports), default=1)
    return found.scaled(
        chunk.wall / max(rehearsed.wall, 1e-9) * chunks / before, least=0.5, most=2.0
    )


def _trial(model: AbstractModel, count: int) -> int:
    """Samples that a trial split looks at, filled up to a power of two."""
    typical = min(count / model.num_clusters, SplitMerge().split_samples)
    return 2 ** math.ceil(math.log2(max(16.0, typical)))


def _splitting(
    model: AbstractModel, seen: Rehearsal, few: int, count: int, chunk: _Chunk, full: int
) -> StageCost:
    """Trial splits: as long as they took, and a few passes over more samples of each cluster."""
    found = seen.cost("split")
    moves, clusters = SplitMerge(), model.num_clusters
    trials = sum(i.wall > 1e-4 for i in seen.of("split"))
    # A step aligns with two clusters, not with all.
    more = (
        max(_trial(model, count) - _trial(model, few), 0)
        / full
        * moves.split_passes
        * 2
        / clusters
        * trials
    )
    wall, cpu = found.seconds + more * chunk.wall, found.cpu_seconds + more * chunk.cpu
    return StageCost("split", wall, cpu, 0.5 * wall, 2.0 * wall)


def resident_bytes(model: AbstractModel, samples: Any) -> int:
    """Bytes of the arrays that a fit holds for all samples, beside the samples themselves.

    Args:
        model: The model.
        samples: All samples.

    Returns:
        The normalised samples, those of the coarser level, and what is remembered of them.
    """
    pixels = int(np.prod(samples.shape[1:]))
    coarser, row = 0.0, 8 * model.num_clusters
    if isinstance(model, AbstractPrototypeModel):
        factor = model.coarsening(*samples.shape[1:3])
        coarser = 0.0 if factor == 1 else 1.0 / factor**2
        solver = model.solver()
        places = solver.aligner.num_candidates(model.num_clusters)
        row = 8 * places + 4 * min(solver.warm_starts, places) * solver.energy.num_params
    # The memories of the pass before, of this one and of the best run, and a copy on the host.
    return int(len(samples) * (4 * pixels * (1.0 + coarser) + 4 * row + 64))
