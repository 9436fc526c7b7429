"""The frame of a chart that is drawn as SVG: its range, its rules, its round numbers."""

import dataclasses
import html

import numpy as np

_MANY_DOTS = 60
"""From here on dots are small, or they would hide the curve."""


@dataclasses.dataclass(frozen=True, eq=False)
class Axes:
    """A frame around values, in units of the drawing, about CSS pixels.

    Lines and letters take the colour of the surrounding text, and the curve the CSS variable
    `--accent`, so that a chart fits light and dark pages.

    Attributes:
        low: Least value that is shown.
        high: Greatest value that is shown.
        first: Least position along the curve.
        last: Greatest position along the curve.
        ticks: Values that are marked by rules.
        labels: What stands beside them.
        width: Width of the drawing.
        height: Its height.
        top: Room above the frame.
        logarithmic: Whether equal distances are equal ratios; then values are positive.
    """

    low: float
    high: float
    first: float
    last: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    width: int = 440
    height: int = 210
    top: int = 12
    logarithmic: bool = False

    @property
    def left(self) -> int:
        """Room beside the frame, for the labels."""
        return 14 + 7 * max(map(len, self.labels))

    @property
    def right(self) -> int:
        """Where the frame ends."""
        return self.width - 14

    @property
    def bottom(self) -> int:
        """Where the frame ends."""
        return self.height - 44

    def x(self, position: int | float) -> float:
        """Where a position along the curve is drawn.

        Args:
            position: The position.

        Returns:
            Units from the left; a single position is in the middle.
        """
        span = self.last - self.first
        share = (position - self.first) / span if span > 0 else 0.5
        return round(self.left + 10 + share * (self.right - self.left - 20), 1)

    def y(self, value: float) -> float:
        """Where a value is drawn.

        Args:
            value: The value; one out of range is drawn at the edge.

        Returns:
            Units from above.
        """
        low, high, value = (
            (np.log(self.low), np.log(self.high), np.log(value))
            if self.logarithmic
            else (self.low, self.high, value)
        )
        share = float(np.clip((high - value) / (high - low), 0.0, 1.0))
        return round(self.top + share * (self.bottom - self.top), 1)

    def curve(self, positions: list[float], values: list[float], titles: list[str]) -> str:
        """Values joined by a line, a dot each.

        Args:
            positions: Where they stand.
            values: The values.
            titles: What is told of each where somebody points at its dot.

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
            f'<g fill="var(--accent, #2f6690)" stroke="none">'
            f'<polyline points="{line}" fill="none" stroke="var(--accent, #2f6690)" '
            f'stroke-width="2" stroke-linejoin="round"/>{dots}</g>'
        )

    def upright(self, x: float, *, dashes: str, opacity: float = 1.0) -> str:
        """A dashed line from the top of the frame to its bottom.

        Args:
            x: Where it stands, in units.
            dashes: SVG's `stroke-dasharray`.
            opacity: Of the line.

        Returns:
            SVG.
        """
        return (
            f'<line x1="{x}" x2="{x}" y1="{self.top}" y2="{self.bottom}" stroke="currentColor" '
            f'stroke-opacity="{opacity:g}" stroke-dasharray="{dashes}"/>'
        )

    def svg(self, content: str, numbers: dict[float, str], *, step: str, said: str) -> str:
        """The whole chart.

        Args:
            content: SVG of what is inside the frame.
            numbers: Positions along the curve that are named below, with their names.
            step: What is counted along the curve.
            said: What somebody is told who cannot see it.

        Returns:
            An `<svg>` element.
        """
        rules = "".join(
            f'<line x1="{self.left}" x2="{self.right}" y1="{self.y(tick)}" y2="{self.y(tick)}" '
            f'stroke="currentColor" stroke-opacity=".15"/>'
            f'<text x="{self.left - 8}" y="{self.y(tick) + 4}" text-anchor="end">{label}</text>'
            for tick, label in zip(self.ticks, self.labels, strict=True)
        )
        named = "".join(
            f'<text x="{self.x(position)}" y="{self.bottom + 19}" text-anchor="middle">{name}'
            "</text>"
            for position, name in numbers.items()
        )
        middle = (self.left + self.right) / 2
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'role="img" aria-label="{html.escape(said)}" font-size="11" fill="currentColor">'
            f'{rules}{named}<text x="{middle}" y="{self.height - 6}" text-anchor="middle">'
            f"{html.escape(step)}</text>{content}</svg>"
        )


def round_ticks(low: float, high: float) -> np.ndarray:
    """Three to six round numbers that enclose a range.

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
    for digits in range(3, 17):
        labels = [f"{tick:.{digits}g}" for tick in ticks.tolist()]
        if all(
            float(label) == float(f"{tick:.12g}") for label, tick in zip(labels, ticks, strict=True)
        ):
            return tuple(label.replace("-", "−") for label in labels)
    return tuple(f"{tick:.12g}" for tick in ticks)
