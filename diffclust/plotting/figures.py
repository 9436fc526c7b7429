"""Figures for papers and notebooks, drawn with matplotlib."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from diffclust.features._filters import filter_bank, wave_angle
from diffclust.features.scattering import Scattering
from diffclust.models.survey import SurveyRow
from diffclust.plotting.bend import elbow

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def loss_against_k(
    num_clusters: Sequence[int],
    losses: Sequence[float],
    *,
    least: Sequence[float] | None = None,
    label: str = "loss",
) -> "Figure":
    """The loss against the number of clusters, its elbow marked; see `diffclust.plotting.elbow`.

    Args:
        num_clusters: Values of K, all different.
        losses: The loss of each, a mean over runs, say.
        least: The least loss of each over the same runs, or None.
        label: What the loss is, beside the axis.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: If the lengths differ, a K occurs twice, or a loss is not a finite number.

    References:
        Monnier et al., DTI clustering, App. C.3 and Fig. 5a.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    chosen = elbow(num_clusters, losses)
    if least is not None:
        elbow(num_clusters, least)
    order = np.argsort(num_clusters)
    ks = np.asarray(num_clusters)[order]
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    panel = figure.subplots()
    mean = np.asarray(losses)[order]
    panel.plot(ks, mean, "o-", color="C0", label="mean of the runs" if least is not None else None)
    if least is not None:
        panel.plot(ks, np.asarray(least)[order], "--", color="C0", alpha=0.5, label="least")
    if chosen is not None:
        panel.axvline(chosen, color="C1", linestyle=":", label=f"elbow, K = {chosen}")
    if least is not None or chosen is not None:
        panel.legend(fontsize=8)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set(xlabel="clusters K", ylabel=label)
    return figure


def criterion_curve(
    positions: Sequence[float],
    values: Sequence[float],
    *,
    names: Sequence[str],
    chosen: float | None,
    axis: str,
    label: str,
) -> "Figure":
    """What settings were judged by, the chosen one marked.

    Args:
        positions: Where the settings stand, ascending.
        values: What they were judged by.
        names: What they are called.
        chosen: Position of the chosen one, or None.
        axis: What was varied.
        label: What the values are.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    panel = figure.subplots()
    panel.plot(positions, values, "o-", color="C0")
    if chosen is not None:
        name = names[list(positions).index(chosen)]
        panel.axvline(chosen, color="C1", linestyle=":", label=f"chosen: {name}")
        panel.legend(fontsize=8)
    every = -(-len(names) // 16)
    panel.set_xticks(list(positions)[::every], list(names)[::every])
    panel.set(xlabel=axis, ylabel=label)
    return figure
