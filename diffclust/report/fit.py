"""The HTML of how a fit went: its curve, its figures and its settings."""

from collections.abc import Mapping

import equinox as eqx
import jax
import numpy as np

from diffclust.analysis import describe_movement
from diffclust.data import Collection, LandmarkSet, Recordings, SeriesSet
from diffclust.masks import mask_in_words
from diffclust.methods import plural
from diffclust.models import Result
from diffclust.parallel import Description
from diffclust.plotting import eigenvalue_chart, loss_curve, loss_history, training_curve
from diffclust.report.selection import coarsening, words_of
from diffclust.report.text import (
    CHANGES,
    count,
    describe_empty,
    describe_frames,
    escape,
    integer,
    number,
    unsteady,
)
from diffclust.solvers.result import Outcome, Status, best_restart

_REASONS = {
    Status.ASSIGNMENTS: "no {noun} changed its cluster",
    Status.LOSS: "the loss fell by less than the tolerance",
    Status.MAX_PASSES: "the limit on passes was reached",
    Status.ROSE: "the loss rose, so that the pass before was kept: new prototypes do not lower it",
}

_STEP_REASONS = {
    Status.LOSS: "the loss fell by less than the tolerance in the last phase",
    Status.MAX_PASSES: "all steps were done",
}

_NOT_GIVEN = {
    "mask": "all pixels",
    "window": "all pixels alike",
    "learning_rate": "none: preconditioned L-BFGS",
    "tolerance": "none: all passes",
    "shortlist": "all clusters",
    "followed": "all components",
    "prior": "the distance's",
}
"""What settings of no number mean."""


def fit_section(result: Result, dataset: Collection, seed: int) -> str:
    """Describes the fit: its settings and its course.

    Args:
        result: The fitted model.
        dataset: The data it was fitted to.
        seed: Seed of the run.

    Returns:
        HTML.
    """
    figures = {name: escape(value) for name, value in _figures(result, dataset, seed).items()}
    settings = {
        f"<code>{escape(name)}</code>": f"<code>{escape(value)}</code>"
        for name, value in _settings(result).items()
    }
    listed, folded = _listed(figures, "facts"), _listed(settings, "facts settings")
    folded = f"<details><summary>Settings</summary>{folded}</details>"
    curve = _curve(result, words_of(result, dataset).noun)
    columns = (curve, listed + folded) if curve else (listed, folded)
    return f'<div class="run"><div>{columns[0]}</div><div>{columns[1]}</div></div>'


def _settings(result: Result) -> dict[str, object]:
    """The settings, and of those that were left to the method what they came to."""
    sample, count = jax.ShapeDtypeStruct(result.sample_shape, "float32"), len(result.assignments)
    is_fit = result.outcome.status is not Status.PREDICTED
    # What a setting came to may depend on how many samples were fitted, which are not these here.
    open_ones = "not used" if is_fit else "as in the fit"
    description = Description(sample, count, count, False)
    used = result.model.automatic_settings(description) if is_fit else {}
    settings = {}
    for name, value in result.model.settings().items():
        if name == "mask" and value is not None:
            value = mask_in_words(value)
        elif value is None:
            value = used.get(name, _NOT_GIVEN.get(name, open_ones))
        settings[name] = value
    return settings


def _listed(items: Mapping[str, str], css_class: str) -> str:
    terms = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in items.items())
    return f'<dl class="{css_class}">{terms}</dl>'


def _figures(result: Result, dataset: Collection, seed: int) -> dict[str, object]:
    """Figures of the fit, by name."""
    model, outcome, noun = result.model, result.outcome, words_of(result, dataset).noun
    reasons = _REASONS | (_STEP_REASONS if model.descriptor.solver == "gradient" else {})
    described, measured = model.describe(), outcome.figures
    at_once = min(outcome.chunk_size, len(dataset))
    network = described.pop("Network", "")
    figures: dict[str, object] = {"Data": f"{dataset.name}, {count(len(dataset), noun)}"}
    figures |= {**_size(result, dataset), **described}
    if tried := describe_frames(measured):
        name = "Registered images" if "registered_stability" in measured else "Frames tried"
        figures[name] = tried[0].upper() + tried[1:]
    if "floor" in measured:
        # Variances that all clusters share are counted once.
        shared = getattr(model, "variances", "per_cluster") != "per_cluster"
        among = result.prototypes[0] if shared else result.prototypes
        figures["Least variance"] = (
            f"{number(measured['floor'])}, to which {integer(round(measured['num_clipped']))} of "
            f"{integer(among.size)} were raised"
        )
    figures |= {
        "Method": f"{model.descriptor.title} ({model.method})",
        "Clusters": model.num_clusters,
        "Seed": seed,
        **_ending(outcome, len(dataset), reasons, noun),
        f"{plural(noun).capitalize()} in memory at once": integer(at_once),
    }
    history = loss_history(result)
    if history is not None and history.batch_size is not None:
        figures["Batch size"] = history.batch_size
    if outcome.learned.shared is not None:
        heads = _num_weights(outcome.learned.clusters.predictor) // model.num_clusters
        figures["Network"] = (
            f"{network}, {integer(_num_weights(outcome.learned.shared))} weights, and for each "
            f"cluster {integer(heads)} more"
        )
    predicted = outcome.status is Status.PREDICTED
    if not predicted and (empty := describe_empty(result.counts, noun)):
        figures["Empty"] = empty
    for name, words in CHANGES.items():
        if name in measured:
            figures[words.capitalize()] = count(round(measured[name]), "time")
    if moved := describe_movement(measured, noun):
        figures["Movement"] = moved
    if "eigenvalues" in outcome.extras:
        figures |= _graph_figures(result)
    if dataset.skipped:
        figures["Left out"] = f"{count(len(dataset.skipped), noun)}, unreadable or blank"
    return figures


def _size(result: Result, dataset: Collection) -> dict[str, str]:
    """The size of a sample in words."""
    if isinstance(dataset, LandmarkSet):
        return {"Landmarks": "{} in {} dimensions".format(*result.sample_shape)}
    if isinstance(dataset, SeriesSet):
        length, channels = result.sample_shape
        return {"Length": f"{count(length, 'value')} of {count(channels, 'channel')}"}
    given = result.sample_shape if result.given_shape is None else result.given_shape
    size = _pixels(*given)
    if isinstance(dataset, Recordings):
        pitches = f"pitches up to {dataset.rate / 2000:g} kHz, evenly spaced in mel"
        size += f": {pitches}, and {dataset.seconds:g} s"
    if given != result.sample_shape:
        size += f"; registered: {_pixels(*result.sample_shape)}"
    return {"Image size": size}


def _pixels(height: int, width: int, channels: int) -> str:
    colours = {1: "grey", 3: "RGB"}.get(channels, f"{channels} channels")
    return f"{height} × {width} pixels, {colours}"


def _ending(
    outcome: Outcome, count_all: int, reasons: Mapping[Status, str], noun: str
) -> dict[str, str]:
    """Why a fit stopped; of a prediction, how many samples are far from their cluster."""
    if outcome.status is not Status.PREDICTED:
        reason = reasons.get(outcome.status, "").format(noun=noun)
        return {"Stopped because": reason} if reason else {}
    if "far" not in outcome.figures:
        return {}
    far, usual = count(round(outcome.figures["far"]), noun), outcome.figures["far_usual"]
    return {
        "Far from their cluster": f"{far}: farther than {1 - usual / count_all:.0%} of the "
        f"{plural(noun)} that were fitted to it, which {usual / count_all:.0%} would be by chance"
    }


def _num_weights(tree: object) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


def _graph_figures(result: Result) -> dict[str, str]:
    """The figures of a spectral method, each with what it means."""
    clusters, figures = result.model.num_clusters, result.outcome.figures
    texts = {
        result.model.criterion.capitalize(): f"{number(result.loss)}: the share of its affinities "
        "that lead out of a cluster, summed over clusters; 0 where nothing joins them"
    }
    # Where no eigenvalue follows the K-th, there is no gap to report.
    if "eigengap" in figures and clusters < len(result.outcome.extras["eigenvalues"]):
        texts["Eigengap"] = (
            f"{number(figures['eigengap'])}, from eigenvalue {clusters} to the next; the wider, "
            f"the clearer it is that the clusters are {clusters}"
        )
    usual = getattr(result.model, "neighbour_numbers", ())
    if (taken := result.outcome.extras.get("num_neighbours")) is not None and (*taken,) != usual:
        texts["Neighbours"] = f"{', '.join(map(str, taken))}; clusters by half as many are unsteady"
    if (vectors := figures.get("eigenvectors", clusters)) > clusters:
        texts["Eigenvectors"] = (
            f"{integer(round(vectors))}, more than clusters, and weighted: these clusters agree "
            f"better with those of the single graphs than those by {integer(clusters)} do"
        )
    if "stability" in figures:
        least = figures.get("least_stability")
        texts["Stability"] = (
            f"{number(figures['stability'], digits=3)}: how alike these clusters are and those of "
            "each averaged graph alone, as a mean adjusted Rand index; 0 by chance, 1 where all "
            f"agree. {'' if least is None else f'The least is {number(least, digits=3)}. '}"
            f"{unsteady(figures['stability'])}"
        )
    return texts


def _curve(result: Result, noun: str) -> str:
    """The curve of the losses, or of eigenvalues; nothing where there is none to draw."""
    outcome, clusters, samples = result.outcome, result.model.num_clusters, plural(noun)
    if "eigenvalues" in outcome.extras:
        eigenvalues = outcome.extras["eigenvalues"]
        chart = eigenvalue_chart(eigenvalues, clusters)
        note = f"As many are near 1 as there are groups of {samples} with hardly an edge to others."
        if clusters < len(eigenvalues):
            note += (
                f" A drop at the dashed line, after the first {clusters}, speaks for "
                f"{count(clusters, 'cluster')}; a larger one elsewhere for another number."
            )
        return f'<h3>Leading eigenvalues of the graph</h3>{chart}<p class="note">{note}</p>'
    if outcome.status in (Status.SOLVED, Status.PREDICTED):
        return ""
    history = loss_history(result)
    if history is None:
        loss = result.model.criterion.capitalize()
        curve = loss_curve(result.history)
        return f"<h3>{loss} after each pass</h3>{curve}{_moves(result)}{_restarts(result, noun)}"
    window = "a window of steps"
    if history.window is not None:
        steps = np.diff((0, *history.ends))
        window = "at most " * bool((steps < steps.max()).any()) + count(int(steps.max()), "step")
    marks = any(name for _, name in history.phases)
    dashed = " Dashed lines stand where phases begin." if marks else ""
    return (
        f"<h3>Loss in the course of the {history.unit}s</h3>{training_curve(history)}"
        f'<p class="note">Each dot is the mean over {window}, times the number of {samples}; the '
        f"ring is the loss of all {samples} in the end.{dashed}</p>"
        f"{_restarts(result, noun)}"
    )


def _moves(result: Result) -> str:
    """Explains where the loss rises by moves of clusters; nothing where it does not."""
    model, losses = result.model, np.asarray(result.history)
    settings, is_coarse = model.settings(), coarsening(result) > 1
    # The passes that are drawn are without moves then, or with several losses.
    if not settings.get("split_merge") or settings.get("penalty_rounds") or is_coarse:
        return ""
    if model.num_clusters < 3 or not (np.diff(losses) > 1e-4 * np.abs(losses[:-1])).any():
        return ""
    return (
        '<p class="note">Where the loss rises, a cluster was split in two and another one removed. '
        "Such moves are kept only where the loss is then lower than it was before.</p>"
    )


def _restarts(result: Result, noun: str) -> str:
    losses, where, loss = result.outcome.restarts, "", result.model.criterion
    if (factor := coarsening(result)) > 1:
        where = f"on {plural(noun)} {factor} times coarser, where the {loss} is another one; "
    if len(losses) == 1:
        note = "One run, so there are no restarts to choose from."
        if where:
            note += f" It began {where}the passes above are those on the {plural(noun)} themselves."
        return f'<p class="note">{note}</p>'
    texts = [f"<li>{number(loss)}</li>" for loss in losses]
    best = best_restart(losses)
    texts[best] = f"<li class=kept>{number(losses[best])} (kept)</li>"
    if where:
        where = f" They ran {where}the one kept was then finished on the {plural(noun)} themselves."
    return (
        f'<div class="restarts"><h3>Final {loss} of {count(len(losses), "restart")}</h3>'
        f'<ol>{"".join(texts)}</ol><p class="note">The one of least {loss} is kept.{where}</p>'
        "</div>"
    )
