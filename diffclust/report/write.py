"""Writing the report of a fit."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from diffclust.analysis.common_start import CommonStart
from diffclust.data import Collection, Dataset
from diffclust.models import Result
from diffclust.plotting import Film
from diffclust.report.confusion import confusion_section
from diffclust.report.facts import class_shares, gather_facts
from diffclust.report.film import film_section
from diffclust.report.gallery import Gallery
from diffclust.report.images import paint_images
from diffclust.report.maps import check_map_samples, map_section
from diffclust.report.one_start import one_start_section
from diffclust.report.page import Content, render
from diffclust.report.painter import AbstractPainter
from diffclust.report.selection import MOST_SAMPLES, affordable_samples, select, select_bridges
from diffclust.report.shapes import affordable_shapes, paint_shapes
from diffclust.report.terms import Terms, terms_of

_MANY_CLUSTERS = 30
"""From here on clusters are folded up, or the page would be too long to scroll."""


def write_report(
    path: str | Path,
    result: Result,
    dataset: Collection,
    *,
    scores: Mapping[str, float] | None = None,
    seed: int = 0,
    title: str | None = None,
    samples_per_group: int = 6,
    film: Film | None = None,
    others: CommonStart | None = None,
    map_samples: int = 1_000,
) -> None:
    """Writes one HTML file that shows a fit and needs nothing else, no network either.

    It holds the prototypes, how the fit went, the doubtful pairs of images between clusters where
    the method knows of any, and for each cluster its nearest, farthest, random and least certain
    samples, each beside its aligned version and its warped grid, or beside the prototype as it is
    moved onto the image. Shapes are drawn over the mean shape that they are in, with the ellipses
    of its landmarks. Large images are made smaller, so that with 10 clusters and 6 samples a group
    the file stays below 1.5 MB.

    Args:
        path: The file; one that exists is replaced.
        result: A fitted model.
        dataset: The images or shapes it was fitted to, in the same order, with what is known about
            them.
        scores: Scores against labels by name (`acc`, `nmi`, `ari`), or None.
        seed: Seed of the run, which is shown; it also draws the random samples.
        title: Heading; the data set's name where it is not given.
        samples_per_group: Samples a group. With many clusters there are fewer, 1,000 samples in
            all, and with very many landmarks fewer still, but at least one a group; the report
            then says so.
        film: The callback that watched the fit, for pictures of the prototypes pass by pass, or
            None.
        others: Fits of other methods from the same start, for a row of prototypes each, or None.
        map_samples: Most images that are placed on maps by t-SNE, 2,000 at most; 0 for no maps.

    Raises:
        ValueError: If the data set is not the one that was fitted, `samples_per_group` is below
            1, or `map_samples` is not between 0 and 2,000.
    """
    terms = terms_of(result)
    _check(result, dataset, terms, samples_per_group)
    check_map_samples(map_samples, "map_samples")
    clusters, most = result.model.num_clusters, MOST_SAMPLES
    if terms.noun == "shape":
        most = affordable_shapes(result.sample_shape[0], most)
    affordable = affordable_samples(samples_per_group, clusters, most=most)
    views = select(result, samples_per_group=affordable, seed=seed)
    bridges = select_bridges(result)
    shown = [group.positions for view in views for group in view.groups]
    shown += [np.asarray(bridge.positions) for bridge in bridges]
    positions = np.concatenate(shown)
    gallery = Gallery(
        views=views,
        facts=gather_facts(result, dataset, positions),
        painter=_painter(result, dataset, terms, positions, seed),
        classes=[
            class_shares(dataset, np.flatnonzero(result.assignments == cluster))
            for cluster in range(clusters)
        ],
        folded=clusters > _MANY_CLUSTERS,
        terms=terms,
    )
    many = "clusters" if most == MOST_SAMPLES else "landmarks"
    limit = f"With so many {many}, each group shows {affordable}."
    content = Content(
        title=dataset.name if title is None else title,
        result=result,
        dataset=dataset,
        scores=scores or {},
        seed=seed,
        gallery=gallery,
        bridges=bridges,
        between=_between(result, dataset, film, others, map_samples, seed),
        limited_to=limit if affordable < samples_per_group else None,
    )
    Path(path).write_text(render(content), encoding="utf-8")


def _between(
    result: Result,
    dataset: Collection,
    film: Film | None,
    others: CommonStart | None,
    map_samples: int,
    seed: int,
) -> dict[tuple[str, str], str]:
    """Sections between the fit and its clusters, by name and heading; an empty one is left out."""
    sections = {}
    if film is not None and (frames := film.frames(result)):
        sections["film", "The course of the prototypes"] = film_section(frames, film.unit)
    if others is not None:
        sections["starts", "From one start"] = one_start_section(result, others, dataset)
    sections["confusion", "Classes and clusters"] = confusion_section(result, dataset)
    if map_samples and isinstance(dataset, Dataset):
        maps = map_section(result, dataset, others, most=map_samples, seed=seed)
        sections["maps", "Maps"] = maps
    return sections


def _painter(
    result: Result, dataset: Collection, terms: Terms, positions: np.ndarray, seed: int
) -> AbstractPainter:
    if isinstance(dataset, Dataset):
        return paint_images(result, dataset, terms, positions)
    return paint_shapes(result, dataset, positions, seed=seed)


def _check(result: Result, dataset: Collection, terms: Terms, samples_per_group: int) -> None:
    if samples_per_group < 1:
        raise ValueError(f"samples_per_group must be at least 1, not {samples_per_group}")
    fitted = (len(result.assignments), *result.sample_shape)
    if dataset.samples.shape != fitted:
        raise ValueError(
            f"the report needs the {terms.noun}s that were fitted, of shape {fitted}; this data "
            f"set has {dataset.noun}s of shape {dataset.samples.shape}"
        )
