"""The HTML of how a fit went: its curve, its figures and its settings."""

from typing import Any

import equinox as eqx
import jax

from diffclust.data import Collection
from diffclust.masks import mask_in_words
from diffclust.models import AbstractGradientModel, AbstractImageModel, Result, ShapeKMeans
from diffclust.plotting import eigenvalue_chart, loss_curve, loss_history, training_curve
from diffclust.report.terms import Terms
from diffclust.report.text import count, escape, number, whole
from diffclust.solvers.progress import Status

_REASONS = {
    Status.ASSIGNMENTS: "no {noun} changed its cluster",
    Status.LOSS: "the loss fell by less than the tolerance",
    Status.MAX_PASSES: "the limit on passes was reached",
    Status.SOLVED: "all stages were done, each of them once",
}

_STEP_REASONS = {
    Status.LOSS: "the loss fell by less than the tolerance in the last phase",
    Status.MAX_PASSES: "all steps were done",
}


_REGISTRATIONS = {
    "similarity": "generalised Procrustes analysis takes out place, rotation and scale",
    "rigid": "generalised Procrustes analysis takes out place and rotation, and keeps sizes",
    "none": "none, shapes are compared where they lie",
}

_VARIANCES = {
    "round": "one that all landmarks of all clusters share",
    "per_landmark": "of each landmark, the same in all clusters",
    "per_cluster": "of each landmark in each cluster",
}

_COVARIANCES = {
    "diagonal": "each coordinate by itself",
    "full": "coordinates together",
}


def _told(name: str, value: Any) -> Any:
    """A setting as a person reads it."""
    return mask_in_words(value) if name == "mask" and value is not None else value


def fit_section(result: Result, dataset: Collection, terms: Terms, seed: int) -> str:
    """What was done, with what settings, and how it went.

    Args:
        result: The fitted model.
        dataset: The data it was fitted to.
        terms: The words for it.
        seed: Seed of the run.

    Returns:
        HTML.
    """
    facts = _facts(result, dataset, terms, seed)
    listed = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    settings = "".join(
        f"<dt><code>{escape(name)}</code></dt><dd><code>{escape(_told(name, value))}</code></dd>"
        for name, value in result.model.settings().items()
    )
    listed = f'<dl class="facts">{listed}</dl>'
    folded = (
        "<details open><summary>Settings</summary>"
        f'<dl class="facts settings">{settings}</dl></details>'
    )
    course = _course(result)
    columns = (course, listed + folded) if course else (listed, folded)
    return f'<div class="run"><div>{columns[0]}</div><div>{columns[1]}</div></div>'


def _facts(result: Result, dataset: Collection, terms: Terms, seed: int) -> dict[str, object]:
    outcome = result.outcome
    by_steps = isinstance(result.model, AbstractGradientModel)
    reasons = _REASONS | _STEP_REASONS if by_steps else _REASONS
    noun = terms.noun
    facts = {
        "Data": f"{dataset.name}, {count(len(dataset), noun)}",
        **_sample_facts(result),
        "Method": f"{terms.method} ({result.model.method})",
        "Clusters": result.model.num_clusters,
        "Seed": seed,
        "Stopped because": reasons.get(outcome.status, outcome.status.value).format(noun=noun),
        f"{noun.capitalize()}s a chunk": outcome.chunk_size,
        **_step_facts(result),
        **_graph_facts(result),
    }
    if dataset.skipped:
        facts["Left out"] = f"{len(dataset.skipped)} files that could not be read"
    return facts


def _sample_facts(result: Result) -> dict[str, object]:
    """What samples are like."""
    model = result.model
    if isinstance(model, ShapeKMeans):
        return _shape_facts(result, model)
    height, width, channels = result.sample_shape
    colours = {1: "grey", 3: "RGB"}.get(channels, f"{channels} channels")
    return {"Image size": f"{height} × {width} pixels, {colours}"}


def _shape_facts(result: Result, model: ShapeKMeans) -> dict[str, object]:
    landmarks, dims = result.sample_shape
    mirrored = "; mirrored shapes are the same" if model.reflection else ""
    facts: dict[str, object] = {
        "Landmarks": f"{landmarks} in {dims} dimensions",
        "Registration": _REGISTRATIONS[model.registration] + mirrored,
        "Variances": f"{_VARIANCES[model.variances]}, {_COVARIANCES[model.covariances]}",
    }
    figures = result.outcome.figures
    if "floor" in figures:
        every = model.num_clusters * landmarks * dims
        facts["Least variance"] = (
            f"{number(figures['floor'])}, to which {whole(round(figures['floored']))} of "
            f"{whole(every)} were lifted"
        )
    return facts


def _step_facts(result: Result) -> dict[str, object]:
    """The figures of a fit by gradient steps."""
    model, outcome = result.model, result.outcome
    if not isinstance(model, AbstractGradientModel):
        return {}
    facts: dict[str, object] = {}
    course = loss_history(result)
    if course is not None and course.batch_size is not None:
        facts["Images a step"] = course.batch_size
    shared, heads = outcome.learned.shared, outcome.learned.clusters.predictor
    if shared is not None:
        facts["Network"] = (
            f"{model.backbone}, {whole(_size(shared))} weights, and for each cluster "
            f"{whole(_size(heads) // model.num_clusters)} more"
        )
    told = {
        "refills": "a cluster with hardly an image began anew as the twin of the largest",
        "moves": "a cluster was split in two and another removed, as that lowered the loss",
    }
    for name, words in told.items():
        if name in outcome.figures:
            times = round(outcome.figures[name])
            facts[name.capitalize()] = f"{count(times, 'time')} {words}" if times else "none"
    return facts


def _size(tree: object) -> int:
    """Numbers in a tree."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


def _graph_facts(result: Result) -> dict[str, object]:
    """The figures of a spectral method, each with what it means."""
    clusters, figures = result.model.num_clusters, result.outcome.figures
    facts: dict[str, object] = {}
    if "eigenvalues" not in result.outcome.extras:
        return facts
    facts[result.model.criterion.capitalize()] = (
        f"{number(result.loss)}: the share of its affinities that lead out of a cluster, summed "
        "over clusters; 0 where nothing joins them"
    )
    # Where no eigenvalue follows the K-th, there is no gap that could be told.
    if "eigengap" in figures and clusters < len(result.outcome.extras["eigenvalues"]):
        facts["Eigengap"] = (
            f"{number(figures['eigengap'])}, from eigenvalue {clusters} to the next; the wider, "
            f"the clearer it is that the clusters are {clusters}"
        )
    if "stability" in figures:
        facts["Stability"] = (
            f"{number(figures['stability'], digits=3)}, the mean adjusted Rand index between these "
            "clusters and those of every single graph that was averaged; 1 where all agree"
        )
    return facts


def _course(result: Result) -> str:
    """What stands beside the facts; nothing where there is no curve to draw."""
    outcome, clusters = result.outcome, result.model.num_clusters
    if "eigenvalues" in outcome.extras:
        eigenvalues = outcome.extras["eigenvalues"]
        chart = eigenvalue_chart(eigenvalues, clusters)
        reading = "Each group of images that hardly anything joins to the others adds one near 1."
        if clusters < len(eigenvalues):
            reading += (
                f" A drop at the dashed line, after the first {clusters}, speaks for "
                f"{count(clusters, 'cluster')}; a larger one elsewhere for another number."
            )
        return f'<h3>Leading eigenvalues of the graph</h3>{chart}<p class="note">{reading}</p>'
    if outcome.status is Status.SOLVED:
        return ""
    course = loss_history(result)
    if course is None:
        loss = result.model.criterion.capitalize()
        return f"<h3>{loss} after each pass</h3>{loss_curve(result.history)}{_restarts(result)}"
    averaged = (
        f"the mean over {count(course.window, 'step')}"
        if course.window is not None
        else "the mean over a window of steps"
    )
    phases = [name for _, name in course.phases if name]
    marks = " Dashed lines stand where phases begin." if phases else ""
    return (
        f"<h3>Loss in the course of the {course.unit}s</h3>{training_curve(course)}"
        f'<p class="note">Each dot is {averaged}, times the number of images; the ring is the '
        f"loss of all images in the end.{marks}</p>{_restarts(result)}"
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
    factor, loss = _coarsening(result), result.model.criterion
    where = (
        f" They ran on images {factor} times coarser, where the loss is another one; the one kept "
        "was then finished on the images themselves."
        if factor > 1
        else ""
    )
    return (
        f'<div class="restarts"><h3>Final {loss} of {count(len(losses), "restart")}</h3>'
        f'<ol>{listed}</ol><p class="note">The one of least {loss} is kept.{where}</p></div>'
    )


def _coarsening(result: Result) -> int:
    model = result.model
    if not isinstance(model, AbstractImageModel):
        return 1
    return model.coarsening(*result.sample_shape[:2])
