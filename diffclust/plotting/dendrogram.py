"""Who was joined with whom: the tree of a hierarchical clustering."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from diffclust.analysis.hierarchy import Hierarchy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    from matplotlib.figure import Figure
    from scipy.cluster.hierarchy import dendrogram as draw

    count = len(hierarchy.registered)
    figure = Figure(figsize=(min(30.0, max(6.0, 0.12 * count)), 4.0), layout="constrained")
    axes = figure.subplots()
    labels = None if names is None else [str(name) for name in names]
    draw(
        hierarchy.linkage,
        ax=axes,
        labels=labels,
        leaf_font_size=7,
        color_threshold=0.0,
        above_threshold_color="0.3",
    )
    axes.set_ylabel("distance")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    return figure
