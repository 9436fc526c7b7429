"""Pictures of a result, made on the host: sheets of prototypes, warped grids, curves.

Everything comes back as arrays or as SVG text, so that a report, a notebook and a file show the
same thing.
"""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

from diffclust.features.morlet import filter_bank, wave_angle
from diffclust.features.scattering import Scattering
from diffclust.models import Result
from diffclust.models.survey import SurveyRow
from diffclust.transforms import AbstractSpatialTransform

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TILE = 96
"""Pixels that the longer side of a prototype has at least on a sheet."""


def displayable(image: np.ndarray, *, own_range: bool = False) -> UInt8[np.ndarray, "h w channels"]:
    """An image as 8 bits, grey or RGB.

    Args:
        image: Image of shape `(height, width, channels)`; of more than three channels the first
            three are shown, of two their mean.
        own_range: Stretch the intensities so that the least is black and the greatest white. A
            constant image is clipped to [0, 1] like all others are without this.

    Returns:
        The image with 1 or 3 channels.
    """
    image = np.asarray(image, dtype=np.float64)
    if image.shape[-1] == 2:
        image = image.mean(axis=-1, keepdims=True)
    image = image[..., :3]
    least, greatest = image.min(), image.max()
    if own_range and greatest > least:
        image = (image - least) / (greatest - least)
    return np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)


def prototype_sheet(result: Result) -> UInt8[np.ndarray, "height width 3"]:
    """All prototypes in a grid, in the order of their clusters, each with its size below.

    Args:
        result: A fitted model.

    Returns:
        An RGB picture; each prototype is scaled to its own range of intensities.
    """
    from PIL import Image, ImageDraw, ImageFont

    prototypes, counts = result.prototypes, result.counts
    columns = -(-len(prototypes) // max(1, round(float(np.sqrt(len(prototypes) / 2)))))
    rows = -(-len(prototypes) // columns)
    height, width = prototypes.shape[1:3]
    # Whole factors keep the pixels of small images square and equal.
    factor = max(1, -(-_TILE // max(height, width)))
    tile_width, tile_height = max(_TILE, width * factor), height * factor
    gap, line = 16, 22
    font = ImageFont.load_default(12)
    sheet = Image.new(
        "RGB",
        (gap + columns * (tile_width + gap), gap + rows * (tile_height + line + gap)),
        (255, 255, 255),
    )
    draw = ImageDraw.Draw(sheet)
    for cluster, prototype in enumerate(prototypes):
        row, column = divmod(cluster, columns)
        x = gap + column * (tile_width + gap)
        y = gap + row * (tile_height + line + gap)
        pixels = displayable(prototype, own_range=True).repeat(factor, 0).repeat(factor, 1)
        tile = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
        sheet.paste(tile.convert("RGB"), (x + (tile_width - tile.width) // 2, y))
        caption = f"{cluster}:  n = {counts[cluster]}"
        middle = x + tile_width / 2
        draw.text((middle, y + tile_height + 5), caption, (64, 64, 64), font, anchor="ma")
    return np.asarray(sheet)


def save_prototypes(path: str | Path, result: Result) -> None:
    """Writes the sheet of prototypes as a PNG file.

    Args:
        path: The file.
        result: A fitted model.
    """
    from PIL import Image

    Image.fromarray(prototype_sheet(result)).save(path, format="PNG")


def warped_grids(
    result: Result, params: np.ndarray, *, lines: int = 7, longest: int = 1000
) -> list[str]:
    """Where alignments read the images: the images of a regular grid under the coordinate maps.

    Drawn over a sample, the outer frame of the grid is the canvas of the aligned image, and a
    crossing of two lines lies where the aligned image reads its crossing of the regular grid.

    Args:
        result: A fitted model.
        params: Params of m samples, `(m, params)`, as in `Assignment.params`.
        lines: Lines in either direction, at least two.
        longest: Units of the drawing along the longer side of the image, whose top left corner is
            the origin.

    Returns:
        For each sample the `d` attribute of an SVG path, in whole units.

    Raises:
        ValueError: If the model's transform is not a map of coordinates, or there are fewer than
            two lines.
    """
    transform = result.model.energy().transform
    if not isinstance(transform, AbstractSpatialTransform):
        raise ValueError(
            f"a {type(transform).__name__} is no map of coordinates, so it has no warped grid; "
            "draw those of a spatial transform"
        )
    if lines < 2:
        raise ValueError(f"a grid needs at least 2 lines, not {lines}")
    params = np.asarray(params)
    if len(params) == 0:
        return []
    along, across = np.linspace(-1, 1, 2 * (lines - 1) + 1), np.linspace(-1, 1, lines)
    horizontal = np.stack(np.broadcast_arrays(along[None, :], across[:, None]))
    points = np.concatenate([horizontal, horizontal[::-1]], axis=1)
    warped = np.asarray(_warp(transform, jnp.asarray(params), jnp.asarray(points, params.dtype)))
    height, width = result.image_shape[:2]
    side = np.array([width, height]) * (longest / max(height, width))
    drawn = (warped + 1) / 2 * side[:, None, None]
    # A map may throw points far away, where digits would only fill the file.
    whole = np.round(np.clip(drawn, -10 * longest, 10 * longest)).astype(int)
    return ["".join(_polyline(line) for line in np.moveaxis(one, 0, -1)) for one in whole]


@eqx.filter_jit
def _warp(
    transform: AbstractSpatialTransform,
    params: Float[Array, "n params"],
    points: Float[Array, "2 lines points"],
) -> Float[Array, "n 2 lines points"]:
    return jax.vmap(transform.bind_map(points))(params)


def _polyline(points: np.ndarray) -> str:
    """Points of shape `(points, 2)` as SVG path commands, relative ones as they are shorter."""
    chord = np.linspace(points[0], points[-1], len(points))
    if np.abs(points - chord).max() <= 2:
        points = points[[0, -1]]
    steps = " ".join(f"{x} {y}" for x, y in np.diff(points, axis=0))
    return f"M{points[0, 0]} {points[0, 1]}l{steps}"


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

    Lines and letters take the colour of the surrounding text, and the curve the CSS variable
    `--accent`, so that it fits light and dark pages.

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
    ticks = _ticks(values.min(), values.max())
    labels = _tick_labels(ticks)
    left, right, top, bottom = 14 + 7 * max(map(len, labels)), 14, 12, 44
    low, high = min(ticks[0], values.min()), max(ticks[-1], values.max())

    def x(number: int | float) -> float:
        share = (number - 1) / (values.size - 1) if values.size > 1 else 0.5
        return round(left + 10 + share * (width - left - right - 20), 1)

    def y(value: float) -> float:
        return round(top + (high - value) / (high - low) * (height - top - bottom), 1)

    numbered = list(enumerate(values.tolist(), start=1))
    curve = " ".join(f"{x(i)},{y(value)}" for i, value in numbered)
    rules = "".join(
        f'<line x1="{left}" x2="{width - right}" y1="{y(tick)}" y2="{y(tick)}" '
        f'stroke="currentColor" stroke-opacity=".15"/>'
        f'<text x="{left - 8}" y="{y(tick) + 4}" text-anchor="end">{label}</text>'
        for tick, label in zip(ticks, labels, strict=True)
    )
    numbers = "".join(
        f'<text x="{x(i)}" y="{height - bottom + 19}" text-anchor="middle">{i}</text>'
        for i in _whole_ticks(values.size)
    )
    dots = "".join(
        f'<circle cx="{x(i)}" cy="{y(value)}" r="3"><title>{step} {i}: {value:.6g}</title></circle>'
        for i, value in numbered
    )
    gap = (
        ""
        if mark is None
        else f'<line x1="{x(mark + 0.5)}" x2="{x(mark + 0.5)}" y1="{top}" y2="{height - bottom}" '
        'stroke="currentColor" stroke-dasharray="4 4"/>'
    )
    middle = (left + width - right) / 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{html.escape(said)}" font-size="11" fill="currentColor">'
        f"{rules}{numbers}{gap}"
        f'<text x="{middle}" y="{height - 6}" text-anchor="middle">{html.escape(step)}</text>'
        f'<g fill="var(--accent, #2f6690)" stroke="none">'
        f'<polyline points="{curve}" fill="none" stroke="var(--accent, #2f6690)" '
        f'stroke-width="2" stroke-linejoin="round"/>{dots}</g></svg>'
    )


def scattering_filters(scattering: Scattering) -> "Figure":
    """The wavelets and the low-pass of a scattering transform.

    Args:
        scattering: The transform.

    Returns:
        A matplotlib figure: a row a scale with the real parts of its wavelets by angle, their
        origin in the middle, then the low-pass.
    """
    from matplotlib.figure import Figure

    shape = scattering.height, scattering.width
    scales, angles = scattering.num_scales, scattering.num_angles
    bank = filter_bank(shape, scales, angles)
    figure = Figure(figsize=(1.1 * angles + 0.6, 1.1 * (scales + 1)), layout="constrained")
    panels = figure.subplots(scales + 1, angles, squeeze=False)
    for panel in panels.flat:
        panel.set_axis_off()

    def show(panel, transform, title):
        filtered = np.fft.fftshift(np.fft.ifft2(transform).real)
        limit = np.abs(filtered).max()
        panel.imshow(filtered, cmap="RdBu_r", vmin=-limit, vmax=limit)
        panel.set_title(title, fontsize=7)

    for scale in range(scales):
        for index in range(angles):
            degrees = np.degrees(wave_angle(index, angles))
            title = f"j = {scale}, {degrees:.4g}°"
            show(panels[scale, index], bank.wavelets[scale, index], title)
    show(panels[scales, 0], bank.average, "low-pass")
    return figure


def survey_curves(rows: Sequence[SurveyRow]) -> "Figure":
    """Eigengap, normalised cut and stability against the number of clusters.

    Args:
        rows: What `diffclust.models.survey.survey` returned.

    Returns:
        A matplotlib figure: a panel each, a line for the mean graph and a faint one for each number
        of removed directions.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.2), layout="constrained")
    for panel, name in zip(
        figure.subplots(1, 3), ("eigengap", "normalised_cut", "stability"), strict=True
    ):
        for removed in dict.fromkeys(row.num_removed for row in rows):
            line = [row for row in rows if row.num_removed == removed]
            mean = removed is None
            panel.plot(
                [row.num_clusters for row in line],
                [getattr(row, name) for row in line],
                "o-" if mean else "--",
                color="C0" if mean else f"C{removed + 1}",
                alpha=1.0 if mean else 0.5,
                label="mean graph" if mean else f"n = {removed}",
            )
        panel.set(xlabel="clusters", title=name.replace("_", " "))
    figure.axes[0].legend(fontsize=8)
    return figure


def _ticks(low: float, high: float) -> np.ndarray:
    """Three to six round numbers that enclose the range."""
    span = high - low if high - low > 1e-6 * abs(high) else max(abs(high) * 0.1, 1e-6)
    exact = span / 4
    power = 10.0 ** np.floor(np.log10(exact))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= exact * (1 - 1e-9))
    first, last = np.floor(low / step + 1e-6), np.ceil(high / step - 1e-6)
    return np.arange(first, max(last, first + 1) + 1) * step


def _tick_labels(ticks: np.ndarray) -> list[str]:
    """Ticks with as many digits as tell them apart."""
    for digits in range(3, 17):
        labels = [f"{tick:.{digits}g}" for tick in ticks.tolist()]
        if all(
            float(label) == float(f"{tick:.12g}") for label, tick in zip(labels, ticks, strict=True)
        ):
            return labels
    return [f"{tick:.12g}" for tick in ticks]


def _whole_ticks(count: int) -> list[int]:
    """At most eight of the numbers, the first included."""
    if count <= 8:
        return list(range(1, count + 1))
    step = next(s for s in (2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if count / s <= 7)
    return [1, *range(step, count + 1, step)]
