"""Writing the report of a fit."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from diffclust import _validation
from diffclust.analysis import CommonStart
from diffclust.data import Collection, Dataset, LandmarkSet, Recordings, SeriesSet
from diffclust.methods import plural
from diffclust.models import Result
from diffclust.plotting import Film, loss_history
from diffclust.plotting.series import MOST_POINTS
from diffclust.report import clusters, sections, selection, sounds
from diffclust.report.fit import fit_section
from diffclust.report.images import ImageRenderer
from diffclust.report.members import MOST_BYTES, member_files
from diffclust.report.page import contents, document, figure_list, section
from diffclust.report.series import SeriesRenderer
from diffclust.report.shapes import ShapeRenderer, affordable_shapes
from diffclust.report.text import SCORES, count, duration, escape, integer, number, percent
from diffclust.solvers.result import Status
from diffclust.storage.staging import staged_file

_MEANINGS = {
    "acc": "Accuracy: the share whose cluster is the one matched to their class.",
    "nmi": "NMI: normalised mutual information, 1 where clusters are the classes.",
    "ari": "ARI: adjusted Rand index, 0 by chance, 1 where clusters are the classes.",
}


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
    members_bytes: int = MOST_BYTES,
) -> None:
    """Writes one HTML file that shows a fit and needs nothing else, no network either.

    All members of the clusters are written into a folder beside it, `report_files` for
    `report.html`, which it loads from when somebody asks for them.

    It holds the prototypes, how the fit went, the doubtful pairs of images between clusters where
    the method has any, and for each cluster its nearest, farthest, random and least certain
    samples, each beside its aligned version and its warped grid, or beside the prototype as it is
    moved onto the image. Shapes are drawn over the mean shape that they are in, with the ellipses
    of its landmarks. Large images are made smaller, so that with 10 clusters and 6 samples a group
    the file stays below 1.5 MB; sounds of recordings add 4 MB at most.

    Args:
        path: The file; one that exists is replaced.
        result: A fitted model.
        dataset: The samples it was fitted to, in the same order, with what is known about
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
        members_bytes: Size of the folder with all members at most, in bytes; 0 for no folder.

    Raises:
        ValueError: If the data set is not the one that was fitted, `samples_per_group` is below
            1, `map_samples` is not between 0 and 2,000, `members_bytes` is negative, or the
            folder's name is taken by something that no report wrote.
    """
    _validation.count(samples_per_group, "samples_per_group")
    _validation.count(members_bytes, "members_bytes", least=0)
    if not isinstance(dataset, Dataset | LandmarkSet | SeriesSet):
        raise ValueError(
            "the report needs a data set, such as Dataset(images) or SeriesSet(series) of "
            f"diffclust.data, not {type(dataset).__name__}"
        )
    fitted, noun = (len(result.assignments), *result.sample_shape), result.model.words.noun
    count, *shape = dataset.samples.shape
    if (count, *result.model.registered_shape(tuple(shape))) != fitted:
        raise ValueError(
            f"the report needs the {plural(noun)} that were fitted, of shape {fitted}; this data "
            f"set has {plural(dataset.noun)} of shape {dataset.samples.shape}"
        )
    sections.check_map_samples(map_samples, "map_samples")
    title = dataset.name if title is None else title
    header = _header(title, result, dataset, scores or {})
    predicted = result.outcome.status is Status.PREDICTED
    starts = sections.common_start_rows(result, dataset, others)
    maps = sections.map_section(result, dataset, others, most=map_samples, seed=seed)
    summary = {
        "fit": ("The prediction" if predicted else "The fit", fit_section(result, dataset, seed)),
        "film": ("Prototypes during the fit", sections.film_section(result, film)),
        "starts": ("Other methods from the same start", starts),
        "confusion": ("Classes and clusters", sections.confusion_table(result, dataset)),
        "maps": ("Maps", maps),
    }
    gallery = _gallery(result, dataset, samples_per_group, seed)
    files = member_files(path, gallery, members_bytes)
    with files as gallery, staged_file(path, overwrite=True) as file:
        file.write_text(_page(title, header, summary, gallery), encoding="utf-8")


def _page(
    title: str, header: str, summary: Mapping[str, tuple[str, str]], gallery: clusters.Gallery
) -> str:
    """The report as HTML, given headings and HTML of the sections that are of no single cluster."""
    first, second = (clusters.cluster_order(gallery, f"sort-{n}") for n in ("overview", "clusters"))
    parts = {
        "overview": (plural(gallery.words.prototype).capitalize(), clusters.overview(gallery)),
        **summary,
        "bridges": ("Alike, yet in different clusters", clusters.bridge_list(gallery)),
        "clusters": ("Clusters", clusters.how_to_read(gallery) + clusters.cluster_list(gallery)),
    }
    controls = {"overview": first, "clusters": f"{second}{clusters.sample_order(gallery)}"}
    header += contents({name: heading for name, (heading, body) in parts.items() if body})
    sheets = [section(name, *part, controls.get(name, "")) for name, part in parts.items()]
    classes = [*gallery.renderer.css_classes, *["many"] * gallery.folded]
    icon, url = gallery.renderer.icon, gallery.members.url
    return document("report", title, header, sheets, icon=icon, css_classes=classes, files=url)


def _gallery(result: Result, dataset: Collection, wanted: int, seed: int) -> clusters.Gallery:
    """Collects what is shown of the clusters, with as many samples as the file can hold."""
    points, what = 0, "landmarks"
    if isinstance(dataset, LandmarkSet):
        points = result.sample_shape[0]
    elif isinstance(dataset, SeriesSet):
        points, what = min(result.sample_shape[0], MOST_POINTS) * result.sample_shape[1], "values"
    most = affordable_shapes(points, selection.MOST_SAMPLES)
    many = "clusters" if most == selection.MOST_SAMPLES else what
    groups = selection.NUM_KINDS * result.model.num_clusters
    affordable = max(1, min(wanted, most // groups))
    views = selection.select(result, samples_per_group=affordable, seed=seed)
    shown = [group.positions for view in views for group in view.groups]
    bridges = selection.select_bridges(result)
    positions = np.unique(np.concatenate([*shown, np.ravel(bridges).astype(np.int64)]))
    if isinstance(dataset, Dataset):
        renderer = ImageRenderer(result, dataset, positions)
    elif isinstance(dataset, SeriesSet):
        renderer = SeriesRenderer(result, dataset, seed=seed)
    else:
        renderer = ShapeRenderer(result, dataset, seed=seed)
    samples = selection.sample_info(result, dataset, positions)
    note = f" With so many {many}, each group shows {affordable}." * (affordable < wanted)
    players = {}
    if isinstance(dataset, Recordings):
        players, players_note = sounds.players(dataset, views)
        note += players_note
    return clusters.Gallery(result, dataset, views, samples, renderer, bridges, note, players)


def _header(title: str, result: Result, dataset: Collection, scores: Mapping[str, float]) -> str:
    method, outcome, history = result.model.descriptor, result.outcome, loss_history(result)
    done, unit = (outcome.num_passes, "pass") if history is None else (history.total, history.unit)
    predicted = outcome.status is Status.PREDICTED
    summed = f"summed {result.model.words.distance_short}"
    figures = {summed if predicted else result.model.criterion: number(result.loss)}
    if "stability" in outcome.figures:
        # It says more than a cut does.
        figures = {"stability": number(outcome.figures["stability"], digits=3), **figures}
    if outcome.status not in (Status.SOLVED, Status.PREDICTED):
        figures[unit if done == 1 else plural(unit)] = integer(done)
    figures["time"] = duration(outcome.seconds)
    named = {SCORES.get(name, name): value for name, value in scores.items()}
    figures |= {name: f"{value:.3f}".replace("-", "−") for name, value in named.items()}
    done_by = "which were found before" if predicted else "found"
    samples = count(len(dataset), selection.words_of(result, dataset).noun)
    groups = count(result.model.num_clusters, "cluster")
    article, note = "a " if method.is_mixture else "", ""
    if "far" in outcome.figures:
        far = round(outcome.figures["far"])
        figures["far from their cluster"] = f"{integer(far)} ({percent(far / len(dataset))})"
    if named:
        *first, last = map(escape, named)
        names = " and ".join([", ".join(first), last] if first else [last])
        note = f'<p class="note">The labels were used for {names} only; the fit never saw them.'
        note += "".join(f" {meaning}" for name, meaning in _MEANINGS.items() if name in scores)
        note += "</p>"
    return (
        f'<h1>{escape(title)}</h1>\n<p class="lead">{samples} in {groups}, {done_by} by {article}'
        f"{escape(method.title)}.</p>\n{figure_list(figures)}\n{note}"
    )
