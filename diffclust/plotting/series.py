"""Series as SVG: curves over time, with gaps where values are missing."""

import dataclasses

import numpy as np
from jaxtyping import Float

from diffclust.plotting.shapes import SIDE, drawing, polyline, stroked

MOST_POINTS = 120
"""Of a curve that is drawn; of longer series every second value, or every third."""

_BAND = 360
"""Height of the curve of each channel; of several, two thirds of it."""

_DASH = np.array([[-0.004], [0.004]]) * np.array([SIDE, 0.0])
"""From the left to the right end of what is drawn for a single value."""

_MARGIN = 0.06
"""Above and below a curve, as a share of its height."""


@dataclasses.dataclass(frozen=True, eq=False)
class CurveFrame:
    """The frame of drawings of series: one for all that are compared, one channel below another.

    Attributes:
        low: Least value of each channel.
        high: Greatest value of each channel.
    """

    low: Float[np.ndarray, " channels"]
    high: Float[np.ndarray, " channels"]

    width = SIDE

    @staticmethod
    def around(series: Float[np.ndarray, "n length channels"]) -> "CurveFrame":
        """The frame that holds some series.

        Args:
            series: Values, NaN where one is missing.

        Returns:
            The frame.
        """
        low, high = np.nanmin(series, axis=(0, 1)), np.nanmax(series, axis=(0, 1))
        return CurveFrame(low, np.where(high > low, high, low + 1.0))

    @property
    def height(self) -> int:
        """Height of the drawing, in units of `SIDE`."""
        channels = len(self.low)
        return _BAND if channels == 1 else 2 * _BAND // 3 * channels

    def path(self, series: Float[np.ndarray, "length channels"]) -> str:
        """A series as lines between its values, one channel below another.

        Args:
            series: Values, NaN where one is missing.

        Returns:
            The `d` attribute of an SVG path.
        """
        length, band = len(series), self.height / len(self.low)
        step = -(-length // MOST_POINTS)
        share = 1.0 - np.clip((series - self.low) / (self.high - self.low), -0.1, 1.1)
        y = band * (_MARGIN + (1.0 - 2.0 * _MARGIN) * share + np.arange(len(self.low)))
        parts = []
        for channel in y.T:
            # The first value of each step that is not missing.
            steps = np.pad(channel, (0, -length % step), constant_values=np.nan).reshape(-1, step)
            first = np.isfinite(steps).argmax(axis=1) + step * np.arange(len(steps))
            kept = first[first < length]
            points = np.stack([(kept + 0.5) / length * SIDE, channel[kept]], axis=1)
            for run in np.ma.clump_unmasked(np.ma.masked_invalid(channel[kept])):
                # A value between missing ones is a short line of its own.
                ends = points[run] if run.stop - run.start > 1 else points[run] + _DASH
                parts.append(polyline(ends))
        return "".join(parts)

    def drawn_shape(self, series: Float[np.ndarray, "length channels"]) -> str:
        """A series as a line.

        Args:
            series: Values, NaN where one is missing.

        Returns:
            An SVG element.
        """
        return stroked(self.path(series))

    def svg(self, content: str, *, alt: str) -> str:
        """A complete drawing.

        Args:
            content: SVG of what is inside the frame.
            alt: A description for those who cannot see it.

        Returns:
            An `<svg>` element.
        """
        return drawing(self.width, self.height, content, alt=alt)
