"""Shapes as SVG: mean shapes with the ellipses of their landmarks, and shapes laid over them."""

import dataclasses
import html
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Real

from diffclust._renamed import renamed_keywords
from diffclust.linalg import flip_signs
from diffclust.models import Result

SIDE = 1000
"""Units of a drawing along the longer side of its frame."""

DENSE = 60
"""With more landmarks than this their dots touch, so that the outline alone is drawn."""

_LABELS = 45
"""With more landmarks than this their numbers would hide the shape."""

_MARGIN = 0.07
"""Around a frame, as a share of its longer side; names of landmarks stand there."""

_MAX_OVERHANG = 0.5
"""How far a frame follows shapes that lie far outside, as a share of the mean shapes' extent."""


Shape = Float[np.ndarray, "landmarks dims"]
Shapes = Float[np.ndarray, "n landmarks dims"]
Covariances = Float[np.ndarray, "landmarks dims dims"]


def stroked(path: str) -> str:
    """A line in the colour of the surrounding text, `--stroke` pixels wide.

    Args:
        path: The `d` attribute of an SVG path.

    Returns:
        An SVG element.
    """
    return (
        f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity="var(--line, .4)" '
        'stroke-width="var(--stroke, 1)" stroke-linejoin="round" '
        'vector-effect="non-scaling-stroke"/>'
    )


def polyline(points: Real[np.ndarray, "n 2"]) -> str:
    """Points joined by a line, in whole units and relative to each other, as that is shorter.

    Args:
        points: Units from the left and from above.

    Returns:
        The `d` attribute of an SVG path.
    """
    rounded = np.round(points).astype(int)
    steps = " ".join(f"{x} {y}" for x, y in np.diff(rounded, axis=0).tolist())
    return f"M{rounded[0, 0]} {rounded[0, 1]}l{steps}"


def drawing(width: int, height: int, content: str, *, alt: str) -> str:
    """A complete drawing.

    Args:
        width: Units from left to right.
        height: Units from top to bottom.
        content: SVG of what is inside.
        alt: A description for those who cannot see it.

    Returns:
        An `<svg>` element.
    """
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{html.escape(alt)}">{content}</svg>'
    )


@dataclasses.dataclass(frozen=True, eq=False)
class ShapeFrame:
    """The frame of drawings of shapes: one for all that are compared.

    Both axes have one scale and the second one points upwards. Everything is drawn in the colour
    of the surrounding text, with dots `--dot` and lines `--stroke` pixels wide and the lines'
    opacity `--line`, so that a page can tell shapes apart.

    Attributes:
        axes: The two directions that are drawn, as columns.
        left: Least coordinate along the first.
        top: Greatest coordinate along the second.
        unit: Units of the drawing for one of the coordinates.
        width: Width of the drawing.
        height: Its height.
    """

    axes: Float[np.ndarray, "dims 2"]
    left: float
    top: float
    unit: float
    width: int
    height: int

    def place(
        self, landmarks: Float[np.ndarray, "*n landmarks dims"]
    ) -> Float[np.ndarray, "*n landmarks 2"]:
        """Places of landmarks in the drawing.

        Args:
            landmarks: One shape, or several.

        Returns:
            Units from the left and from above.
        """
        flat = np.asarray(landmarks, np.float64) @ self.axes
        placed = (flat - np.array([self.left, self.top])) * np.array([self.unit, -self.unit])
        # One that strays far would only fill the file with digits.
        return np.clip(placed, -10 * SIDE, 10 * SIDE)

    def half_axes(
        self, covariance: Covariances
    ) -> tuple[Float[np.ndarray, "landmarks 2"], Float[np.ndarray, " landmarks"]]:
        """The ellipses of one standard deviation, as they are drawn.

        Args:
            covariance: Covariances of landmarks.

        Returns:
            Half of the longer and of the shorter axis, in units of the drawing, and how far the
            longer one is turned clockwise, in degrees.
        """
        onto = self.axes * np.array([self.unit, -self.unit])
        values, vectors = np.linalg.eigh(onto.T @ np.asarray(covariance, np.float64) @ onto)
        angles = np.degrees(np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1]))
        return np.sqrt(np.maximum(values[:, ::-1], 0.0)), angles

    def ellipses(self, mean: Shape, covariance: Covariances, *, deviations: float = 1.0) -> str:
        """An ellipse for every landmark.

        Args:
            mean: The landmarks.
            covariance: Their covariances; see `landmark_covariances`.
            deviations: Half axes, in standard deviations.

        Returns:
            SVG elements.
        """
        axes, angles = self.half_axes(covariance)
        return "".join(
            f'<ellipse rx="{deviations * rx:.4g}" ry="{deviations * ry:.4g}" '
            f'transform="translate({x:.1f} {y:.1f}) rotate({angle:.4g})"/>'
            for (x, y), (rx, ry), angle in zip(
                self.place(mean).tolist(), axes.tolist(), angles.tolist(), strict=True
            )
        )

    def outline(self, shape: Shape) -> str:
        """Landmarks joined in their order by a closed line.

        Args:
            shape: The landmarks.

        Returns:
            The `d` attribute of an SVG path.
        """
        return f"{polyline(self.place(shape))}z"

    def dots(self, shapes: Shapes) -> str:
        """A dot for every landmark of every shape, as round ends of lines without length.

        Args:
            shapes: The shapes.

        Returns:
            The `d` attribute of an SVG path; empty where there are none.
        """
        # Landmark after landmark, as short steps take few digits.
        points = np.round(self.place(shapes)).astype(int).swapaxes(0, 1).reshape(-1, 2)
        steps = np.diff(points, axis=0, prepend=0).tolist()
        return "".join(f"m{x} {y}h0" for x, y in steps)

    def mean_shape(
        self, mean: Shape, covariance: Covariances, *, deviations: Sequence[float] = (2.0, 1.0)
    ) -> str:
        """A mean shape: its outline, its landmarks as dots, and an ellipse around each.

        Args:
            mean: Its landmarks.
            covariance: Their covariances.
            deviations: Half axes of the ellipses in standard deviations, the largest first.

        Returns:
            SVG elements.
        """
        ellipses = "".join(
            f"<g>{self.ellipses(mean, covariance, deviations=d)}</g>" for d in deviations
        )
        return (
            f'<g class="ellipses" fill="currentColor" fill-opacity=".22">{ellipses}</g>'
            f"{self.drawn_shape(mean)}"
        )

    def drawn_shape(self, shape: Shape) -> str:
        """A shape: its outline, and its landmarks as dots where there are not too many.

        Args:
            shape: Its landmarks.

        Returns:
            SVG elements.
        """
        dots = self.dotted(shape[None]) if len(shape) <= DENSE else ""
        return f"{stroked(self.outline(shape))}{dots}"

    def dotted(self, shapes: Shapes) -> str:
        """The landmarks of shapes as dots.

        Args:
            shapes: The shapes.

        Returns:
            An SVG element.
        """
        return (
            f'<path d="{self.dots(shapes)}" fill="none" stroke="currentColor" stroke-width="var('
            '--dot, 5)" stroke-linecap="round" vector-effect="non-scaling-stroke"/>'
        )

    def landmark_names(self, shape: Shape, names: Sequence[str], titles: Sequence[str]) -> str:
        """Names of landmarks beside them, away from the middle, and a tooltip for each.

        Args:
            shape: Its landmarks.
            names: Short names; left out where there are very many landmarks.
            titles: The tooltip of each.

        Returns:
            SVG elements.
        """
        points = self.place(shape)
        outwards = points - points.mean(axis=0)
        lengths = np.linalg.norm(outwards, axis=1, keepdims=True)
        beside = points + 30 * outwards / np.where(lengths > 0.0, lengths, 1.0)
        texts = "".join(
            f'<text x="{x:.0f}" y="{y:.0f}">{html.escape(name)}</text>'
            for (x, y), name in zip(beside.tolist(), names, strict=True)
        )
        spots = "".join(
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="16"><title>{html.escape(title)}</title></circle>'
            for (x, y), title in zip(points.tolist(), titles, strict=True)
        )
        shown = texts if len(names) <= _LABELS else ""
        return (
            '<g class="names" fill="currentColor" font-size="24" text-anchor="middle" '
            f'dominant-baseline="central">{shown}</g><g fill="transparent">{spots}</g>'
        )

    @renamed_keywords(said="alt")
    def svg(self, content: str, *, alt: str) -> str:
        """A complete drawing.

        Args:
            content: SVG of what is inside the frame.
            alt: A description for those who cannot see it.

        Returns:
            An `<svg>` element.
        """
        return drawing(self.width, self.height, content, alt=alt)


def shape_frame(
    means: Float[np.ndarray, "clusters landmarks dims"],
    covariances: Float[np.ndarray, "clusters landmarks dims dims"],
    shapes: Shapes | None = None,
) -> ShapeFrame:
    """The frame that holds all mean shapes, their ellipses, and the shapes around them.

    A shape that lies far outside of all mean shapes is cut off at the edge.

    Args:
        means: The mean shapes.
        covariances: Covariances of their landmarks.
        shapes: Registered shapes, or None.

    Returns:
        The frame, its longer side `SIDE`. Of three and more dimensions it shows the projection on
        the two leading principal axes of the shapes, or of the means where no shapes are given.
    """
    held = means if shapes is None or len(shapes) == 0 else shapes
    axes = principal_axes(held.reshape(-1, held.shape[-1]))
    centres = (means @ axes).reshape(-1, 2)
    variances = np.einsum("di,...de,ei->...i", axes, covariances, axes).reshape(-1, 2)
    reach = 2.0 * np.sqrt(np.maximum(variances, 0.0))
    low, high = (centres - reach).min(axis=0), (centres + reach).max(axis=0)
    stray = _MAX_OVERHANG * (high - low).max()
    flat = np.clip((held @ axes).reshape(-1, 2), low - stray, high + stray)
    return fitted_frame(axes, np.minimum(low, flat.min(axis=0)), np.maximum(high, flat.max(axis=0)))


def fitted_frame(
    axes: Float[np.ndarray, "dims 2"], low: Float[np.ndarray, "2"], high: Float[np.ndarray, "2"]
) -> ShapeFrame:
    """The frame around a box.

    Args:
        axes: The directions that are drawn.
        low: Least coordinates along them.
        high: Greatest coordinates.

    Returns:
        A frame with the longer side `SIDE` and a margin around the box.
    """
    extent = high - low
    margin = _MARGIN * extent.max()
    unit = SIDE / (extent.max() + 2 * margin)
    width, height = np.round((extent + 2 * margin) * unit).astype(int).tolist()
    return ShapeFrame(
        axes, float(low[0] - margin), float(high[1] + margin), float(unit), width, height
    )


def principal_axes(points: Float[np.ndarray, "n dims"]) -> Float[np.ndarray, "dims 2"]:
    """The two directions in which points are drawn.

    Args:
        points: The points.

    Returns:
        Unit vectors as columns: in the plane its own axes, otherwise the leading principal axes,
        each with its largest entry positive.
    """
    points = np.asarray(points, np.float64)
    if points.shape[1] == 2:
        return np.eye(2)
    centred = points - points.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return flip_signs(vectors[:, :-3:-1])


def landmark_covariances(result: Result) -> Float[np.ndarray, "clusters landmarks dims dims"]:
    """The covariances of the landmarks of all mean shapes.

    Args:
        result: A fitted model of shapes.

    Returns:
        Covariances; of a model that has variances alone, diagonal ones.

    Raises:
        ValueError: If the model does not cluster shapes.
    """
    if result.model.descriptor.sample_kind != "shape" or result.variances is None:
        raise ValueError(
            f"{result.model.method} has no mean shapes; give the result of a model of shapes"
        )
    variance = result.variances.astype(np.float64)
    return variance if variance.ndim == 4 else variance[..., None] * np.eye(variance.shape[-1])
