"""The HTML of the clusters: prototypes, samples beside their alignments, and doubtful pairs."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from urllib.parse import unquote

from diffclust.data import Collection
from diffclust.methods import Words, plural
from diffclust.models import Result
from diffclust.report.images import ImageRenderer
from diffclust.report.page import figure_list
from diffclust.report.selection import (
    ClusterView,
    Group,
    SampleInfo,
    certainties,
    class_shares,
    words_of,
)
from diffclust.report.series import SeriesRenderer
from diffclust.report.shapes import ShapeRenderer
from diffclust.report.text import count, escape, integer, number, percent

_MOST_CLASSES = 5

_MANY_CLUSTERS = 30
"""From here on clusters are folded up, or the page would be too long to scroll."""


@dataclasses.dataclass(frozen=True)
class Members:
    """The files beside a report that show every member of the clusters.

    Attributes:
        url: Their folder, as the report refers to it.
        step: Samples on a page.
        shown: How many members of each cluster are on its pages.
        full: Where samples are shown at full size, by position: a file, or a file and which part of
            it (left, top, width, height) of the whole (width, height).
        most_bytes: How large all files together may be.
    """

    url: str = ""
    most_bytes: int = 0
    step: int = 1
    shown: tuple[int, ...] = ()
    full: Mapping[int, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class Gallery:
    """All that is shown of the clusters, ready to be drawn.

    Attributes:
        result: The fitted model.
        dataset: The data it was fitted to.
        views: The clusters and the samples chosen for them.
        samples: What is known about the samples that are shown, by position.
        renderer: What draws prototypes and samples.
        bridges: Positions of pairs that are much alike and yet in different clusters.
        note: What is said where fewer samples are shown than were asked for.
        sounds: Players of recordings, HTML, by position; each is taken out where it is shown.
        members: Files beside the report.
    """

    result: Result
    dataset: Collection
    views: list[ClusterView]
    samples: Mapping[int, SampleInfo]
    renderer: ImageRenderer | ShapeRenderer | SeriesRenderer
    bridges: list[tuple[int, int]]
    note: str
    sounds: dict[int, str] = dataclasses.field(default_factory=dict)
    members: Members = dataclasses.field(default_factory=Members)

    @functools.cached_property
    def words(self) -> Words:
        """The words for figures and samples."""
        return words_of(self.result, self.dataset)

    @functools.cached_property
    def certainty(self) -> str:
        """The name of what says how certain a sample's cluster is."""
        return "margin" if certainties(self.result) is None else "responsibility"

    @property
    def folded(self) -> bool:
        """Whether clusters are shown on request only."""
        return len(self.views) > _MANY_CLUSTERS

    def drawing(self, position: int, name: str) -> str:
        """A sample and how it was aligned.

        Args:
            position: Position of the sample in the data set.
            name: An id that no other drawing of the page has.

        Returns:
            An SVG element.
        """
        return self.renderer.sample(position, name, self.samples[position].tooltip(self.words))


def overview(gallery: Gallery) -> str:
    """Lists all prototypes as links to their clusters.

    Args:
        gallery: What is shown.

    Returns:
        HTML.
    """
    largest, noun = max(view.size for view in gallery.views), gallery.words.noun
    cards = "".join(
        f'<a class="card" href="#cluster-{view.index}" {_sort_keys(gallery, view)}>'
        f"{gallery.renderer.thumbnail(view.index)}<b><u>Cluster </u>{view.index}</b>"
        f'<span title="{percent(view.share)} of all {plural(noun)}">{count(view.size, noun)}</span>'
        f'<i style="--share:{100 * view.size / largest:.1f}%"></i></a>\n'
        for view in gallery.views
    )
    return (
        f'<div class="overview" data-sorted>\n{cards}</div><p class="note">{gallery.renderer.note} '
        f"The bar is the size of the cluster.</p>{gallery.renderer.overlay()}"
    )


def cluster_order(gallery: Gallery, name: str) -> str:
    """The choice of the order of the clusters; hidden until the script that does it runs.

    Args:
        gallery: What is shown.
        name: A name that no other choice on the page has.

    Returns:
        HTML; nothing for a single cluster.
    """
    if len(gallery.views) == 1:
        return ""
    mean = f"mean {gallery.words.distance_short}"
    choices = {"index": "number", "size": "size", "distance": mean}
    return _choice("Sort clusters by", name, choices, "sort")


def sample_order(gallery: Gallery) -> str:
    """The choice of the order of each cluster's samples; hidden until the script runs.

    Args:
        gallery: What is shown.

    Returns:
        HTML.
    """
    choices = {"kind": "in groups"}
    if len(gallery.views) > 1:
        choices["certainty"] = gallery.certainty
    choices["distance"] = gallery.words.distance_short
    if gallery.dataset.labels is not None:
        choices["label"] = "class"
    return _choice(f"Show {plural(gallery.words.noun)} by", "order-samples", choices, "sort order")


def _choice(legend: str, name: str, choices: Mapping[str, str], css_class: str) -> str:
    """A radio button; the first one is checked."""
    buttons = "".join(
        f'<label><input type="radio" name="{name}" value="{value}" autocomplete="off"'
        f"{'' if number else ' checked'}>{label}</label>"
        for number, (value, label) in enumerate(choices.items())
    )
    return f'<fieldset class="{css_class}" hidden><legend>{legend}</legend>{buttons}</fieldset>'


def cluster_list(gallery: Gallery) -> str:
    """Lists every cluster with its samples.

    Args:
        gallery: What is shown.

    Returns:
        HTML.
    """
    listed = "".join(_cluster(gallery, view) for view in gallery.views)
    return f"{gallery.renderer.definitions()}<div data-sorted>\n{listed}</div>"


def _sort_keys(gallery: Gallery, view: ClusterView) -> str:
    # Empty clusters come last; a log density may be of either sign.
    none = -1e300 if gallery.words.is_density else -1.0
    distance = view.mean_distance if view.size else none
    return f'data-index="{view.index}" data-size="{view.size}" data-distance="{distance:.9g}"'


def _cluster(gallery: Gallery, view: ClusterView) -> str:
    """A cluster: its prototype, its figures and its samples."""
    heading, back = f"<h2>Cluster {view.index}</h2>", '<a class="back" href="#overview">'
    size = f'{heading}<span class="soft"> {count(view.size, gallery.words.noun)}</span>'
    outside, inside = (f"<summary>{size}</summary>", "") if gallery.folded else ("", heading)
    tag, bar = ("details", "p") if gallery.folded else ("article", "div")
    groups = "".join(_group(gallery, view, group) for group in view.groups)
    samples = f'<div class="groups">{groups}</div>' if groups else ""
    return (
        f'<{tag} class="cluster" id="cluster-{view.index}" {_sort_keys(gallery, view)}>{outside}'
        f'<div class="about">{gallery.renderer.prototype(view.index)}<div><{bar} class="bar">'
        f"{inside}{back}All clusters</a></{bar}>{_figures(gallery, view)}</div></div>{samples}"
        f"{_all_members(gallery, view)}</{tag}>\n"
    )


def _figures(gallery: Gallery, view: ClusterView) -> str:
    """The figures of a cluster, and its classes."""
    words = gallery.words
    text, figures = f'<p class="note">Empty: {words.empty}.</p>', {}
    if view.size:
        text = ""
        figures = {
            words.noun if view.size == 1 else plural(words.noun): integer(view.size),
            f"of all {plural(words.noun)}": percent(view.share),
            f"mean {words.distance_short}": number(view.mean_distance),
        }
    figures |= gallery.renderer.figures(view.index)
    text += figure_list(figures) if figures else ""
    classes = class_shares(gallery.dataset, view.members)
    listed = [f"<span><b>{escape(name)}</b> {percent(share)}</span>" for name, share in classes]
    if len(classes) > _MOST_CLASSES:
        listed[_MOST_CLASSES:] = [f"and {len(classes) - _MOST_CLASSES} more"]
    if listed:
        text += f'<p class="note classes"><span>Classes:</span> {" ".join(listed)}</p>'
    return text


def _group(gallery: Gallery, view: ClusterView, group: Group) -> str:
    words, long, short = gallery.words, gallery.words.distance, gallery.words.distance_short
    title, note = {
        "all": (f"All {plural(words.noun)}", f"{words.nearest} first, with the {long}"),
        "nearest": (words.nearest.capitalize(), f"with the {long}"),
        "farthest": (words.farthest.capitalize(), f"the worst fit first, with the {short}"),
        "random": ("Random", f"drawn from the whole cluster, with the {short}"),
        "uncertain": (
            "Least certain",
            f"with the {gallery.certainty}, and the cluster that came second",
        ),
    }[group.kind]
    figures = "".join(
        member_figure(
            gallery.drawing(position, f"s{view.index}-{group.kind}-{place}"),
            gallery.samples[position],
            position,
            words,
            full=gallery.members.full.get(position, ""),
            player=gallery.sounds.pop(position, ""),
        )
        for place, position in enumerate(group.positions.tolist())
    )
    return (
        f'<div class="group {group.kind}"><h3>{title}</h3><p>{note}</p>'
        f'<div class="samples">\n{gallery.renderer.row_names()}{figures}</div></div>'
    )


def _all_members(gallery: Gallery, view: ClusterView) -> str:
    """The container of the pages of members, which are hidden until they are asked for."""
    shown = gallery.members.shown[view.index] if gallery.members.shown else 0
    if not shown or view.groups[0].kind == "all":
        return ""
    size = count(view.size, gallery.words.noun)
    which = f"all {size}" if shown == view.size else f"{integer(shown)} of {size}"
    return (
        f'<div class="group everyone" data-cluster="{view.index}" data-shown="{shown}" '
        f'data-step="{gallery.members.step}" data-nearest="{gallery.words.nearest} first" hidden>'
        f'<div class="bar"><button type="button">Show {which}</button><span class="soft">'
        f"{gallery.words.nearest} first</span></div></div>"
    )


def member_figure(
    drawing: str, sample: SampleInfo, position: int, words: Words, *, full: str, player: str = ""
) -> str:
    """A sample with what is known about it.

    Args:
        drawing: The sample, SVG.
        sample: What is known about it.
        position: Its position in the data set.
        words: What the method's figures are called.
        full: Where it is shown at full size (see `Members`), if anywhere.
        player: Plays a recording, HTML.

    Returns:
        HTML.
    """
    certainty = sample.margin if sample.certainty is None else sample.certainty
    known = f' data-certainty="{certainty:.6g}"' if math.isfinite(certainty) else ""
    label = "" if sample.label is None else f' data-label="{escape(sample.label)}"'
    # What the script sorts by: the least certain and the farthest come first.
    keys = f' data-position="{position}" data-distance="{sample.distance:.6g}"{known}{label}'
    return _figure(drawing, player + _caption(sample, words), full, keys)


def _figure(drawing: str, caption: str, full: str, attributes: str = "") -> str:
    attributes += f' data-full="{full}"' if full else ""
    return (
        f'<figure class="sample"{attributes}>{drawing}<figcaption>{caption}</figcaption></figure>\n'
    )


def _caption(sample: SampleInfo, words: Words) -> str:
    """Distance and certainty, of which the style shows what the order is by."""
    far = f"{words.distance_short} <b>{number(sample.distance, digits=3)}</b>"
    text, own = f'<span class="far">{far}</span>', sample.certainty
    if sample.has_margin:
        sure = f"margin <b>{number(sample.margin, digits=3)}</b>"
        if own is not None:
            sure = f"responsibility <b>{percent(own)}</b>"
        text += (
            f'<span class="sure">{sure}</span><span class="sure">or '
            f'<a href="#cluster-{sample.runner_up}">cluster {sample.runner_up}</a></span>'
        )
    return text + _class_line(sample)


def _class_line(sample: SampleInfo) -> str:
    if sample.label is None:
        return ""
    return f'<span class="soft class">class {escape(sample.label)}</span>'


def bridge_list(gallery: Gallery) -> str:
    """Bridges: pairs of images that are much alike and yet in different clusters, side by side.

    Args:
        gallery: What is shown.

    Returns:
        HTML; nothing where there are none.
    """
    if not gallery.bridges:
        return ""

    def figure(position: int) -> str:
        sample, cluster = gallery.samples[position], gallery.result.assignments[position]
        drawing = gallery.renderer.original(position, sample.tooltip(gallery.words))
        link = f'<span><a href="#cluster-{cluster}">cluster {cluster}</a></span>'
        return _figure(drawing, link + _class_line(sample), gallery.members.full.get(position, ""))

    listed = "".join(f"<li>{''.join(map(figure, pair))}</li>\n" for pair in gallery.bridges)
    below = " Below each are its cluster and its class."
    return (
        f'<p class="note">{plural(gallery.words.noun).capitalize()} that the graph joins most '
        "strongly although they are in different clusters, the strongest pair first: the doubtful "
        "cases."
        f"{'' if gallery.dataset.labels is None else below}</p>"
        f'<ol class="bridges">\n{listed}</ol>'
    )


def how_to_read(gallery: Gallery) -> str:
    """Explains the pictures of one sample as an example.

    Args:
        gallery: What is shown.

    Returns:
        HTML.
    """
    method, words, renderer = gallery.result.model.descriptor, gallery.words, gallery.renderer
    column, places = gallery.dataset.places
    place = {"path": ", file", "name": ", name"}[column] if any(places) else ""
    article, samples = "an" if words.noun == "image" else "a", plural(words.noun)
    known = f"index{place} and {words.distance_short}"
    if len(gallery.views) > 1:
        known = f"index{place}, {words.distance_short} and {gallery.certainty}"
    notes = (
        f'{_distance_note(gallery)}<p class="soft">Point at {article} {words.noun} for its '
        f"{known}; click it, tap it or press Enter to see it large.{gallery.note}</p>"
        f"{_files_note(gallery)}"
    )
    if not (items := renderer.legend()):
        subject = f"A {escape(method.title)}" if method.is_mixture else escape(method.title)
        return (
            f'<div class="how"><div>{subject} compares {samples} as they are. It '
            f"aligns nothing, so there are no aligned versions to show.{notes}</div></div>"
        )
    example = next(view.members[0] for view in gallery.views if view.size)
    drawing = gallery.drawing(int(example), "how")
    if names := renderer.row_names():
        drawing = f'<div class="pair">{names}{drawing}</div>'
    such_as = ", such as the background of an image" if words.noun == "image" else ""
    means = (
        ""
        if method.has_prototypes
        else f"<p>{samples.capitalize()} were not compared with prototypes: each prototype is the "
        f"mean of the aligned {samples} of a finished cluster. The alignments were made "
        "afterwards and did not decide the clusters; they may fail if a sample differs from the "
        f"mean in what they cannot change{such_as}. The distance is that to "
        f"the cluster's centre in the {words.space}, and the margin is how much farther the next "
        "centre is.</p>"
    )
    listed = "".join(f"<li>{item}</li>" for item in items)
    return f'<div class="how">{drawing}<div><ol>{listed}</ol>{means}{notes}</div></div>'


def _files_note(gallery: Gallery) -> str:
    """Says where the members are, and which of them are nowhere."""
    members, total, noun = gallery.members, len(gallery.result.assignments), gallery.words.noun
    if not members.url:
        return ""
    shown, every, more = sum(members.shown), f"Every {noun}", ""
    if shown < total:
        every = f"{integer(shown)} of {count(total, noun)}, the {gallery.words.nearest} first,"
        every += f" as many as {members.most_bytes / 1e6:g} MB hold,"
        more = "; <code>assignments.csv</code> lists all"
        if noun == "image":
            more = "; <code>diffclust export RUN --what folders --out DIR</code> writes all of them"
    return (
        f'<p class="soft">{every} can be shown below the clusters, from the folder '
        f"<code>{escape(unquote(members.url))}</code> beside this file{more}. Without the folder "
        "this file still shows all else.</p>"
    )


def _distance_note(gallery: Gallery) -> str:
    """Says what the density, or the distance to a prototype and the margin, are."""
    method, words = gallery.result.model.descriptor, gallery.words
    is_alone = len(gallery.views) == 1
    if words.is_density:
        what = f"the density of a {words.noun} in its cluster"
        if method.is_mixture:
            what = "the joint density of an image and its cluster, mixture weight included"
        certainty = (
            f" The {gallery.certainty} is how much greater it is in the second-best cluster."
        )
        if gallery.certainty == "responsibility":
            certainty = (
                " The responsibility is how probable it is, under the mixture, that the image is "
                "its cluster's."
            )
        certainty = "" if is_alone else certainty
        return (
            f"<p>The −log density is the negative logarithm of {what}: the smaller, the better the "
            f"fit, and it may well be below zero.{certainty}</p>"
        )
    if not method.has_prototypes:
        return ""
    after = ", after alignment and with its penalties" if method.has_evidence else ""
    next_one = f"that to the next {escape(words.prototype)}"
    margin = "" if is_alone else f" The {gallery.certainty} is how much greater {next_one} is."
    return f"<p>The distance is the {escape(words.distance)}{after}.{margin}</p>"
