"""What a whole fit will take: rehearsed in part, and its stages scaled up."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from diffclust import _validation
from diffclust._random import numpy_generator
from diffclust.estimate import measure
from diffclust.estimate.measure import Rehearsal, median_cost, rehearse
from diffclust.estimate.result import Estimate, StageCost
from diffclust.features.orthogonal_complement import fit_principal_directions
from diffclust.graphs import nearest_neighbours
from diffclust.image_source import ImageSource, installed_memory
from diffclust.models import AbstractModel
from diffclust.parallel import Data, Description
from diffclust.parallel.chunks import limited_chunk_size
from diffclust.solvers import Progress, SplitMerge
from diffclust.types import Key

_ONE_IN = 24
"""One sample in so many is rehearsed with, so that it takes a small part of the fit's time."""

_LLOYD_MOST, _LLOYD_EACH = 4096, 10
"""Samples of a rehearsal of Lloyd's algorithm: at most, and for each cluster at least."""

_CHUNKS = 3
"""Chunks of the true size that are timed, beside the first, which compiles."""

_PASS_POWER = 0.35
"""Passes until no sample changes its cluster, moves included, grow as about this power of the
number of samples: K-means of 500 to 16,000 MNIST digits, three seeds each. Where a small fall of
the loss ends a run, they do not grow."""

_USUAL_PASSES = 25
"""Passes of a restart, moves included, of 1,000 images: the same experience."""

_GRAPH_LEAST, _GRAPH_MOST = 128, 1024
"""Bounds of the number of images that a graph method is rehearsed with."""

_LEAST, _MOST = 0.6, 1.5
"""The same work takes so much less or more at another time: fits of the bundled digits on a shared
machine with nothing beside."""

_DIRECTION_SIZES = (512, 1024)
"""Features of the problems by which the time of principal directions is judged; images, where there
are fewer images than features."""

_MEAN_SAMPLES = 200
"""Images of a cluster that its aligned mean is made of."""

_CUT_SIZE, _CUT_POWER = 6000, 1.1
"""A cut of so many images takes twice as long as one of a few, and grows by this power beyond: that
of 70,000 MNIST digits takes 14 s, that of 128 one second."""


@dataclasses.dataclass(frozen=True)
class PlannedFit:
    """A fit whose cost is estimated.

    Attributes:
        model: The model.
        samples: All samples, validated.
        key: Random key.
        chunk_size: Samples a chunk, or None for the model's choice.
        seconds: About how long a rehearsal may take.
        short: One rehearsal will do where it says that the fit takes less.
    """

    # Its class follows from the solver's kind, which `stage_costs` goes by.
    model: Any
    samples: Any
    key: Key
    chunk_size: int | None
    seconds: float
    short: float

    @functools.cached_property
    def description(self) -> Description:
        """Describes the samples as they are clustered."""
        return self.model.prepared_description(Data(self.samples).description)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all samples as they are clustered."""
        return len(self.samples), *self.description.sample.shape

    @functools.cached_property
    def chunk(self) -> int:
        """Samples a chunk of the fit."""
        size = self.chunk_size or self.model.chunk_size_for(self.description)
        return limited_chunk_size(size, len(self.samples))

    def rehearse(
        self,
        count: int,
        chunk_size: int | None,
        until: Callable[[Progress], bool] | None = None,
        model: AbstractModel | None = None,
        *,
        whole: bool = False,
    ) -> Rehearsal:
        """Fits some of the samples, drawn at random, and watches.

        Args:
            count: How many samples.
            chunk_size: Samples a chunk.
            until: The fit is ended where it is true of a report, or None.
            model: What is fitted; None for the model itself.
            whole: Whether it is watched to its end, however long that takes.

        Returns:
            What was seen.
        """
        samples = self.samples
        if count < len(samples):
            chosen = numpy_generator(self.key).choice(len(samples), count, replace=False)
            samples = np.asarray(samples[np.sort(chosen)])
        seconds = math.inf if whole else self.seconds
        settings = {"key": self.key, "chunk_size": chunk_size, "seconds": seconds}
        return rehearse(model or self.model, samples, until=until, **settings)


def estimate(
    model: AbstractModel,
    samples: Any,
    /,
    *,
    key: Key,
    chunk_size: int | None = None,
    seconds: float = 20.0,
    short: float = 0.0,
) -> Estimate:
    """Estimates the time and memory of a fit by a rehearsal.

    Nothing is guessed from the size of the problem alone. A small part of the samples is fitted,
    and watched; of gradient steps a few are taken. Stages are scaled up by what is known of them:
    how often, over how many chunks, with how many pairs. Only how many more passes it takes until
    more samples come to rest is an experience. What was compiled serves the fit as well, where it
    is of the same shape.

    Args:
        model: The model.
        samples: What `model.fit` would be given.
        key: Random key, `jax.random.key(seed)`.
        chunk_size: As for `model.fit`.
        seconds: A rehearsal is broken off after so many, compiling left out, but not before a step
            of every phase, or the least that a graph needs.
        short: A fit that will surely take less, in seconds, is not looked at any closer, and the
            estimate is rough.

    Returns:
        The estimate.

    Raises:
        ValueError: If the samples cannot be clustered or are trees of arrays, the chunk size is
            below 1, or the seconds are negative.
    """
    _validation.positive(seconds, "seconds", least=0)
    if chunk_size is not None:
        _validation.count(chunk_size, "chunk_size")
    array = samples if isinstance(samples, ImageSource) else model.validated(samples)
    if not hasattr(array, "shape"):
        raise ValueError("samples that are trees of arrays have no estimate; fit a few of them")
    # Parts of the samples are registered as all of them are.
    model = model.resolved(Data(array))
    fit = PlannedFit(model, array, key, chunk_size, seconds, short)
    stages = stage_costs(fit)
    resident, working = model.state_bytes(fit.shape), measure.working_bytes()
    on_device = jax.default_backend() != "cpu"
    host = measure.held_bytes() + resident + (0 if on_device else working)
    return Estimate(
        stages,
        max(host, measure.peak_bytes()),
        resident + working if on_device else None,
        installed_memory(),
        measure.device_limit() if on_device else None,
    )


def stage_costs(fit: PlannedFit) -> tuple[StageCost, ...]:
    """Estimates what the stages of a fit will take, by rehearsals.

    Args:
        fit: The fit.

    Returns:
        The stages that take any time, in order.
    """
    by_solver = {"lloyd": _lloyd_stages, "gradient": _gradient_stages, "graph": _graph_stages}
    stages = by_solver[fit.model.descriptor.solver](fit)
    return tuple(s.scaled(1.0, least=_LEAST, most=_MOST) for s in stages if s.seconds > 0)


def _lloyd_stages(fit: PlannedFit) -> Iterable[StageCost]:
    """Lloyd's algorithm: a few steps over one chunk, and a fit of few samples to its end.

    The first is compiled as the fit needs it, the second gives the number of passes.
    """
    model, count, full = fit.model, len(fit.samples), fit.chunk
    # So many chunks that there is a sample for each cluster.
    chunks, some = -(-count // full), -(-model.num_clusters // full)
    samples = min(count, some * full)
    first = fit.rehearse(samples, full, lambda p: p.stage == "pass" and p.iteration >= _CHUNKS)
    chunk, setup = _step(first), first.cost("setup").scaled(count / samples)
    seeding = _seeding(first, chunk).scaled(chunks / some * model.num_restarts)
    usual = min(_USUAL_PASSES * _growth(model, count / 1000), model.stopping.max_passes)
    rough = chunk.scaled(usual * model.num_restarts * chunks, least=0.3, most=3.0)
    if rough.seconds + seeding.seconds < fit.short:
        return setup, seeding, rough
    few = min(count, max(min(count // _ONE_IN, _LLOYD_MOST), _LLOYD_EACH * model.num_clusters, 32))
    small = min(full, 16 * -(-few // 16))
    seen = fit.rehearse(few, small)
    # A trial split looks at so many samples, filled up to a power of two.
    before, after = (_trial_samples(model, number) for number in (few, count))
    again = [*(["split"] if before != after else []), *(["refine"] if small != full else [])]
    per_chunk = chunk.seconds / max(_step(seen).seconds, 1e-9)
    # A step of a split aligns with two clusters, not with all.
    trials = sum(interval.wall > 1e-4 for interval in seen.of("split"))
    passes = 2 * SplitMerge().split_passes * trials / model.num_clusters
    steps = max(after - before, 0) / full * passes
    split, more = seen.cost("split"), chunk.scaled(steps)
    both = split.seconds + more.seconds, split.cpu_seconds + more.cpu_seconds
    refined = seen.cost("refine", robust=True)
    return (
        setup,
        seeding,
        _passes(model, seen, count / few, chunk, chunks),
        StageCost.of("split", *both).scaled(1.0, least=0.5, most=2.0),
        # Passes of the best run on the full images, and of learning penalties.
        refined.scaled(per_chunk * chunks / seen.chunks("refine"), least=0.5, most=2.0),
        seen.compiling(*again),
    )


def _growth(model: Any, ratio: float) -> float:
    """The factor by which passes grow when samples grow by a factor."""
    return ratio**_PASS_POWER if model.stopping.tolerance == 0.0 else 1.0


def _step(seen: Rehearsal) -> StageCost:
    """A usual step over one chunk, of those that compiled nothing."""
    return median_cost("pass", seen.of("pass") or seen.of("seeding"))


def _seeding(seen: Rehearsal, step: StageCost) -> StageCost:
    """Seeding from one chunk; its interval ends when the first step is done, too."""
    cost, runs = seen.cost("seeding"), max(len(seen.of("seeding")), 1)
    wall, cpu = cost.seconds / runs - step.seconds, cost.cpu_seconds / runs - step.cpu_seconds
    return StageCost.of("seeding", max(wall, 0.0), max(cpu, 0.0))


def _passes(model: Any, seen: Rehearsal, ratio: float, chunk: StageCost, chunks: int) -> StageCost:
    """Scales the number of passes that were seen to more samples."""
    reports = seen.reports("pass")
    passes = len(reports) / seen.chunks("pass")
    runs = max(sum(report.iteration == 0 and report.done == 1 for report in reports), 1)
    limit, widest = max(model.stopping.max_passes * runs / max(passes, 1.0), 1.0), 2.0
    if seen.result is None:
        # It was broken off: restarts that did not come are taken to be like those that did.
        done = max(report.restart for report in reports) + 1
        usual = min(_USUAL_PASSES, model.stopping.max_passes) * model.num_restarts
        passes, widest = max(1.5 * passes * model.num_restarts / done, usual), 4.0
    passes *= min(_growth(model, ratio), limit)
    return chunk.scaled(passes * chunks, least=0.5, most=widest)


def _trial_samples(model: Any, count: int) -> int:
    each = min(count / model.num_clusters, SplitMerge().split_samples)
    return 2 ** math.ceil(math.log2(max(16.0, each)))


def _gradient_stages(fit: PlannedFit) -> Iterable[StageCost]:
    """Gradient steps: their number is known, so a few of each phase are timed.

    All samples are given to the rehearsals, so that what they compile is what the fit needs.
    """
    model, count = fit.model, len(fit.samples)
    plan = model.training_plan(fit.description)
    phases = plan.phases

    def run(
        steps: int, until: Callable[[Progress], bool], *, split_merge: bool = False
    ) -> Rehearsal:
        training = model.training.shortened(steps, plan, split_merge=split_merge)
        few = dataclasses.replace(model, training=training, num_restarts=1)
        return fit.rehearse(count, fit.chunk_size, until, few, whole=True)

    def trained(progress: Progress) -> bool:
        return progress.stage == "step" and progress.done >= progress.total

    def walls(seen: Rehearsal, each: int = 1) -> list[float]:
        """Returns what the phases took, of `each` steps; the first includes the start."""
        sums = [0.0] * len(phases)
        for interval, report in seen.reported("step"):
            sums[(report.done - 1) // each] += interval.wall
        return sums

    first = run(1, lambda progress: progress.stage == "predict" and progress.done >= _CHUNKS)
    one, done = walls(first), max(len(first.reports("predict")), 1)
    assigning = first.cost("predict", robust=True).scaled(first.chunks("predict") / done)
    racing = plan.num_steps / sum(p.steps for p in phases)
    stepping = racing * math.fsum(p.steps * s for p, s in zip(phases, one, strict=True))
    most = model.num_restarts * (stepping + assigning.seconds)
    if most < fit.short:
        return (StageCost("step", most, most, 0.0, most),)
    more = max(2, min(50, math.ceil(0.2 * fit.seconds / max(sum(one), 1e-3))))
    # Compiled in the first rehearsal, so that nothing but steps is timed.
    if is_slow := (1 + more) * sum(one) > fit.seconds:
        last, steps = first, one
    else:
        one, last = walls(run(1, trained)), run(1 + more, trained)
        many = walls(last, 1 + more)
        steps = [max(b - a, 0.0) / more for a, b in zip(one, many, strict=True)]
    timed = last.reported("step")
    cpu = sum(i.cpu for i, _ in timed) / max(sum(i.wall for i, _ in timed), 1e-9)
    stepping = racing * math.fsum(p.steps * s for p, s in zip(phases, steps, strict=True))
    attempts = _split_attempts(plan)
    evaluating = sum(steps) * plan.evaluation_samples / plan.batch_size
    if sum(attempts) and not is_slow and evaluating < 3.0 * fit.seconds:
        run(1, trained, split_merge=True)
        tried = walls(run(1, trained, split_merge=True))
        compared = zip(attempts, one, tried, strict=True)
        stepping += math.fsum(number * max(b - a, 0.0) for number, a, b in compared)
    # The loss may end a phase after so many steps.
    soonest = sum(min(p.steps, (plan.patience + 1) * plan.window) for p in phases)
    least = soonest / sum(p.steps for p in phases) if plan.tolerance else 1.0
    setup = max(one[0] - steps[0], 0.0)
    return (
        StageCost.of("setup", setup, setup * cpu).scaled(model.num_restarts),
        StageCost.of("step", stepping, stepping * cpu).scaled(model.num_restarts, least=least),
        assigning.scaled(model.num_restarts),
    )


def _split_attempts(plan: Any) -> list[int]:
    """The number of attempts to split a cluster in each phase of a plan; none in the last.

    A run that is alone tries moves once in a phase; runs that race attempt one every few windows.
    """

    def attempts(steps: int) -> int:
        windows = math.ceil(steps / plan.window)
        return math.ceil(windows / plan.split_merge_every) if plan.race else 1

    return [
        attempts(phase.steps)
        if plan.split_merge_every > 0 and phase.split_merge and number + 1 < len(plan.phases)
        else 0
        for number, phase in enumerate(plan.phases)
    ]


def _graph_stages(fit: PlannedFit) -> Iterable[StageCost]:
    """Graph methods: features by image, neighbours by pair, directions by feature."""
    model, count, full = fit.model, len(fit.samples), fit.chunk
    views = len(model.views)
    few = min(count, int(np.clip(count // _ONE_IN, _GRAPH_LEAST, _GRAPH_MOST)))
    few = min(count, max(few, 4 * model.num_clusters))
    small = min(full, 16 * -(-few // 16))
    cold = fit.rehearse(few, small)
    if cold.result is None:
        few = min(count, max(few // 4, 4 * model.num_clusters))
        small = min(full, 16 * -(-few // 16))
        cold = fit.rehearse(few, small, whole=True)
    # So few images take less than what surrounds a compilation: the second time counts.
    seen = fit.rehearse(few, small, whole=True)
    ratio, padded = count / few, (full * -(-count // full)) / (small * -(-few // small))
    drawn = _MEAN_SAMPLES * model.num_clusters
    less, more = ((number / _CUT_SIZE) ** _CUT_POWER for number in (few, count))
    # Where neighbours are sought without features, more samples make more pairs of each.
    pairs = seen.cost("pairs", robust=True)
    aligned = seen.cost("alignments")
    every, later = len(seen.of("alignments")), seen.of("alignments")[1:]
    # Before all images are aligned to them, means are made: four passes over some of the images.
    rest = math.fsum(i.wall for i in later) / max(len(later), 1) * every
    share = min(rest / max(aligned.seconds, 1e-9), 1.0) if later else 1 / 5
    # Programs for rows of another number are others.
    again = ["cut", "pass", "seeding", "neighbours", *(["alignments"] if full != small else [])]
    return (
        seen.cost("setup").scaled(ratio),
        seen.cost("features", robust=True).scaled(ratio),
        _directions(fit, few, seen, views),
        seen.cost("pass", robust=True).scaled(ratio * ratio**0.25, most=2.0),
        seen.cost("seeding").scaled(ratio),
        seen.cost("neighbours").scaled(ratio),
        _search(fit).scaled(views),
        pairs.scaled(ratio) if model.num_compared(count) else pairs.scaled(ratio**1.2, most=2.0),
        seen.cost("cut").scaled((1.0 + more) / (1.0 + less), least=0.5, most=2.0),
        aligned.scaled((1.0 - share) * min(drawn, count) / min(drawn, few)),
        aligned.scaled(share * padded),
        seen.cost("end").scaled(ratio),
        cold.compiling(*again),
    )


def _timed(name: str, work: Callable[[], Any]) -> StageCost:
    """Measures what something takes once its programs are compiled."""
    work()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return StageCost.of(name, time.perf_counter() - wall, time.process_time() - cpu)


def _directions(fit: PlannedFit, few: int, seen: Rehearsal, views: int) -> StageCost:
    """Principal directions: of many images from a covariance, of few from their products."""
    count, size = len(fit.samples), fit.model.num_features(fit.shape[1:])
    if not size:
        return seen.cost("directions").scaled((count / few) ** 2)
    # The covariance grows with the images and the square of the features, products of the images
    # the other way round; the eigenvectors with some power of the smaller number, near the cube.
    # Both are timed on smaller problems.
    by_products = 2 * count <= size
    smaller, wanted = min(count, size), fit.model.num_dimensions
    small, large = (min(smaller, number) for number in _DIRECTION_SIZES)
    rng = numpy_generator(fit.key)

    def of(number: int, features: int) -> StageCost:
        rows = rng.random((number, features), dtype=np.float32)
        parts = [rows[i : i + 32] for i in range(0, number, 32)]
        most = max(1, min(wanted, min(number, features) // 4))
        return _timed("directions", lambda: fit_principal_directions(parts, num_directions=most))

    if by_products:
        first, less = of(small, size), of(large, size)
        each = 0.0
    else:
        first, less, more = of(small, small), of(large, large), of(2 * large, large)
        each = max(more.seconds - less.seconds, 0.0) / large
    once = max(less.seconds - each * large, 0.1 * less.seconds)
    power = 2.5
    if large > small:
        growth = less.seconds / max(first.seconds, 1e-9)
        # Not the cube: from these sizes to some thousands it was seen to be less than that.
        power = float(np.clip(math.log(growth) / math.log(large / small), 1.5, 2.5))
    scale = smaller / large
    seconds = views * (each * scale**2 * count + once * scale**power)
    return less.scaled(seconds / max(less.seconds, 1e-9), least=0.5, most=2.0)


def _search(fit: PlannedFit) -> StageCost:
    """Comparing all images with each other, timed with some of them as queries."""
    count, model = len(fit.samples), fit.model
    wanted = model.num_compared(count)
    if not wanted:
        return StageCost.of("neighbours", 0.0, 0.0)
    rows = numpy_generator(fit.key).standard_normal((count, model.num_dimensions), dtype=np.float32)
    queries = rows[: min(count, 512)]
    spare = max(48, 6 * wanted) if len(model.removed) > 1 else wanted
    cost = _timed("neighbours", lambda: nearest_neighbours(queries, rows, spare))
    return cost.scaled(count / len(queries))
