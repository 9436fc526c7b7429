"""The losses of a fit by gradient steps, its phases, and a curve of both."""

import dataclasses
import html
import math
from collections.abc import Sequence

import numpy as np

from diffclust._renamed import renamed_keywords
from diffclust.models import Result
from diffclust.parallel import Data
from diffclust.plotting.charts import Axes, fitted_axes, round_ticks, tick_labels
from diffclust.solvers import GradientPlan, Phase

_LETTER = 6.2
"""Width of a letter of a phase's name, in units of the drawing."""

_LINE = 13
"""Height of a line of names."""


@dataclasses.dataclass(frozen=True)
class LossHistory:
    """The losses of a fit by gradient steps.

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


def loss_history(result: Result) -> LossHistory | None:
    """The losses of a fit by gradient steps.

    Args:
        result: A fitted model.

    Returns:
        Those of the best restart; None where the model is not trained by gradient steps.
    """
    if "phases" not in result.outcome.extras:
        return None
    starts = result.outcome.extras["phases"].tolist()
    *losses, final = result.history
    counts = np.diff([*starts, len(losses)]).tolist()
    plan, names = _training_plan(result, len(starts)), [""] * len(starts)
    if plan is not None:
        names = phase_names(plan.phases, result.model.transform_names)
    if plan is None or not _matches(plan, counts):
        # A plan for other images than these has other windows.
        ends, phases = range(1, len(losses) + 1), zip(starts, names, strict=True)
        return LossHistory("window", tuple(ends), tuple(losses), final, tuple(phases))
    starts, ends = [0], []
    for phase, windows in zip(plan.phases, counts, strict=True):
        ends += [starts[-1] + min(i * plan.window, phase.steps) for i in range(1, windows + 1)]
        starts.append(ends[-1])
    phases, steps = tuple(zip(starts[:-1], names, strict=True)), (plan.batch_size, plan.window)
    return LossHistory("step", tuple(ends), tuple(losses), final, phases, *steps)


def _training_plan(result: Result, num_phases: int) -> GradientPlan | None:
    """The plan of the fit; None where it is not known how many images were fitted, or another."""
    extras = result.outcome.extras
    fitted = extras.get("responsibilities", extras.get("certainties"))
    if fitted is None:
        return None
    # A plan asks for the shape of samples only.
    shapes = result.sample_shape
    shapes = shapes if shapes and isinstance(shapes[0], tuple) else (shapes,)
    every = [np.broadcast_to(np.zeros((), np.float32), (len(fitted), *shape)) for shape in shapes]
    samples = every[0] if len(every) == 1 else tuple(every)
    plan = result.model.training_plan(Data(samples).description)
    return None if plan is None or len(plan.phases) != num_phases else plan


def _matches(plan: GradientPlan, counts: Sequence[int]) -> bool:
    """Whether the windows of all phases can be those of a plan."""
    most = [math.ceil(phase.steps / plan.window) for phase in plan.phases]
    if plan.tolerance == 0.0:
        return list(counts) == most
    return all(1 <= count <= limit for count, limit in zip(counts, most, strict=True))


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


@renamed_keywords(course="history")
def training_curve(history: LossHistory) -> str:
    """The losses of a fit by gradient steps as an inline SVG, with marks where its phases begin.

    A dot is a window's loss, and the ring at the end that of all samples. Where all losses are
    positive and the greatest is at least ten times the least, equal distances are equal ratios.
    Otherwise a few first losses that would leave the rest no room are drawn at the upper edge, with
    their size beside them.

    Args:
        history: What is drawn.

    Returns:
        An `<svg>` element.

    Raises:
        ValueError: If there is no loss, or one is not a finite number.
    """
    losses = np.asarray([*history.losses, history.final], dtype=np.float64)
    if losses.size < 2 or not np.isfinite(losses).all():
        raise ValueError(f"a training curve needs finite losses, at least one; got {losses}")
    logarithmic = bool(losses.min() > 0.0 and losses.max() >= 10.0 * losses.min())
    top = float(losses.max()) if logarithmic else shown_top(losses)
    axes = fitted_axes(losses, 0.0, float(history.total), top=top, logarithmic=logarithmic)
    phases = [(start, name) for start, name in history.phases if name]
    texts, height = _phase_texts(axes, phases)
    axes = dataclasses.replace(axes, height=axes.height + height, top=axes.top + height)
    windows = list(zip(history.ends, history.losses, strict=True))
    titles = [f"{history.unit} {end}: {loss:.6g}" for end, loss in windows]
    ring = (
        f'<circle cx="{axes.x(history.total)}" cy="{axes.y(history.final)}" r="5" fill="none" '
        'stroke="var(--accent, #2f6690)" stroke-width="1.5"><title>all samples, in the end: '
        f"{history.final:.6g}</title></circle>"
    )
    content = [axes.vertical_line(start, dashes="2 3", opacity=0.55) for start, _ in phases]
    content += texts
    if above := [window for window in windows if window[1] > top]:
        # How large the losses are that lie above the drawing, beside the last of them.
        (most,) = tick_labels(np.array([float(f"{max(loss for _, loss in above):.3g}")]))
        x = axes.x(above[-1][0]) + 8
        content.append(f'<text x="{x}" y="{axes.top + 12}">← up to {most}</text>')
    content += [axes.curve(history.ends, history.losses, titles), ring]
    numbers = round_ticks(0.0, float(history.total))
    names = {
        float(n): label
        for n, label in zip(numbers, tick_labels(numbers), strict=True)
        if n <= history.total and float(n).is_integer()
    }
    axis = f"{history.unit}s" + ("; losses on a logarithmic scale" if logarithmic else "")
    return axes.svg("".join(content), names, axis=axis, alt=_description(history))


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


def _description(history: LossHistory) -> str:
    named = [f"{name} from {history.unit} {start}" for start, name in history.phases if name]
    phases = f"; {', '.join(named)}" if named else ""
    return (
        f"Loss over {history.total} {history.unit}s, {history.losses[0]:.4g} to "
        f"{history.final:.4g} of all samples in the end{phases}"
    )


def _phase_texts(axes: Axes, phases: Sequence[tuple[int, str]]) -> tuple[list[str], int]:
    """The name (SVG) of each phase beside its mark, and the height that the names take."""
    texts: list[str] = []
    ends: list[float] = []
    for start, name in phases:
        x, length = axes.x(start), _LETTER * len(name) + 8
        inside = x + length <= axes.width
        low, high = (x, x + length) if inside else (x - length, x)
        line = next((i for i, end in enumerate(ends) if end <= low), len(ends))
        ends[line : line + 1] = [high]
        left, anchor = (x + 4, "start") if inside else (x - 4, "end")
        place = f'x="{left}" y="{11 + _LINE * line}" text-anchor="{anchor}"'
        texts.append(f"<text {place}>{html.escape(name)}</text>")
    return texts, _LINE * len(ends)
