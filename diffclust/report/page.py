"""The HTML page as a whole: heading, overview, the fit, the clusters."""

import base64
import dataclasses
import hashlib
from collections.abc import Mapping
from importlib import resources

from diffclust._version import __version__
from diffclust.data import Dataset
from diffclust.models import Result
from diffclust.plotting import loss_curve
from diffclust.report.clusters import Gallery, cluster_list, drawing, overview, sort_control
from diffclust.report.samples import has_grids
from diffclust.report.text import count, duration, escape, number, whole
from diffclust.solvers.progress import Status

_METHODS = {"kmeans": "K-means", "ai-kmeans": "AI K-means", "di-kmeans": "DI K-means"}
_SCORES = {"acc": "accuracy", "nmi": "NMI", "ari": "ARI"}
_REASONS = {
    Status.ASSIGNMENTS: "no image changed its cluster",
    Status.LOSS: "the loss fell by less than the tolerance",
    Status.MAX_PASSES: "the limit on passes was reached",
}

_SMALL = 64
"""Images with no more pixels a side than this are shown pixel by pixel, larger ones smoothly."""


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
        limited_to: Samples a group where that is fewer than were asked for, else None.
    """

    title: str
    result: Result
    dataset: Dataset
    scores: Mapping[str, float]
    seed: int
    gallery: Gallery
    limited_to: int | None


def render(content: Content) -> str:
    """The page.

    Args:
        content: What it says.

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
    sections = "\n".join(
        f'<section id="{name}">\n{body}\n</section>' for name, body in _sections(content)
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(content.title)}</title>\n"
        f'<link rel="icon" type="image/png" href="{content.gallery.prototypes[0]}">\n'
        f"<style>\n{style}</style>\n</head>\n"
        f'<body class="{_body_class(content)}">\n{_header(content)}\n<main>\n{sections}\n</main>\n'
        f"<footer>Made by diffclust {__version__}. This file holds everything it shows "
        'and loads nothing from elsewhere.</footer>\n<output class="told" hidden></output>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return resources.files("diffclust.report").joinpath(name).read_text("utf-8")


def _sections(content: Content) -> list[tuple[str, str]]:
    """Names and HTML of the parts of the page, in their order."""
    gallery = content.gallery
    return [
        (
            "overview",
            f'<div class="bar"><h2>Prototypes</h2>{sort_control(gallery, "sort-overview")}</div>'
            f"{overview(gallery)}"
            '<p class="note">Each is drawn in its own range of intensities. The bar is the size '
            "of the cluster.</p>",
        ),
        ("fit", f'<div class="bar"><h2>The fit</h2></div>{_fit(content)}'),
        (
            "clusters",
            f'<div class="bar"><h2>Clusters</h2>{sort_control(gallery, "sort-clusters")}</div>'
            f"{_how(content)}{cluster_list(gallery)}",
        ),
    ]


def _body_class(content: Content) -> str:
    height, width = content.gallery.height, content.gallery.width
    classes = {
        "pixels": max(height, width) <= _SMALL,
        "tall": height > 1.5 * width,
        "wide": width > 1.5 * height,
        "many": content.gallery.folded,
    }
    return " ".join(name for name, holds in classes.items() if holds)


def _method(result: Result) -> str:
    return _METHODS.get(result.model.method, result.model.method)


def _header(content: Content) -> str:
    result = content.result
    outcome = result.outcome
    figures = {
        "loss": number(result.loss),
        "pass" if outcome.num_passes == 1 else "passes": whole(outcome.num_passes),
        "time": duration(outcome.seconds),
        **{
            _SCORES.get(name, name): f"{value:.3f}".replace("-", "−")
            for name, value in content.scores.items()
        },
    }
    listed = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in figures.items()
    )
    images = count(len(content.dataset), "image")
    clusters = count(result.model.num_clusters, "cluster")
    note = (
        f'<p class="note">The labels were used for {_listed(content.scores)} only; the fit never '
        "saw them.</p>"
        if content.scores
        else ""
    )
    return (
        f'<header>\n<p class="eyebrow">diffclust report</p>\n<h1>{escape(content.title)}</h1>\n'
        f'<p class="lead">{images} in {clusters}, found by {escape(_method(result))}.</p>\n'
        f'<dl class="figures">{listed}</dl>\n{note}</header>'
    )


def _listed(scores: Mapping[str, float]) -> str:
    names = [escape(_SCORES.get(name, name)) for name in scores]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _fit(content: Content) -> str:
    result, dataset = content.result, content.dataset
    outcome = result.outcome
    height, width, channels = result.image_shape
    colours = {1: "grey", 3: "RGB"}.get(channels, f"{channels} channels")
    facts = {
        "Data": f"{dataset.name}, {count(len(dataset), 'image')}",
        "Image size": f"{height} × {width} pixels, {colours}",
        "Method": f"{_method(result)} ({result.model.method})",
        "Clusters": result.model.num_clusters,
        "Seed": content.seed,
        "Stopped because": _REASONS.get(outcome.status, outcome.status.value),
        "Images a chunk": outcome.chunk_size,
    }
    if dataset.skipped:
        facts["Left out"] = f"{len(dataset.skipped)} files that could not be read"
    settings = "".join(
        f"<dt><code>{escape(name)}</code></dt><dd><code>{escape(value)}</code></dd>"
        for name, value in result.model.settings().items()
    )
    listed = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    return (
        f'<div class="run"><div><h3>Loss after each pass</h3>{loss_curve(result.history)}'
        f'{_restarts(result)}</div><div><dl class="facts">{listed}</dl>'
        "<details open><summary>Settings</summary>"
        f'<dl class="facts settings">{settings}</dl></details></div></div>'
    )


def _restarts(result: Result) -> str:
    losses = result.outcome.restarts
    if len(losses) == 1:
        return '<p class="note">One run, so there are no restarts to choose from.</p>'
    kept = min(range(len(losses)), key=losses.__getitem__)
    listed = "".join(
        f"<li{' class=kept' if i == kept else ''}>{number(loss)}{' (kept)' if i == kept else ''}"
        "</li>"
        for i, loss in enumerate(losses)
    )
    factor = result.model.coarsening(*result.image_shape[:2])
    where = (
        f" They ran on images {factor} times coarser, where the loss is another one; the one kept "
        "was then finished on the images themselves."
        if factor > 1
        else ""
    )
    return (
        f'<div class="restarts"><h3>Final loss of {count(len(losses), "restart")}</h3>'
        f'<ol>{listed}</ol><p class="note">The one of least loss is kept.{where}</p></div>'
    )


def _how(content: Content) -> str:
    gallery = content.gallery
    limit = (
        f" With so many clusters, each group shows {content.limited_to}."
        if content.limited_to is not None
        else ""
    )
    hover = "Point at an image, or tap it, for its index, file, distance and margin." + limit
    shown = next((view.groups[0] for view in gallery.views if view.groups), None)
    sample = None if shown is None else gallery.samples[int(shown.positions[0])]
    if sample is None or sample.aligned is None:
        why = (
            f"{escape(_method(content.result))} compares images pixel by pixel, as they are. It "
            "aligns nothing, so there are no aligned versions to show."
        )
        return f'<div class="how"><div>{why}<p class="soft">{hover}</p></div></div>'
    grid = (
        "<li>The image again, with the grid along which its aligned version was read. A straight, "
        "regular grid means that nothing had to move.</li>"
        if has_grids(content.result)
        else ""
    )
    return (
        f'<div class="how">{drawing(gallery, sample, "how")}<div><ol>'
        "<li>The image as it came.</li>"
        "<li>The image aligned to the prototype of its cluster: this is what is compared.</li>"
        f'{grid}</ol><p class="soft">{hover}</p></div></div>'
    )
