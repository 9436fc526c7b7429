"""Series drawn for a report: means over the members of their clusters, and warps of time."""

import numpy as np

from diffclust.data import SeriesSet
from diffclust.models import Result
from diffclust.models.selection import counted
from diffclust.plotting import CurveFrame
from diffclust.plotting.series import MOST_POINTS
from diffclust.report.means import MeanRenderer
from diffclust.report.page import svg_icon
from diffclust.report.text import count
from diffclust.solvers import Status

_SQUARE = CurveFrame(np.zeros(1), np.ones(1))
"""Where warps of [0, 1] are drawn."""


class SeriesRenderer(MeanRenderer):
    """Draws series."""

    noun = "mean series"
    frame: CurveFrame

    def __init__(self, result: Result, dataset: SeriesSet, *, seed: int) -> None:
        """Warps all series onto their means.

        Args:
            result: A fitted model of series.
            dataset: The series it was fitted to.
            seed: Seed of the draw of members, where a cluster has too many.
        """
        super().__init__(result, seed)
        self.decides = result.model.descriptor.has_prototypes
        self.raw, params = dataset.series, result.outcome.assignment.params
        # As they are clustered, and on the scale of the means.
        self.aligned = scaled = np.asarray(result.registered(self.raw))
        if result.model.descriptor.moves == "samples":
            self.aligned = result.align(self.raw, params)
        if result.model.has_unit_norm:
            seen = np.isfinite(scaled).all(axis=2, keepdims=True)
            share = np.maximum(seen.mean(axis=1, keepdims=True), 1 / len(self.raw[0]))
            observed = np.where(seen, scaled, 0.0)
            norm = np.sqrt(np.sum(observed**2, axis=(1, 2), keepdims=True) / share)
            self.aligned = self.aligned / np.where(norm > 0, norm, 1.0)
        if result.outcome.status is not Status.PREDICTED:
            self.means = np.where(self._is_observed(counted(result.outcome)), self.means, np.nan)
        self.frame = frame = CurveFrame.around(np.concatenate([self.means, self.aligned]))
        self.frames = [CurveFrame.around(series[None]) for series in self.raw]
        self.drawn_means = [*map(frame.drawn_shape, self.means)]
        self.medoids = [
            min(np.flatnonzero(result.assignments == i), key=result.distances.item, default=None)
            for i in range(len(self.means))
        ]
        times = (np.arange(MOST_POINTS) + 0.5) / MOST_POINTS
        self.warps = result.model.warped_times(params, times) if params.any() else None
        path = frame.path(self.means[0])
        drawn = f'<path d="{path}" fill="none" stroke="#2f6690" stroke-width="40"/>'
        self.icon = svg_icon(f"0 0 {frame.width} {frame.height}", drawn)

    def _is_observed(self, own: np.ndarray) -> np.ndarray:
        """At which times some series of each cluster that counts has a value, as it is aligned."""
        seen, clusters = np.isfinite(self.aligned[own]), np.asarray(self.clusters)[own]
        each = [seen[clusters == cluster] for cluster in range(len(self.means))]
        return np.stack([np.logical_or(a.any(axis=0), len(a) == 0) for a in each])

    @property
    def note(self) -> str:
        """Describes how mean series are drawn."""
        channels = self.means.shape[2]
        return "All are drawn on one scale" + (", channel below channel." if channels > 1 else ".")

    def prototype(self, cluster: int) -> str:
        """The mean series over the members of its cluster and its medoid, and their warps."""
        members, medoid = self.members[cluster], self.medoids[cluster]
        alt = f"Mean series of cluster {cluster} and {len(members)} series of it"
        if medoid is None:
            return f'<figure class="centroid">{self.frame.svg(self.use(cluster), alt=alt)}</figure>'
        behind = _lines(self.frame, self.aligned[members])
        over = f'<g class="over">{self.frame.drawn_shape(self.aligned[medoid])}</g>'
        drawn = self.frame.svg(f"{behind}{self.use(cluster)}{over}", alt=alt)
        warped = count(len(members), "series" if self.warps is None else "warped series")
        caption = f"Grey, {warped}; blue, their mean; orange, the medoid, nearest to it."
        if self.warps is not None:
            straight = _SQUARE.drawn_shape(np.linspace(0, 1, MOST_POINTS)[:, None])
            warps = _lines(_SQUARE, self.warps[members]) + f'<g class="mean">{straight}</g>'
            drawn += _SQUARE.svg(warps, alt=f"Warps of time in cluster {cluster}")
            caption += " Below, where in time each is read, over the time of the mean."
        return f'<figure class="centroid">{drawn}<figcaption>{caption}</figcaption></figure>'

    def figures(self, cluster: int) -> dict[str, str]:
        """Returns no figures."""
        del cluster
        return {}

    def legend(self) -> list[str]:
        """Names the drawings that stand below each other."""
        moved = "The same scaled" if self.warps is None else "The same scaled and warped in time"
        compared = ": this is what is compared" if self.decides else ""
        return [
            "The series as it came, each on its own scale.",
            f"{moved}, over the mean series of its cluster{compared}.",
        ]


def _lines(frame: CurveFrame, series: np.ndarray) -> str:
    drawn = "".join(map(frame.drawn_shape, series))
    return f'<g class="members">{drawn}</g>'
