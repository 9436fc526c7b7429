"""The HTML of the clusters: their prototypes and samples, each beside its alignment."""

import dataclasses
import math
from collections.abc import Mapping

from diffclust.report.samples import SIDE, Sample
from diffclust.report.selection import ClusterView, Group, Kind
from diffclust.report.terms import Terms
from diffclust.report.text import count, escape, number, percent, whole

_GAP, _MARGIN = 80, 50
"""Between the pictures of a sample, and around them for what sticks out of a grid, in `SIDE`s."""

_TITLES: dict[Kind, tuple[str, str]] = {
    "all": ("All images", "nearest first, with the {distance}"),
    "nearest": ("Nearest", "with the {distance}"),
    "farthest": ("Farthest", "the worst fit first, with the distance"),
    "random": ("Random", "drawn from the whole cluster, with the distance"),
    "uncertain": ("Least certain", "with the margin, and the cluster that came second"),
}

_MOST_CLASSES = 5


@dataclasses.dataclass(frozen=True, eq=False)
class Gallery:
    """What the clusters show.

    Attributes:
        views: The clusters and the samples chosen for them.
        samples: The samples that are shown, by position.
        prototypes: Picture of each prototype, a `data:` URI.
        classes: For each cluster the names and shares of its classes; empty without labels.
        height: Rows of the images.
        width: Columns of the images.
        folded: Whether clusters are shown on request only.
        terms: The words for the result.
    """

    views: list[ClusterView]
    samples: Mapping[int, Sample]
    prototypes: list[str]
    classes: list[list[tuple[str, float]]]
    height: int
    width: int
    folded: bool
    terms: Terms

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of a drawn image, the longer one `SIDE`."""
        factor = SIDE / max(self.height, self.width)
        return round(self.width * factor), round(self.height * factor)


def overview(gallery: Gallery) -> str:
    """All prototypes as links to their clusters.

    Args:
        gallery: What is shown.

    Returns:
        HTML.
    """
    largest = max(view.size for view in gallery.views)
    cards = "".join(
        f'<a class="card" href="#cluster-{view.index}" {_sortable(view)}>'
        f"{_prototype(gallery, view)}<b><u>Cluster </u>{view.index}</b>"
        f'<span title="{percent(view.share)} of all images">{count(view.size, "image")}</span>'
        f'<i style="--share:{100 * view.size / largest:.1f}%"></i></a>\n'
        for view in gallery.views
    )
    return f'<div class="overview" data-sorted>\n{cards}</div>'


def sort_control(gallery: Gallery, name: str) -> str:
    """The choice of the order of the clusters; hidden until the script that does it runs.

    Args:
        gallery: What is shown.
        name: A name that no other choice on the page has.

    Returns:
        HTML; nothing for a single cluster.
    """
    if len(gallery.views) == 1:
        return ""
    choices = (("index", "number"), ("size", "size"), ("distance", "mean distance"))
    buttons = "".join(
        f'<label><input type="radio" name="{name}" value="{value}" autocomplete="off"'
        f"{' checked' if value == 'index' else ''}>{label}</label>"
        for value, label in choices
    )
    return f'<fieldset class="sort" hidden><legend>Sort clusters by</legend>{buttons}</fieldset>'


def cluster_list(gallery: Gallery) -> str:
    """Every cluster with its samples.

    Args:
        gallery: What is shown.

    Returns:
        HTML.
    """
    return "<div data-sorted>\n" + "".join(_cluster(gallery, v) for v in gallery.views) + "</div>"


def drawing(gallery: Gallery, sample: Sample, name: str) -> str:
    """A sample, its aligned version and its warped grid, one below the other.

    Args:
        gallery: What is shown.
        sample: The sample.
        name: An id that no other drawing of the page has.

    Returns:
        An SVG element.
    """
    width, height = gallery.size
    full = f'width="{width}" height="{height}" preserveAspectRatio="none"'
    parts = [f'<image id="{name}" {full} href="{sample.picture}"/>']
    total = height
    if sample.aligned is not None:
        parts.append(f'<image y="{total + _GAP}" {full} href="{sample.aligned}"/>')
        total += _GAP + height
    if sample.grid is not None:
        around = f"{width + 2 * _MARGIN} {height + 2 * _MARGIN}"
        across, down = around.split()
        parts.append(
            f'<svg x="{-_MARGIN}" y="{total + _GAP - _MARGIN}" width="{across}" height="{down}" '
            f'viewBox="{-_MARGIN} {-_MARGIN} {around}"><rect width="{width}" height="{height}"/>'
            f'<use href="#{name}" class="faint"/>'
            f'<path class="grid" d="{sample.grid}"/></svg>'
        )
        total += _GAP + height + _MARGIN
    return (
        f'<svg viewBox="{-_MARGIN} 0 {width + 2 * _MARGIN} {total}" role="img">'
        f"<title>{_facts(sample)}</title>{''.join(parts)}</svg>"
    )


def picture(gallery: Gallery, sample: Sample) -> str:
    """A sample as it came.

    Args:
        gallery: What is shown.
        sample: The sample.

    Returns:
        An SVG element.
    """
    width, height = gallery.size
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img"><title>{_facts(sample)}</title>'
        f'<image width="{width}" height="{height}" preserveAspectRatio="none" '
        f'href="{sample.picture}"/></svg>'
    )


def _facts(sample: Sample) -> str:
    lines = [f"index {sample.index}"]
    if sample.path is not None:
        lines.append(escape(sample.path))
    if sample.label is not None:
        lines.append(f"class {escape(sample.label)}")
    lines.append(f"distance {number(sample.distance)}")
    if sample.runner_up >= 0 and math.isfinite(sample.margin):
        lines.append(f"margin {number(sample.margin)} to cluster {sample.runner_up}")
    return "\n".join(lines)


def _sortable(view: ClusterView) -> str:
    distance = view.mean_distance if view.size else -1.0
    return f'data-index="{view.index}" data-size="{view.size}" data-distance="{distance:.9g}"'


def _prototype(gallery: Gallery, view: ClusterView) -> str:
    return (
        f'<img src="{gallery.prototypes[view.index]}" width="{gallery.width}" '
        f'height="{gallery.height}" alt="Prototype of cluster {view.index}">'
    )


def _cluster(gallery: Gallery, view: ClusterView) -> str:
    heading = f"<h2>Cluster {view.index}</h2>"
    attributes = f'class="cluster" id="cluster-{view.index}" {_sortable(view)}'
    back = '<a class="back" href="#overview">All clusters</a>'
    groups = "".join(_group(gallery, view, group) for group in view.groups)
    body = f'<div class="groups">{groups}</div>' if groups else ""
    if gallery.folded:
        size = f'<span class="soft"> {count(view.size, "image")}</span>'
        about = _about(gallery, view, f'<p class="bar">{back}</p>')
        return f"<details {attributes}><summary>{heading}{size}</summary>{about}{body}</details>\n"
    about = _about(gallery, view, f'<div class="bar">{heading}{back}</div>')
    return f"<article {attributes}>{about}{body}</article>\n"


def _about(gallery: Gallery, view: ClusterView, heading: str) -> str:
    if view.size == 0:
        text = f'<p class="note">Empty: {gallery.terms.empty}.</p>'
    else:
        text = (
            '<dl class="figures">'
            f"<div><dt>{'image' if view.size == 1 else 'images'}</dt>"
            f"<dd>{whole(view.size)}</dd></div>"
            f"<div><dt>of all images</dt><dd>{percent(view.share)}</dd></div>"
            f"<div><dt>mean distance</dt><dd>{number(view.mean_distance)}</dd></div></dl>"
        )
    classes = gallery.classes[view.index]
    if classes:
        named = [
            f"<span><b>{escape(name)}</b> {percent(share)}</span>"
            for name, share in classes[:_MOST_CLASSES]
        ]
        if len(classes) > len(named):
            named.append(f"and {len(classes) - len(named)} more")
        text += f'<p class="note classes"><span>Classes:</span> {" ".join(named)}</p>'
    return f'<div class="about">{_prototype(gallery, view)}<div>{heading}{text}</div></div>'


def _group(gallery: Gallery, view: ClusterView, group: Group) -> str:
    title, note = _TITLES[group.kind]
    note = note.format(distance=gallery.terms.distance)
    figures = []
    for place, position in enumerate(group.positions.tolist()):
        sample = gallery.samples[position]
        name = f"s{view.index}-{group.kind}-{place}"
        figures.append(
            f'<figure class="sample">{drawing(gallery, sample, name)}'
            f"<figcaption>{_caption(sample, group.kind)}</figcaption></figure>\n"
        )
    return (
        f'<div class="group"><h3>{title}</h3><p>{note}</p>'
        f'<div class="samples">\n{"".join(figures)}</div></div>'
    )


def _caption(sample: Sample, kind: Kind) -> str:
    if kind == "uncertain":
        lines = [
            number(sample.margin, digits=3),
            f'or <a href="#cluster-{sample.runner_up}"><u>cluster </u>{sample.runner_up}</a>',
        ]
    else:
        lines = [number(sample.distance, digits=3)]
    if sample.label is not None:
        lines.append(f'<span class="soft" title="class">{escape(sample.label)}</span>')
    return "".join(line if line.startswith("<span") else f"<span>{line}</span>" for line in lines)
