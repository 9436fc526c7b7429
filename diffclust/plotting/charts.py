"""Numbers along a fit as inline SVG: the loss after every pass, a graph's eigenvalues."""

import html
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from diffclust.plotting.axes import Axes, round_ticks, tick_labels


def loss_curve(history: Sequence[float], *, width: int = 440, height: int = 210) -> str:
    """The loss after every pass as an inline SVG; see `line_chart`.

    Args:
        history: The losses.
        width: Width of the drawing in its own units, about CSS pixels.
        height: Its height.

    Returns:
        An `<svg>` element.

    Raises:
        ValueError: If there is no loss, or one is not a finite number.
    """
    losses = np.asarray(history, dtype=np.float64)
    if losses.size == 0 or not np.isfinite(losses).all():
        raise ValueError(f"a loss curve needs finite losses, at least one; got {history!r}")
    said = f"Loss after each of {losses.size} passes, {losses[0]:.4g} to {losses[-1]:.4g}"
    return line_chart(losses, step="pass", said=said, width=width, height=height)


def eigenvalue_chart(
    eigenvalues: Sequence[float] | np.ndarray,
    num_clusters: int,
    *,
    width: int = 440,
    height: int = 210,
) -> str:
    """Leading eigenvalues of a graph as an inline SVG, the gap after the K-th marked.

    Args:
        eigenvalues: The eigenvalues, descending.
        num_clusters: K; nothing is marked where no eigenvalue follows the K-th.
        width: Width of the drawing in its own units, about CSS pixels.
        height: Its height.

    Returns:
        An `<svg>` element.

    Raises:
        ValueError: If there is no eigenvalue, or one is not a finite number.
    """
    values = np.asarray(eigenvalues, dtype=np.float64)
    if values.size == 0 or not np.isfinite(values).all():
        raise ValueError(
            f"a chart of eigenvalues needs finite ones, at least one; got {eigenvalues!r}"
        )
    said = f"{values.size} leading eigenvalues, {values[0]:.4g} to {values[-1]:.4g}"
    gap = num_clusters if 1 <= num_clusters < values.size else None
    if gap is not None:
        said += f"; the gap between number {gap} and the next is marked"
    return line_chart(values, step="eigenvalue", said=said, mark=gap, width=width, height=height)


def line_chart(
    values: Float[np.ndarray, " steps"],
    *,
    step: str,
    said: str,
    mark: int | None = None,
    width: int = 440,
    height: int = 210,
) -> str:
    """Numbered values, joined by a line, as an inline SVG.

    Args:
        values: What is drawn: finite numbers, at least one.
        step: What is numbered, from 1.
        said: What somebody is told who cannot see it.
        mark: The gap between this number and the next is marked; None for no gap.
        width: Width of the drawing in its own units, about CSS pixels.
        height: Its height.

    Returns:
        An `<svg>` element.
    """
    ticks = round_ticks(values.min(), values.max())
    axes = Axes(
        low=min(ticks[0], values.min()),
        high=max(ticks[-1], values.max()),
        first=1.0,
        last=float(values.size),
        ticks=tuple(ticks.tolist()),
        labels=tick_labels(ticks),
        width=width,
        height=height,
    )
    numbers = [float(i) for i in range(1, values.size + 1)]
    titles = [f"{step} {i}: {value:.6g}" for i, value in enumerate(values.tolist(), start=1)]
    gap = "" if mark is None else axes.upright(axes.x(mark + 0.5), dashes="4 4")
    curve = axes.curve(numbers, values.tolist(), titles)
    named = {float(i): str(i) for i in _whole_ticks(values.size)}
    return axes.svg(gap + curve, named, step=step, said=said)


def criterion_chart(
    positions: Sequence[float],
    values: Sequence[float],
    *,
    names: Sequence[str],
    chosen: float | None,
    axis: str,
    measure: str,
    width: int = 440,
    height: int = 240,
) -> str:
    """What settings were judged by, as an inline SVG; the chosen one is marked.

    Args:
        positions: Where the settings stand, ascending.
        values: What they were judged by: finite numbers, at least one.
        names: What they are called.
        chosen: Position of the chosen one, or None.
        axis: What was varied.
        measure: What the values are.
        width: Width of the drawing in its own units, about CSS pixels.
        height: Its height.

    Returns:
        An `<svg>` element.
    """
    drawn = np.asarray(values, dtype=np.float64)
    ticks = round_ticks(drawn.min(), drawn.max())
    axes = Axes(
        low=min(ticks[0], drawn.min()),
        high=max(ticks[-1], drawn.max()),
        first=float(min(positions)),
        last=float(max(positions)),
        ticks=tuple(ticks.tolist()),
        labels=tick_labels(ticks),
        width=width,
        height=height,
    )
    titles = [
        f"{axis} {name}: {measure} {value:.6g}"
        for name, value in zip(names, drawn.tolist(), strict=True)
    ]
    every = -(-len(names) // 12)
    named = {
        float(at): html.escape(name)
        for number, (at, name) in enumerate(zip(positions, names, strict=True))
        if number % every == 0
    }
    mark, told = "", ""
    if chosen is not None:
        mark = axes.upright(axes.x(chosen), dashes="4 4")
        told = f"; {names[list(positions).index(chosen)]} was chosen"
    said = f"{measure} against {axis}{told}"
    curve = axes.curve([float(at) for at in positions], drawn.tolist(), titles)
    return axes.svg(mark + curve, named, step=axis, said=said)


def _whole_ticks(count: int) -> list[int]:
    """At most eight of the numbers, the first included."""
    if count <= 8:
        return list(range(1, count + 1))
    step = next(s for s in (2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if count / s <= 7)
    return [1, *range(step, count + 1, step)]
