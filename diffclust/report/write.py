"""Writing the report of a fit."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from diffclust.data import Dataset
from diffclust.models import Result
from diffclust.report.gallery import Gallery, spreads
from diffclust.report.page import Content, render
from diffclust.report.pictures import data_uris
from diffclust.report.samples import class_shares, gather_samples
from diffclust.report.selection import affordable_samples, select, select_bridges
from diffclust.report.terms import terms_of

_MANY_CLUSTERS = 30
"""From here on clusters are folded up, or the page would be too long to scroll."""

_MOST_PROTOTYPE_BYTES = 120_000
"""Of one set of pictures; each is shown twice."""


def write_report(
    path: str | Path,
    result: Result,
    dataset: Dataset,
    *,
    scores: Mapping[str, float] | None = None,
    seed: int = 0,
    title: str | None = None,
    samples_per_group: int = 6,
) -> None:
    """Writes one HTML file that shows a fit and needs nothing else, no network either.

    It holds the prototypes, how the fit went, the doubtful pairs of images between clusters where
    the method knows of any, and for each cluster its nearest, farthest, random and least certain
    samples, each beside its aligned version and its warped grid, or beside the prototype as it is
    moved onto the image. Large images are made smaller, so that with 10 clusters and 6 samples a
    group the file stays below 1.5 MB.

    Args:
        path: The file; one that exists is replaced.
        result: A fitted model.
        dataset: The images it was fitted to, in the same order, with what is known about them.
        scores: Scores against labels by name (`acc`, `nmi`, `ari`), or None.
        seed: Seed of the run, which is shown; it also draws the random samples.
        title: Heading; the data set's name where it is not given.
        samples_per_group: Samples a group. With many clusters there are fewer, 1,000 samples in
            all, but at least one a group; the report then says so.

    Raises:
        ValueError: If the data set is not the one that was fitted, or `samples_per_group` is
            below 1.
    """
    _check(result, dataset, samples_per_group)
    clusters = result.model.num_clusters
    affordable = affordable_samples(samples_per_group, clusters)
    views = select(result, samples_per_group=affordable, seed=seed)
    bridges = select_bridges(result)
    shown = [group.positions for view in views for group in view.groups]
    shown += [np.asarray(bridge.positions) for bridge in bridges]
    height, width = result.image_shape[:2]
    terms = terms_of(result)
    gallery = Gallery(
        views=views,
        samples=gather_samples(result, dataset, np.concatenate(shown)),
        prototypes=data_uris(
            list(result.prototypes), most_bytes=_MOST_PROTOTYPE_BYTES, own_range=True
        ),
        unmoved=data_uris(list(result.prototypes), most_bytes=_MOST_PROTOTYPE_BYTES)
        if terms.stages
        else [],
        spreads=spreads(result, most_bytes=_MOST_PROTOTYPE_BYTES),
        classes=[
            class_shares(dataset, np.flatnonzero(result.assignments == cluster))
            for cluster in range(clusters)
        ],
        height=height,
        width=width,
        folded=clusters > _MANY_CLUSTERS,
        terms=terms,
    )
    content = Content(
        title=dataset.name if title is None else title,
        result=result,
        dataset=dataset,
        scores=scores or {},
        seed=seed,
        gallery=gallery,
        bridges=bridges,
        limited_to=affordable if affordable < samples_per_group else None,
    )
    Path(path).write_text(render(content), encoding="utf-8")


def _check(result: Result, dataset: Dataset, samples_per_group: int) -> None:
    if samples_per_group < 1:
        raise ValueError(f"samples_per_group must be at least 1, not {samples_per_group}")
    fitted = (len(result.assignments), *result.image_shape)
    if dataset.images.shape != fitted:
        raise ValueError(
            f"the report needs the images that were fitted, of shape {fitted}; this data set has "
            f"images of shape {dataset.images.shape}"
        )
