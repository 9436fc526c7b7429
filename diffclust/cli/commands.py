"""`diffclust fit`, `predict` and `demo`."""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from diffclust import metrics
from diffclust._validation import some
from diffclust.analysis import COMPARABLE, CommonStart, fit_from_common_start
from diffclust.cli import runs, samples
from diffclust.cli.distributed import Processes
from diffclust.cli.estimate import announce_long_fit, describe_fit
from diffclust.cli.options import Demo, Fit, Predict, Sweep
from diffclust.cli.progress_bar import ProgressBar
from diffclust.cli.resume import SavedStates
from diffclust.cli.summary import print_summary
from diffclust.data import Collection, load_mask
from diffclust.image_source import ImageSource
from diffclust.methods import METHODS
from diffclust.models import MODELS, AbstractModel, Result
from diffclust.plotting import Film, save_prototypes
from diffclust.report import write_report
from diffclust.report.maps import check_map_samples
from diffclust.solvers import Callback, Progress
from diffclust.solvers.result import ignore
from diffclust.storage import checkpoint

_LARGEST_SEED = 2**32 - 1
"""Larger ones need JAX's double precision."""

_SOURCE = ("source", "split", "limit", "rate", "seconds")
"""Options that say what was read, which a summary keeps."""


def fit(options: Fit, *, command: str = "fit") -> None:
    """Clusters images or shapes and writes a run.

    Several processes that were given the same command fit together; process 0 writes.

    Args:
        options: What was asked for.
        command: What the run is said to be; a run of another command than `fit` is replaced only
            by its like.

    Raises:
        ValueError: If it cannot be done, here or in another process.
        FitError: If the fit breaks down.
        OSError: If something cannot be read or written.
    """
    check_options(options)
    processes = Processes(options)
    with contextlib.ExitStack() as stack:
        folder = states = None
        with processes.raise_everywhere():
            model, methods = make_model(options), _methods_to_compare(options)
            bar = ProgressBar(model.num_restarts)
            if options.dry_run:
                dataset = samples.load_samples(options, model, stack.enter_context(bar))
                print(describe_fit(options, model, dataset, bar))
                return
            if processes.is_first:
                states = SavedStates(options, model)
            if states is not None and not states.is_done():
                kind = None if command == "fit" else command
                inputs, replace = samples.inputs_of(options), options.overwrite
                run = runs.new_run(options.out, overwrite=replace, inputs=inputs, command=kind)
                folder = stack.enter_context(run)
                stack.enter_context(bar)
        if not processes.first_says(folder is not None):
            if states is not None:
                states.remove()
                print(f"{options.out} holds a finished run; there is nothing to go on with")
            return
        result, dataset, about = _fit(options, model, methods, processes, states, bar, stack)
        with processes.raise_everywhere():
            summary: dict[str, Any] = {}
            if folder is not None:
                bar.show("writing")
                checkpoint.save(folder / "model", result)
                about |= {"command": command, "more": processes.describe()}
                summary = write_run(folder, result, dataset, options, **about)
    if states is not None:
        states.remove()
        _finish(options.out, result, dataset, summary)


def _fit(
    options: Fit,
    model: AbstractModel,
    methods: list[str],
    processes: Processes,
    states: SavedStates | None,
    bar: ProgressBar,
    stack: contextlib.ExitStack,
) -> tuple[Result, Collection, dict[str, Any]]:
    """The fit, all samples, and what the report shows beside; states are saved until the end."""
    own, dataset = processes.load_samples(options, model, bar)
    if processes.mesh is None:
        announce_long_fit(options, model, dataset, bar)
    with processes.raise_everywhere():
        arguments, saved = samples.sample_arguments(options, dataset), None
        if states is not None:
            saved = stack.enter_context(states.snapshots(dataset, arguments))
    film, others, key = None if options.no_report else Film(), None, jax.random.key(options.seed)
    # The fit is given the samples and nothing else: it never sees labels.
    result = model.fit(
        own.samples,
        key=key,
        chunk_size=options.chunk_size,
        callback=_callback(dataset, bar, film) if processes.is_first else ignore,
        snapshots=processes.snapshots(saved),
        mesh=processes.mesh,
        **processes.own_part(arguments, own, dataset),
    )
    if methods:
        weight = arguments.get("sample_weight")
        others = fit_from_common_start(
            result, dataset.samples, methods, key=key, sample_weight=weight, callback=bar
        )
    return result, dataset, {"film": film, "others": others}


def _callback(dataset: Collection, bar: ProgressBar, film: Film | None) -> Callback:
    """What follows the fit; where images are larger than memory, free memory is given back."""
    trimmer = samples.MemoryTrimmer() if isinstance(dataset.samples, ImageSource) else None
    callbacks = [callback for callback in (trimmer, bar, film) if callback is not None]

    def call_all(progress: Progress) -> None:
        for callback in callbacks:
            callback(progress)

    return call_all


def _methods_to_compare(options: Fit) -> list[str]:
    """The methods whose prototypes are laid beside those of the fit."""
    if options.compare_with is None:
        return []
    methods = [name.strip() for name in options.compare_with.split(",")]
    if options.method not in COMPARABLE:
        raise ValueError(
            f"--compare-with is for {', '.join(COMPARABLE)}, not for {options.method}; leave it out"
        )
    if options.no_report:
        raise ValueError("--compare-with is shown in the report; leave out --no-report")
    others = [name for name in COMPARABLE if name != options.method]
    if len(set(methods)) != len(methods) or not set(methods) <= set(others):
        raise ValueError(
            f"--compare-with takes {' or '.join(others)} with {options.method}, once each, not "
            f"{options.compare_with!r}"
        )
    return methods


def predict(options: Predict) -> None:
    """Assigns images or shapes to the clusters of a saved model and writes a run.

    Args:
        options: What was asked for.

    Raises:
        ValueError: If it cannot be done.
        OSError: If something cannot be read or written.
    """
    check_options(options)
    options = samples.as_fitted(options)
    inputs = [options.source, options.model]
    with (
        runs.new_run(options.out, overwrite=options.overwrite, inputs=inputs) as folder,
        ProgressBar() as bar,
    ):
        fitted = checkpoint.load(options.model)
        dataset = samples.load_samples(options, fitted, bar)
        start = time.perf_counter()
        assignment = fitted.predict(dataset.samples, callback=bar)
        figures = {
            "method": fitted.model.method,
            "k": fitted.model.num_clusters,
            "n": len(dataset),
            "loss": float(np.sum(assignment.distances, dtype=np.float64)),
            "iterations": 0,
            "status": "predicted",
            "chunk_size": fitted.outcome.chunk_size,
            "seconds": time.perf_counter() - start,
        }
        # Bridges are pairs of the images that were fitted, and certainties theirs, not of these.
        of_the_fit = ("bridges", "certainties")
        extras = {n: a for n, a in fitted.outcome.extras.items() if n not in of_the_fit}
        outcome = dataclasses.replace(fitted.outcome, assignment=assignment, extras=extras)
        result = dataclasses.replace(fitted, outcome=outcome)
        bar.show("writing")
        title = f"{dataset.name}, assigned by a model that was fitted before"
        more = {"model": options.model}
        about = {"command": "predict", "figures": figures, "more": more, "title": title}
        summary = write_run(folder, result, dataset, options, **about)
    _finish(options.out, result, dataset, summary)


def demo(options: Demo) -> None:
    """Clusters the digits that scikit-learn bundles with DI K-means.

    Args:
        options: What was asked for.

    Raises:
        ValueError: If the folder holds anything but an earlier demo.
        OSError: If something cannot be written.
    """
    fit(
        Fit("digits", 10, options.out, method="di-kmeans", seed=options.seed, overwrite=True),
        command="demo",
    )


def make_model(options: Fit) -> AbstractModel:
    """The model that was asked for.

    Args:
        options: What was asked for.

    Returns:
        A model, its own defaults in place of what was not given.

    Raises:
        ValueError: If a setting or an option means nothing to the method.
    """
    model, method = MODELS[options.method], METHODS[options.method]
    # The name in messages of the model is the field's.
    if options.clusters < 1:
        raise ValueError(f"-k must be at least 1, not {options.clusters}")
    settings = {"num_clusters": options.clusters, **options.settings}
    if options.start is not None and not method.takes_start:
        raise ValueError(f"{options.method} cannot begin with clusters; leave out --start")
    if options.mask is not None:
        if method.sample_kind == "shape":
            raise ValueError(f"{options.method} clusters shapes and takes no --mask; leave it out")
        settings["mask"] = load_mask(options.mask, samples.size_of(options))
    return model.from_settings(settings)


def check_options(options: Fit | Predict | Sweep) -> None:
    """Refuses numbers that nothing can be done with.

    Args:
        options: What was asked for.

    Raises:
        ValueError: If the seed or the number of images on the maps is out of range.
    """
    if not 0 <= options.seed <= _LARGEST_SEED:
        raise ValueError(f"--seed must be between 0 and {_LARGEST_SEED}, not {options.seed}")
    check_map_samples(options.maps, "--maps")


def write_run(
    folder: Path,
    result: Result,
    dataset: Collection,
    options: Fit | Predict,
    *,
    command: str = "fit",
    figures: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
    title: str | None = None,
    film: Film | None = None,
    others: CommonStart | None = None,
) -> dict[str, Any]:
    """Writes what all runs have in common: table, prototypes, report and summary.

    Args:
        folder: Where.
        result: The clusters.
        dataset: The samples.
        options: What was asked for.
        command: What the run is said to be.
        figures: The figures of the run; those of the fit where they are not given.
        more: What the summary holds beside them.
        title: Heading of the report, or None for the data's name.
        film: Prototypes in the course of the fit, for the report.
        others: Fits of other methods, for the report.

    Returns:
        The summary.
    """
    scores = {}
    if dataset.labels is not None:
        scores = metrics.scores(dataset.labels, result.assignments)
    summary = {
        **(result.summary() if figures is None else figures),
        "seed": options.seed,
        "peak_memory_mb": runs.peak_memory_mb(),
        **scores,
        "command": command,
        "settings": result.model.settings(),
        "source": {
            **{name: getattr(options, name) for name in _SOURCE},
            **{name: getattr(options, name, None) for name in ("weights", "start")},
            "sample_shape": result.sample_shape,
            "skipped": dataset.skipped,
        },
        **runs.environment(),
        **(more or {}),
    }
    runs.write_assignments(folder, dataset, result.outcome.assignment)
    save_prototypes(folder / "prototypes.png", result)
    if not options.no_report:
        samples.trim_memory()
        write_report(
            folder / "report.html",
            result,
            dataset,
            scores=scores or None,
            seed=options.seed,
            title=title,
            film=film,
            others=others,
            map_samples=options.maps,
        )
    runs.write_summary(folder, summary)
    return summary


def _finish(out: str, result: Result, dataset: Collection, summary: dict[str, Any]) -> None:
    """Names the files that were left out, and prints the summary."""
    if dataset.skipped:
        names = some(map(repr, dataset.skipped))
        print(f"skipped {len(dataset.skipped)} unreadable files: {names}", file=sys.stderr)
    print_summary(out, result, dataset, summary)
