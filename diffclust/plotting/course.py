"""The course of a fit by gradient steps: its losses, its phases, and a curve of both."""

import dataclasses
import html
import math
from collections.abc import Sequence

import numpy as np

from diffclust.models import AbstractGradientModel, Result
from diffclust.plotting.axes import Axes, ratio_ticks, round_ticks, tick_labels
from diffclust.solvers.curriculum import GradientPlan, Phase

_LETTER = 6.2
"""Width of a letter of a mark's name, in units of the drawing."""

_LINE = 13
"""Height of a line of names."""


@dataclasses.dataclass(frozen=True)
class Course:
    """How a run by gradient steps went.

    Attributes:
        unit: What is counted: `"step"`, or `"window"` where it is not known how many steps each
            window had.
        ends: How many units were done at the end of each window.
        losses: The loss of each window: its samples' mean, times the weight of all.
        final: The loss of all samples in the end.
        phases: Where each phase began, and its name.
        batch_size: Samples a step; None where it is not known.
        window: Steps a window; None where it is not known.
    """

    unit: str
    ends: tuple[int, ...]
    losses: tuple[float, ...]
    final: float
    phases: tuple[tuple[int, str], ...]
    batch_size: int | None = None
    window: int | None = None

    @property
    def total(self) -> int:
        """Units that were done."""
        return self.ends[-1]


def course_of(result: Result) -> Course | None:
    """The course of a fit.

    Args:
        result: A fitted model.

    Returns:
        The course of the best restart; None where the model is not trained by gradient steps.
    """
    extras, history = result.outcome.extras, result.history
    if not isinstance(result.model, AbstractGradientModel) or "phases" not in extras:
        return None
    starts = extras["phases"].tolist()
    losses, final = history[:-1], history[-1]
    counts = np.diff([*starts, len(losses)]).tolist()
    plan = _plan(result, result.model)
    if plan is None or not _fits(plan, counts):
        # A plan for other images than these has other windows.
        names = [""] * len(starts)
        if plan is not None and len(plan.phases) == len(starts):
            names = phase_names(plan.phases, _transforms(result.model))
        ends = tuple(range(1, len(losses) + 1))
        return Course("window", ends, losses, final, tuple(zip(starts, names, strict=True)))
    ends, begun, done = [], [], 0
    for phase, windows in zip(plan.phases, counts, strict=True):
        begun.append(done)
        ends += [done + min((i + 1) * plan.window, phase.steps) for i in range(windows)]
        done = ends[-1]
    names = phase_names(plan.phases, _transforms(result.model))
    return Course(
        "step",
        tuple(ends),
        losses,
        final,
        tuple(zip(begun, names, strict=True)),
        plan.batch_size,
        plan.window,
    )


def phase_names(phases: Sequence[Phase], transforms: Sequence[str]) -> list[str]:
    """Short names of phases: what each adds to the one before.

    Args:
        phases: The phases.
        transforms: Names of the transforms, in the order in which they are added.

    Returns:
        Such as `["identity", "+aff", "+tps", "lower rate"]`; empty where a phase adds nothing.
    """
    names, used, rate = [], 0, math.inf
    for number, phase in enumerate(phases):
        added = transforms[used : phase.solver]
        parts = ["+".join(["", *added]) if number else "-".join(added)] if added else []
        if number == 0 and not added and transforms:
            parts.append("identity")
        if number > 0 and phase.rate < rate:
            parts.append("lower rate")
        names.append(", ".join(parts))
        used, rate = phase.solver, phase.rate
    return names


def training_curve(course: Course, *, width: int = 440, height: int = 210) -> str:
    """The losses of a fit by gradient steps as an inline SVG, with marks where its phases begin.

    A dot is a window's loss, and the ring at the end that of all samples. Where all losses are
    positive and the greatest is at least ten times the least, equal distances are equal ratios.
    Otherwise a few first losses that would leave the rest no room are drawn at the upper edge, and
    their size is told.

    Args:
        course: What is drawn.
        width: Width of the drawing in its own units, about CSS pixels.
        height: Its height without the names of the phases.

    Returns:
        An `<svg>` element.

    Raises:
        ValueError: If there is no loss, or one is not a finite number.
    """
    losses = np.asarray([*course.losses, course.final], dtype=np.float64)
    if losses.size < 2 or not np.isfinite(losses).all():
        raise ValueError(f"a training curve needs finite losses, at least one; got {losses}")
    logarithmic = bool(losses.min() > 0.0 and losses.max() >= 10.0 * losses.min())
    top = float(losses.max()) if logarithmic else shown_top(losses)
    ticks = (ratio_ticks if logarithmic else round_ticks)(float(losses.min()), top)
    if top < losses.max():
        ticks = ticks[ticks <= top]
    axes = Axes(
        low=float(min(ticks[0], losses.min())),
        high=float(max(ticks[-1], top)),
        first=0.0,
        last=float(course.total),
        ticks=tuple(ticks.tolist()),
        labels=tick_labels(ticks),
        width=width,
        logarithmic=logarithmic,
    )
    marks, rows = _marks(axes, course.phases)
    axes = dataclasses.replace(axes, height=height + rows * _LINE, top=axes.top + rows * _LINE)
    uprights = "".join(axes.upright(x, dashes="2 3", opacity=0.55) for x, *_ in marks)
    names = "".join(
        f'<text x="{x + (4 if anchor == "start" else -4)}" y="{11 + _LINE * row}" '
        f'text-anchor="{anchor}">{html.escape(name)}</text>'
        for x, name, anchor, row in marks
    )
    titles = [
        f"{course.unit} {end}: {loss:.6g}"
        for end, loss in zip(course.ends, course.losses, strict=True)
    ]
    curve = axes.curve([float(end) for end in course.ends], list(course.losses), titles)
    ring = (
        f'<circle cx="{axes.x(course.total)}" cy="{axes.y(course.final)}" r="5" fill="none" '
        'stroke="var(--accent, #2f6690)" stroke-width="1.5"><title>all images, in the end: '
        f"{course.final:.6g}</title></circle>"
    )
    numbers = round_ticks(0.0, float(course.total))
    named = {
        float(n): label
        for n, label in zip(numbers, tick_labels(numbers), strict=True)
        if n <= course.total and float(n).is_integer()
    }
    step = f"{course.unit}s" + ("; losses on a logarithmic scale" if logarithmic else "")
    told = _above(axes, course, top)
    return axes.svg(
        uprights + names + told + curve + ring, named, step=step, said=_said(course, losses)
    )


def shown_top(losses: np.ndarray) -> float:
    """The greatest loss that is drawn to scale.

    Args:
        losses: All losses, in their order.

    Returns:
        The greatest; or, where the first twentieth of them (at least one) would squeeze all others
        into a fifth of the height, the greatest of those others.
    """
    greatest, least = losses.max(), losses.min()
    rest = losses[max(1, losses.size // 20) :].max()
    return float(rest if greatest - least > 5.0 * (rest - least) and rest > least else greatest)


def _above(axes: Axes, course: Course, top: float) -> str:
    """What is told of losses that lie above the drawing."""
    hidden = [
        (end, loss) for end, loss in zip(course.ends, course.losses, strict=True) if loss > top
    ]
    if not hidden:
        return ""
    x = axes.x(max(end for end, _ in hidden)) + 8
    (shown,) = tick_labels(np.array([float(f"{max(loss for _, loss in hidden):.3g}")]))
    return f'<text x="{x}" y="{axes.top + 12}">\u2190 up to {shown}</text>'


def _said(course: Course, losses: np.ndarray) -> str:
    named = [f"{name} from {course.unit} {begun}" for begun, name in course.phases if name]
    phases = f"; {', '.join(named)}" if named else ""
    return (
        f"Loss over {course.total} {course.unit}s, {losses[0]:.4g} to {course.final:.4g} of all "
        f"images in the end{phases}"
    )


def _marks(
    axes: Axes, phases: Sequence[tuple[int, str]]
) -> tuple[list[tuple[float, str, str, int]], int]:
    """Place, name, side and row of each phase's mark, so that no two names overlap."""
    marks: list[tuple[float, str, str, int]] = []
    ends: list[float] = []
    for begun, name in phases:
        if not name:
            continue
        x, length = axes.x(begun), _LETTER * len(name) + 8
        inside = x + length <= axes.width
        low, high = (x, x + length) if inside else (x - length, x)
        row = next((i for i, end in enumerate(ends) if end <= low), len(ends))
        ends[row : row + 1] = [high]
        marks.append((x, name, "start" if inside else "end", row))
    return marks, len(ends)


def _transforms(model: AbstractGradientModel) -> list[str]:
    return [name for name in model.transforms.split("-") if name]


def _plan(result: Result, model: AbstractGradientModel) -> GradientPlan | None:
    """The plan of the fit; None where it is not known how many images were fitted."""
    extras = result.outcome.extras
    fitted = extras.get("responsibilities", extras.get("certainties"))
    if fitted is None:
        return None
    # A plan asks for the shape of images only.
    images = np.broadcast_to(np.zeros((), np.float32), (len(fitted), *result.sample_shape))
    return model.plan(images)


def _fits(plan: GradientPlan, counts: Sequence[int]) -> bool:
    """Whether the windows of all phases can be those of a plan."""
    if len(plan.phases) != len(counts):
        return False
    most = [math.ceil(phase.steps / plan.window) for phase in plan.phases]
    if plan.tolerance == 0.0:
        return list(counts) == most
    return all(1 <= count <= limit for count, limit in zip(counts, most, strict=True))
