"""Figures for papers and notebooks, drawn with matplotlib."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from diffclust.analysis import Hierarchy
from diffclust.features._filters import filter_bank, wave_angle
from diffclust.features.scattering import Scattering
from diffclust.plotting.charts import runs_of_equal

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def scattering_filters(scattering: Scattering) -> "Figure":
    """The wavelets and the low-pass of a scattering transform.

    Args:
        scattering: The transform.

    Returns:
        A matplotlib figure: a row a scale with the real parts of its wavelets by angle, their
        origin in the middle, then the low-pass.
    """
    scales, angles = scattering.num_scales, scattering.num_angles
    bank = filter_bank((scattering.height, scattering.width), scales, angles)
    figure = _figure(1.1 * angles + 0.6, 1.1 * (scales + 1))
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
            title = f"j = {scale}, {np.degrees(wave_angle(index, angles)):.4g}°"
            show(panels[scale, index], bank.wavelets[scale, index], title)
    show(panels[scales, 0], bank.average, "low-pass")
    return figure


def criterion_curve(
    positions: Sequence[float],
    values: Sequence[float],
    *,
    names: Sequence[str],
    chosen: float | None,
    axis: str,
    label: str,
    groups: Sequence[Hashable] | None = None,
) -> "Figure":
    """Draws the criterion by which settings were judged, the chosen one marked.

    Args:
        positions: Where the settings stand, ascending.
        values: What they were judged by.
        names: What they are called.
        chosen: Position of the chosen one, or None.
        axis: What was varied.
        label: What the values are.
        groups: As for `criterion_chart`.

    Returns:
        A matplotlib figure.
    """
    figure = _figure(5.6, 3.4)
    panel = figure.subplots()
    for part in runs_of_equal(groups, len(values)):
        panel.plot(positions[part], values[part], "o-", color="C0")
    named: dict[float | None, str] = dict(zip(positions, names, strict=True))
    if chosen is not None:
        panel.axvline(chosen, color="C1", linestyle=":", label=f"chosen: {named[chosen]}")
        panel.legend(fontsize=8)
    every = -(-len(names) // 16)
    panel.set_xticks(list(positions)[::every], list(names)[::every])
    panel.set(xlabel=axis, ylabel=label)
    return figure


def dendrogram(
    hierarchy: Hierarchy, *, names: Sequence[object] | np.ndarray | None = None
) -> "Figure":
    """The tree of a hierarchy, shapes below, heights being the distances at which they joined.

    Args:
        hierarchy: What `shape_hierarchy` returned.
        names: What to write below each shape, or None for their numbers.

    Returns:
        A matplotlib figure.
    """
    from scipy.cluster.hierarchy import dendrogram as draw

    figure = _figure(min(30.0, max(6.0, 0.12 * len(hierarchy.registered))), 4.0)
    axes = figure.subplots()
    # Between dollars matplotlib would set formulae.
    labels = None if names is None else [str(name).replace("$", r"\$") for name in names]
    style = {"leaf_font_size": 7, "color_threshold": 0.0, "above_threshold_color": "0.3"}
    # Upright, as slanting names, which SciPy has, end below the leaves beside theirs.
    style["leaf_rotation"] = 90.0
    draw(hierarchy.linkage, ax=axes, labels=labels, **style)
    axes.set_ylabel("distance")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    return figure
