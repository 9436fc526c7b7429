"""The HTML of the clusters: their prototypes and samples, each beside its alignment."""

import math

from diffclust.report.facts import Facts
from diffclust.report.gallery import Gallery
from diffclust.report.selection import ClusterView, Group, Kind
from diffclust.report.terms import Terms
from diffclust.report.text import count, escape, number, percent, whole

_MOST_CLASSES = 5


def overview(gallery: Gallery) -> str:
    """All prototypes as links to their clusters.

    Args:
        gallery: What is shown.

    Returns:
        HTML.
    """
    largest, noun = max(view.size for view in gallery.views), gallery.terms.noun
    cards = "".join(
        f'<a class="card" href="#cluster-{view.index}" {_sortable(gallery, view)}>'
        f"{gallery.painter.card(view.index)}<b><u>Cluster </u>{view.index}</b>"
        f'<span title="{percent(view.share)} of all {noun}s">{count(view.size, noun)}</span>'
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
    mean = f"mean {gallery.terms.short}"
    choices = (("index", "number"), ("size", "size"), ("distance", mean))
    buttons = "".join(
        f'<label><input type="radio" name="{name}" value="{value}" autocomplete="off"'
        f"{' checked' if value == 'index' else ''}>{label}</label>"
        for value, label in choices
    )
    return f'<fieldset class="sort" hidden><legend>Sort clusters by</legend>{buttons}</fieldset>'


def sample_control(gallery: Gallery) -> str:
    """The choice of the order of each cluster's samples; hidden until the script runs.

    Args:
        gallery: What is shown.

    Returns:
        HTML; nothing where nothing is shown.
    """
    shown = [gallery.facts[position] for view in gallery.views for position in _shown(view)]
    if not shown:
        return ""
    terms = gallery.terms
    choices = [("kind", "in groups"), ("certainty", terms.certainty), ("distance", terms.short)]
    if len(gallery.views) == 1:
        choices.pop(1)
    if any(fact.label is not None for fact in shown):
        choices.append(("label", "class"))
    buttons = "".join(
        f'<label><input type="radio" name="order-samples" value="{value}" autocomplete="off"'
        f"{' checked' if value == 'kind' else ''}>{label}</label>"
        for value, label in choices
    )
    return (
        f'<fieldset class="sort order" hidden><legend>Show {terms.noun}s by</legend>{buttons}'
        "</fieldset>"
    )


def _shown(view: ClusterView) -> list[int]:
    return [position for group in view.groups for position in group.positions.tolist()]


def cluster_list(gallery: Gallery) -> str:
    """Every cluster with its samples.

    Args:
        gallery: What is shown.

    Returns:
        HTML.
    """
    listed = "".join(_cluster(gallery, view) for view in gallery.views)
    return f"{gallery.painter.stock()}<div data-sorted>\n{listed}</div>"


def _sortable(gallery: Gallery, view: ClusterView) -> str:
    # Empty clusters come last; a log density may be of either sign.
    none = -1e300 if gallery.terms.is_density else -1.0
    distance = view.mean_distance if view.size else none
    return f'data-index="{view.index}" data-size="{view.size}" data-distance="{distance:.9g}"'


def _cluster(gallery: Gallery, view: ClusterView) -> str:
    heading = f"<h2>Cluster {view.index}</h2>"
    attributes = f'class="cluster" id="cluster-{view.index}" {_sortable(gallery, view)}'
    back = '<a class="back" href="#overview">All clusters</a>'
    groups = "".join(_group(gallery, view, group) for group in view.groups)
    body = f'<div class="groups">{groups}</div>' if groups else ""
    if gallery.folded:
        size = f'<span class="soft"> {count(view.size, gallery.terms.noun)}</span>'
        about = _about(gallery, view, f'<p class="bar">{back}</p>')
        return f"<details {attributes}><summary>{heading}{size}</summary>{about}{body}</details>\n"
    about = _about(gallery, view, f'<div class="bar">{heading}{back}</div>')
    return f"<article {attributes}>{about}{body}</article>\n"


def _about(gallery: Gallery, view: ClusterView, heading: str) -> str:
    noun, figures = gallery.terms.noun, {}
    if view.size == 0:
        text = f'<p class="note">Empty: {gallery.terms.empty}.</p>'
    else:
        text = ""
        figures = {
            noun if view.size == 1 else f"{noun}s": whole(view.size),
            f"of all {noun}s": percent(view.share),
            f"mean {gallery.terms.short}": number(view.mean_distance),
        }
    figures |= gallery.painter.figures(view.index)
    if figures:
        listed = "".join(f"<div><dt>{n}</dt><dd>{v}</dd></div>" for n, v in figures.items())
        text += f'<dl class="figures">{listed}</dl>'
    text += _classes(gallery.classes[view.index])
    pictures = gallery.painter.portrait(view.index)
    return f'<div class="about">{pictures}<div>{heading}{text}</div></div>'


def _classes(classes: list[tuple[str, float]]) -> str:
    if not classes:
        return ""
    named = [
        f"<span><b>{escape(name)}</b> {percent(share)}</span>"
        for name, share in classes[:_MOST_CLASSES]
    ]
    if len(classes) > len(named):
        named.append(f"and {len(classes) - len(named)} more")
    return f'<p class="note classes"><span>Classes:</span> {" ".join(named)}</p>'


def _titles(kind: Kind, terms: Terms) -> tuple[str, str]:
    """Heading of a group, and what its samples are shown with."""
    return {
        "all": (f"All {terms.noun}s", f"{terms.nearest} first, with the {terms.distance}"),
        "nearest": (terms.nearest.capitalize(), f"with the {terms.distance}"),
        "farthest": (
            terms.farthest.capitalize(),
            f"the worst fit first, with the {terms.short}",
        ),
        "random": ("Random", f"drawn from the whole cluster, with the {terms.short}"),
        "uncertain": (
            "Least certain",
            f"with the {terms.certainty}, and the cluster that came second",
        ),
    }[kind]


def _group(gallery: Gallery, view: ClusterView, group: Group) -> str:
    title, note = _titles(group.kind, gallery.terms)
    figures = []
    for place, position in enumerate(group.positions.tolist()):
        name = f"s{view.index}-{group.kind}-{place}"
        figures.append(
            f'<figure class="sample" {_orderable(gallery.facts[position], position)}>'
            f"{gallery.drawing(position, name)}<figcaption>{_caption(gallery.facts[position])}"
            "</figcaption></figure>\n"
        )
    return (
        f'<div class="group {group.kind}"><h3>{title}</h3><p>{note}</p>'
        f'<div class="samples">\n{gallery.painter.row_names()}{"".join(figures)}</div></div>'
    )


def _orderable(sample: Facts, position: int) -> str:
    """What the script sorts by: the least certain and the farthest come first."""
    certainty = sample.margin if sample.certainty is None else sample.certainty
    known = f' data-certainty="{certainty:.6g}"' if math.isfinite(certainty) else ""
    label = "" if sample.label is None else f' data-label="{escape(sample.label)}"'
    return f'data-position="{position}" data-distance="{sample.distance:.6g}"{known}{label}'


def _caption(sample: Facts) -> str:
    """Distance and certainty, of which the style shows what the order is by."""
    lines = [f'<span class="far">{number(sample.distance, digits=3)}</span>']
    if sample.runner_up >= 0 and math.isfinite(sample.margin):
        certainty = (
            number(sample.margin, digits=3)
            if sample.certainty is None
            else percent(sample.certainty)
        )
        lines.append(
            f'<span class="sure">{certainty}</span><span class="sure">or '
            f'<a href="#cluster-{sample.runner_up}"><u>cluster </u>{sample.runner_up}</a></span>'
        )
    if sample.label is not None:
        lines.append(f'<span class="soft" title="class">{escape(sample.label)}</span>')
    return "".join(lines)
