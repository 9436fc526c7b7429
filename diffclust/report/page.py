"""The HTML page as a whole: heading, overview, the fit, bridges, the clusters."""

import base64
import dataclasses
import hashlib
from collections.abc import Mapping
from importlib import resources

from diffclust._version import __version__
from diffclust.data import Collection
from diffclust.models import Result
from diffclust.plotting import loss_history
from diffclust.report.bridges import bridge_section
from diffclust.report.clusters import cluster_list, overview, sample_control, sort_control
from diffclust.report.fit import fit_section
from diffclust.report.gallery import Gallery
from diffclust.report.reading import how_to_read
from diffclust.report.selection import Bridge
from diffclust.report.text import count, duration, escape, number, whole
from diffclust.solvers.progress import Status

_SCORES = {"acc": "accuracy", "nmi": "NMI", "ari": "ARI"}


@dataclasses.dataclass(frozen=True, eq=False)
class Content:
    """All that a report says.

    Attributes:
        title: Its heading.
        result: The fitted model.
        dataset: The data it was fitted to.
        scores: Scores against labels, by name; empty where there are none.
        seed: Seed of the run.
        gallery: The clusters and samples to show.
        bridges: Pairs of samples between clusters; empty where the method knows of none.
        between: More about the fit, by the name and the heading of its section.
        limited_to: Why groups show fewer samples than were asked for, and how many; else None.
    """

    title: str
    result: Result
    dataset: Collection
    scores: Mapping[str, float]
    seed: int
    gallery: Gallery
    bridges: list[Bridge]
    between: Mapping[tuple[str, str], str]
    limited_to: str | None


def render(content: Content) -> str:
    """The page.

    Args:
        content: What it says.

    Returns:
        A whole HTML document.
    """
    return document(
        content.title,
        f"{_header(content)}\n<main>\n{_main(content)}\n</main>",
        icon=content.gallery.painter.icon,
        body_class=_body_class(content),
    )


def document(title: str, body: str, *, icon: str, body_class: str = "") -> str:
    """A whole page that needs no network and, by its own policy, gets none.

    Args:
        title: Its title, any text.
        body: HTML of what it shows.
        icon: A small picture that stands for it, a `data:` URI.
        body_class: CSS classes of the page.

    Returns:
        A whole HTML document.
    """
    style, script = _asset("style.css"), _asset("script.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The browser itself then refuses the network, and any script but this one.
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n"
        f'<link rel="icon" type="{icon[5 : icon.index(";")]}" href="{icon}">\n'
        f"<style>\n{style}</style>\n</head>\n"
        f'<body class="{body_class}">\n{body}\n'
        f"<footer>Made by diffclust {__version__}. This file holds everything it shows "
        'and loads nothing from elsewhere.</footer>\n<output class="told" hidden></output>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return resources.files("diffclust.report").joinpath(name).read_text("utf-8")


def _main(content: Content) -> str:
    return "\n".join(
        f'<section id="{name}">\n{body}\n</section>' for name, body in _sections(content)
    )


def _sections(content: Content) -> list[tuple[str, str]]:
    """Names and HTML of the parts of the page, in their order."""
    gallery = content.gallery
    fit = fit_section(content.result, content.dataset, gallery.terms, content.seed)
    heading = f"{gallery.terms.prototype}s".capitalize()
    sections = [
        (
            "overview",
            f'<div class="bar"><h2>{heading}</h2>{sort_control(gallery, "sort-overview")}</div>'
            f"{overview(gallery)}"
            f'<p class="note">{gallery.painter.note} The bar is the size of the cluster.</p>'
            f"{gallery.painter.together()}",
        ),
        ("fit", f'<div class="bar"><h2>The fit</h2></div>{fit}'),
        (
            "clusters",
            f'<div class="bar"><h2>Clusters</h2>{sort_control(gallery, "sort-clusters")}'
            f"{sample_control(gallery)}</div>"
            f"{how_to_read(gallery, content.limited_to)}{cluster_list(gallery)}",
        ),
    ]
    more = [
        (name, f'<div class="bar"><h2>{heading}</h2></div>{body}')
        for (name, heading), body in content.between.items()
        if body
    ]
    if content.bridges:
        bridges = bridge_section(gallery, content.bridges)
        more.append(("bridges", f"<h2>Bridges</h2>{bridges}"))
    sections[2:2] = more
    return sections


def _body_class(content: Content) -> str:
    gallery = content.gallery
    return " ".join([*gallery.painter.classes, *(["many"] if gallery.folded else [])])


def _header(content: Content) -> str:
    result, terms = content.result, content.gallery.terms
    outcome = result.outcome
    course = loss_history(result)
    done, unit = (outcome.num_passes, "pass") if course is None else (course.total, course.unit)
    plural = "passes" if unit == "pass" else f"{unit}s"
    passes = {unit if done == 1 else plural: whole(done)}
    figures = {
        result.model.criterion: number(result.loss),
        **({} if outcome.status is Status.SOLVED else passes),
        "time": duration(outcome.seconds),
        **{
            _SCORES.get(name, name): f"{value:.3f}".replace("-", "−")
            for name, value in content.scores.items()
        },
    }
    listed = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in figures.items()
    )
    samples = count(len(content.dataset), terms.noun)
    clusters = count(result.model.num_clusters, "cluster")
    article = "a " if terms.is_mixture else ""
    note = (
        f'<p class="note">The labels were used for {_listed(content.scores)} only; the fit never '
        "saw them.</p>"
        if content.scores
        else ""
    )
    return (
        f'<header>\n<p class="eyebrow">diffclust report</p>\n<h1>{escape(content.title)}</h1>\n'
        f'<p class="lead">{samples} in {clusters}, found by {article}{escape(terms.method)}.</p>\n'
        f'<dl class="figures">{listed}</dl>\n{note}</header>'
    )


def _listed(scores: Mapping[str, float]) -> str:
    names = [escape(_SCORES.get(name, name)) for name in scores]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
