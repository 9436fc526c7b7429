"""Line charts as inline SVG: a loss pass by pass, a graph's eigenvalues, a criterion by setting."""

import dataclasses
import functools
import html
import itertools
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

_MANY_DOTS = 60
"""From here on dots are small, or they would hide the curve."""

_ACCENT = "var(--accent, #2f6690)"

_MOST_NAMES = 12
"""Settings that are named below a chart."""


@dataclasses.dataclass(frozen=True, eq=False)
class Axes:
    """The frame of a chart, in units of the drawing, about CSS pixels.

    Lines and letters take the colour of the surrounding text, and the curve the CSS variable
    `--accent`, so that a chart fits light and dark pages.

    Attributes:
        low: Least value that is shown.
        high: Greatest value that is shown.
        first: Least position along the curve.
        last: Greatest position along the curve.
        ticks: Values that are marked by rules.
        width: Width of the drawing.
        height: Its height.
        top: Room above the frame.
        logarithmic: Whether equal distances are equal ratios; then values are positive.
    """

    low: float
    high: float
    first: float
    last: float
    ticks: np.ndarray
    width: int = 440
    height: int = 210
    top: int = 12
    logarithmic: bool = False

    @functools.cached_property
    def left(self) -> int:
        """Left end of the frame, right of the labels."""
        return 14 + 7 * max(map(len, tick_labels(self.ticks)))

    @property
    def right(self) -> int:
        """Right end of the frame."""
        return self.width - 14

    @property
    def bottom(self) -> int:
        """Lower end of the frame."""
        return self.height - 44

    def x(self, position: int | float) -> float:
        """Horizontal place of a position along the curve.

        Args:
            position: The position.

        Returns:
            Units from the left; a single position is in the middle.
        """
        span = self.last - self.first
        share = (position - self.first) / span if span > 0 else 0.5
        return round(self.left + 10 + share * (self.right - self.left - 20), 1)

    def y(self, value: float) -> float:
        """Vertical place of a value.

        Args:
            value: The value; one out of range is drawn at the edge.

        Returns:
            Units from above.
        """
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = np.log([low, high, value]).tolist()
        share = float(np.clip((high - value) / (high - low), 0.0, 1.0))
        return round(self.top + share * (self.bottom - self.top), 1)

    def curve(
        self, positions: Sequence[int | float], values: Sequence[float], titles: Sequence[str]
    ) -> str:
        """Values joined by a line, with a dot each.

        Args:
            positions: Where they stand.
            values: The values.
            titles: The tooltip of each dot.

        Returns:
            SVG.
        """
        points = [(self.x(p), self.y(v)) for p, v in zip(positions, values, strict=True)]
        radius = 3 if len(points) <= _MANY_DOTS else 1.5
        dots = "".join(
            f'<circle cx="{x}" cy="{y}" r="{radius}"><title>{html.escape(title)}</title></circle>'
            for (x, y), title in zip(points, titles, strict=True)
        )
        line = " ".join(f"{x},{y}" for x, y in points)
        return (
            f'<g fill="{_ACCENT}" stroke="none"><polyline points="{line}" fill="none" '
            f'stroke="{_ACCENT}" stroke-width="2" stroke-linejoin="round"/>{dots}</g>'
        )

    def vertical_line(
        self, position: int | float | None, *, dashes: str = "4 4", opacity: float = 1.0
    ) -> str:
        """A dashed line from the top of the frame to its bottom.

        Args:
            position: Where along the curve it stands; None for no line.
            dashes: SVG's `stroke-dasharray`.
            opacity: Of the line.

        Returns:
            SVG.
        """
        if position is None:
            return ""
        x = self.x(position)
        return (
            f'<line x1="{x}" x2="{x}" y1="{self.top}" y2="{self.bottom}" stroke="currentColor" '
            f'stroke-opacity="{opacity:g}" stroke-dasharray="{dashes}"/>'
        )

    def svg(self, content: str, names: Mapping[float, str], *, axis: str, alt: str) -> str:
        """The complete chart.

        Args:
            content: SVG of what is inside the frame.
            names: What is written below positions along the curve, text that is safe in SVG.
            axis: What the positions are.
            alt: A description for those who cannot see it.

        Returns:
            An `<svg>` element.
        """
        heights = zip(map(self.y, self.ticks.tolist()), tick_labels(self.ticks), strict=True)
        rules = "".join(
            f'<line x1="{self.left}" x2="{self.right}" y1="{y}" y2="{y}" stroke="currentColor" '
            f'stroke-opacity=".15"/><text x="{self.left - 8}" y="{y + 4}" text-anchor="end">{label}'
            "</text>"
            for y, label in heights
        )
        centred, middle = 'text-anchor="middle"', (self.left + self.right) / 2
        named = "".join(
            f'<text x="{self.x(position)}" y="{self.bottom + 19}" {centred}>{name}</text>'
            for position, name in names.items()
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'role="img" aria-label="{html.escape(alt)}" font-size="11" fill="currentColor">'
            f'{rules}{named}<text x="{middle}" y="{self.height - 6}" {centred}>'
            f"{html.escape(axis)}</text>{content}</svg>"
        )


def fitted_axes(
    values: np.ndarray,
    first: float,
    last: float,
    *,
    top: float | None = None,
    logarithmic: bool = False,
    height: int = 210,
) -> Axes:
    """The frame of a chart of some values, with round numbers as ticks.

    Args:
        values: Finite numbers, at least one.
        first: Least position along the curve.
        last: Greatest position along the curve.
        top: The greatest value that is drawn to scale; the greatest of all where it is not given.
        logarithmic: Whether equal distances are equal ratios.
        height: Height of the drawing.

    Returns:
        The frame.
    """
    low, high = float(values.min()), float(values.max() if top is None else top)
    ticks = (ratio_ticks if logarithmic else round_ticks)(low, high)
    if high < values.max():
        ticks = ticks[ticks <= high]
    ends = min(float(ticks[0]), low), max(float(ticks[-1]), high), float(first), float(last)
    return Axes(*ends, ticks, height=height, logarithmic=logarithmic)


def loss_curve(history: Sequence[float]) -> str:
    """The loss after every pass as an inline SVG.

    Args:
        history: The losses.

    Returns:
        An `<svg>` element.

    Raises:
        ValueError: If there is no loss, or one is not a finite number.
    """
    losses = _finite(history, "a loss curve needs finite losses")
    alt = f"Loss after each of {losses.size} passes, {losses[0]:.4g} to {losses[-1]:.4g}"
    return _numbered_chart(losses, None, axis="pass", alt=alt)


def eigenvalue_chart(eigenvalues: Sequence[float] | np.ndarray, num_clusters: int) -> str:
    """Leading eigenvalues of a graph as an inline SVG, the gap after the K-th marked.

    Args:
        eigenvalues: The eigenvalues, descending.
        num_clusters: K; nothing is marked where no eigenvalue follows the K-th.

    Returns:
        An `<svg>` element.

    Raises:
        ValueError: If there is no eigenvalue, or one is not a finite number.
    """
    values = _finite(eigenvalues, "a chart of eigenvalues needs finite ones")
    alt = f"{values.size} leading eigenvalues, {values[0]:.4g} to {values[-1]:.4g}"
    gap = num_clusters if 1 <= num_clusters < values.size else None
    if gap is not None:
        alt += f"; the gap between number {gap} and the next is marked"
    return _numbered_chart(values, gap and gap + 0.5, axis="eigenvalue", alt=alt)


def _numbered_chart(values: np.ndarray, mark: float | None, *, axis: str, alt: str) -> str:
    """Values numbered from 1, joined by a line."""
    numbers = [float(i) for i in range(1, len(values) + 1)]
    below = {float(i): str(i) for i in _whole_ticks(len(values))}
    titles = [f"{axis} {i:.0f}: {value:.6g}" for i, value in zip(numbers, values, strict=True)]
    axes = fitted_axes(values, numbers[0], numbers[-1])
    content = axes.vertical_line(mark) + axes.curve(numbers, values.tolist(), titles)
    return axes.svg(content, below, axis=axis, alt=alt)


def criterion_chart(
    positions: Sequence[float],
    values: Sequence[float],
    *,
    names: Sequence[str],
    chosen: float | None,
    axis: str,
    measure: str,
    groups: Sequence[Hashable] | None = None,
) -> str:
    """Draws what settings were judged by as an inline SVG; the chosen one is marked.

    Args:
        positions: Where the settings stand, ascending.
        values: What they were judged by: finite numbers, at least one.
        names: What they are called.
        chosen: Position of the chosen one, or None.
        axis: What was varied.
        measure: What the values are.
        groups: Values next to each other are joined by a line where these are equal; None joins
            all.

    Returns:
        An `<svg>` element.
    """
    named = [f"{axis} {name}: {measure}" for name in names]
    titles = [f"{name} {value:.6g}" for name, value in zip(named, values, strict=True)]
    every, alt = -(-len(names) // _MOST_NAMES), f"{measure} against {axis}"
    below = dict(zip(positions[::every], map(html.escape, names[::every]), strict=True))
    if chosen is not None:
        alt += f"; {names[list(positions).index(chosen)]} was chosen"
    drawn = np.asarray(values, dtype=np.float64)
    axes = fitted_axes(drawn, positions[0], positions[-1], height=240)
    content = axes.vertical_line(chosen)
    for part in runs_of_equal(groups, len(values)):
        content += axes.curve(positions[part], drawn[part].tolist(), titles[part])
    return axes.svg(content, below, axis=axis, alt=alt)


def runs_of_equal(groups: Sequence[Hashable] | None, count: int) -> list[slice]:
    """Start and end of runs of equal items.

    Args:
        groups: The items; None where all are equal.
        count: How many there are.

    Returns:
        A slice for each run.
    """
    ends = [i for i in range(1, count) if groups and groups[i] != groups[i - 1]]
    return [slice(*part) for part in itertools.pairwise([0, *ends, count])]


def _finite(values: Sequence[float] | np.ndarray, need: str) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"{need}, at least one; got {values!r}")
    return array


def _whole_ticks(count: int) -> list[int]:
    """Chooses at most eight of the numbers, the first included."""
    if count <= 8:
        return list(range(1, count + 1))
    step = next(s for s in (2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if count / s <= 7)
    return [1, *range(step, count + 1, step)]


def round_ticks(low: float, high: float) -> np.ndarray:
    """Chooses three to six round numbers that enclose a range.

    Args:
        low: Its lower end.
        high: Its upper end.

    Returns:
        The numbers, ascending.
    """
    span = high - low if high - low > 1e-6 * abs(high) else max(abs(high) * 0.1, 1e-6)
    exact = span / 4
    power = 10.0 ** np.floor(np.log10(exact))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= exact * (1 - 1e-9))
    first, last = np.floor(low / step + 1e-6), np.ceil(high / step - 1e-6)
    return np.arange(first, max(last, first + 1) + 1) * step


def ratio_ticks(low: float, high: float) -> np.ndarray:
    """A few round numbers that enclose a range of positive numbers, about evenly by ratio.

    Args:
        low: Its lower end, positive.
        high: Its upper end.

    Returns:
        The numbers, ascending: powers of ten, with 2 and 5 times them where there are few.
    """
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    factors = (1, 2, 5) if last - first <= 3 else (1,)
    every = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    start = max(i for i, tick in enumerate(every) if tick <= low * (1 + 1e-9))
    stop = min(i for i, tick in enumerate(every) if tick >= high * (1 - 1e-9))
    return np.array(every[start : stop + 1])


def tick_labels(ticks: np.ndarray) -> tuple[str, ...]:
    """Ticks with as many digits as tell them apart.

    Args:
        ticks: The numbers.

    Returns:
        A label each.
    """
    largest = np.abs(ticks).max()
    if 1000 <= largest < 1e7 and all(tick.is_integer() for tick in ticks.tolist()):
        return tuple(f"{tick:,.0f}".replace(",", "\u202f").replace("-", "−") for tick in ticks)
    exact = [float(f"{tick:.12g}") for tick in ticks.tolist()]
    # Twelve digits always tell them apart.
    written = ([f"{tick:.{digits}g}" for tick in ticks.tolist()] for digits in range(3, 13))
    labels = next(labels for labels in written if list(map(float, labels)) == exact)
    return tuple(label.replace("-", "−") for label in labels)
