"""What a fit by gradient steps will take: the number of steps is known, so a few are timed."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from diffclust.estimate.rehearsal import Rehearsal, rehearse
from diffclust.estimate.result import StageCost
from diffclust.models import AbstractGradientModel
from diffclust.solvers import Progress
from diffclust.solvers.curriculum import GradientPlan
from diffclust.types import Key

_CHUNKS = 3
"""Chunks of the final assignment that are timed; the first one compiles."""


def gradient_stages(
    model: AbstractGradientModel,
    samples: Any,
    *,
    key: Key,
    chunk_size: int | None,
    seconds: float,
    short: float,
) -> tuple[StageCost, ...]:
    """The stages of a fit by gradient steps.

    All samples are given to the rehearsals, so that what they compile is what the fit needs.

    Args:
        model: The model.
        samples: All samples.
        key: Random key.
        chunk_size: Samples a chunk of the final assignment, or None for the model's choice.
        seconds: About how long a rehearsal may take.
        short: One rehearsal will do where it says that the fit takes less.

    Returns:
        The stages.
    """
    plan = model.plan(samples)

    def run(steps: int, until: Any, *, moves: bool = False) -> Rehearsal:
        return rehearse(
            _shortened(model, plan, steps, moves=moves),
            samples,
            key=key,
            chunk_size=chunk_size,
            seconds=seconds,
            until=until,
        )

    first = run(1, _assigned)
    one, assigning = _phases(first), _assigning(first)
    restarts = model.num_restarts
    most = restarts * (
        math.fsum(p.steps * s for p, s in _paired(plan.phases, one)) + assigning.seconds
    )
    if most < short:
        return (StageCost("step", most, most, 0.0, most),)
    more = max(2, min(50, math.ceil(0.2 * seconds / max(sum(one), 1e-3))))
    # Compiled in the first rehearsal, so that nothing but steps is timed.
    again, many = run(1, _trained), run(1 + more, _trained)
    one = _phases(again)
    steps = [max(b - a, 0.0) / more for a, b in _paired(one, _phases(many))]
    cpu = sum(_phases(many, "cpu")) / max(sum(_phases(many)), 1e-9)
    stepping = math.fsum(p.steps * s for p, s in _paired(plan.phases, steps))
    attempts, moving = _attempts(plan), 0.0
    if sum(attempts) and sum(steps) * plan.move_samples / plan.batch_size < 3.0 * seconds:
        tried = _phases(run(1, _trained, moves=True))
        moving = math.fsum(
            n * max(b - a, 0.0) for n, a, b in zip(attempts, one, tried, strict=False)
        )
    least = _earliest(plan) if model.training.tolerance else 1.0

    def cost(name: str, seconds: float) -> StageCost:
        return StageCost(name, seconds, seconds * cpu, seconds, seconds).scaled(restarts)

    return (
        cost("begin", max(one[0] - steps[0], 0.0)),
        cost("step", stepping + moving).scaled(1.0, least=least),
        assigning.scaled(restarts),
    )


def _paired(first: Sequence[Any], second: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Pairs, as far as both were seen: a rehearsal may have been broken off."""
    return zip(first, second, strict=False)


def _shortened(
    model: AbstractGradientModel, plan: GradientPlan, steps: int, *, moves: bool
) -> AbstractGradientModel:
    """The model with few steps a phase and one restart."""
    given = model.training.steps
    count = len(plan.phases)
    shorter = (steps,) * count if given is None else tuple(min(steps, each) for each in given)
    training = dataclasses.replace(
        model.training,
        steps=shorter,
        tolerance=0.0,
        split_merge=moves and model.training.split_merge,
    )
    return dataclasses.replace(model, training=training, num_restarts=1)


def _assigned(progress: Progress) -> bool:
    return progress.stage == "predict" and progress.done >= _CHUNKS


def _trained(progress: Progress) -> bool:
    return progress.stage == "step" and progress.done >= progress.total


def _phases(seen: Rehearsal, what: str = "wall") -> list[float]:
    """Seconds of each phase; the first one's are those of the beginning, too."""
    reports = [
        interval
        for interval in seen.intervals
        if interval.progress is not None and interval.progress.stage == "step"
    ]
    return [getattr(interval, what) for interval in reports]


def _attempts(plan: GradientPlan) -> list[int]:
    """How often each phase tries to split a cluster."""
    found = []
    for number, phase in enumerate(plan.phases):
        windows = math.ceil(phase.steps / plan.window)
        tries = plan.moves_every > 0 and phase.moves and number + 1 < len(plan.phases)
        found.append(math.ceil(windows / plan.moves_every) if tries else 0)
    return found


def _earliest(plan: GradientPlan) -> float:
    """The part of the steps that is done at least where the loss may end a phase."""
    least = sum(min(p.steps, (plan.patience + 1) * plan.window) for p in plan.phases)
    return least / sum(phase.steps for phase in plan.phases)


def _assigning(seen: Rehearsal) -> StageCost:
    """The assignment of all samples in the end, from that of a few chunks."""
    chunks = seen.of("predict")
    if not chunks:
        return StageCost("predict", 0.0, 0.0, 0.0, 0.0)
    progress = chunks[-1].progress
    assert progress is not None
    return seen.cost("predict", typical=True).scaled(progress.total / len(chunks))


def resident_bytes(model: AbstractGradientModel, samples: Any) -> int:
    """Bytes of the arrays that a fit holds for all samples, beside the samples themselves.

    Args:
        model: The model.
        samples: All samples.

    Returns:
        The samples on the device, what is learned with its moments, and what is remembered.
    """
    pixels, count = int(np.prod(samples.shape[1:])), len(samples)
    learned = jax.eval_shape(
        lambda: jax.tree.leaves(model.blank(tuple(samples.shape[1:]), np.dtype(np.float32)))
    )
    weights = sum(4 * int(np.prod(leaf.shape)) for leaf in learned if hasattr(leaf, "shape"))
    channels = samples.shape[3]
    solver = model.solver(len(model.sequence(channels)), channels, final=True)
    places = solver.aligner.num_candidates(model.num_clusters)
    row = 8 * places + 4 * min(solver.warm_starts, places) * solver.energy.num_params
    # Responsibilities and scores of the final assignment are on the host as well.
    return int(count * (8 * pixels + 2 * row + 24 * model.num_clusters) + 6 * weights)
