"""What the commands do."""

import dataclasses
import sys
import time
from inspect import signature
from pathlib import Path
from typing import Any

import jax
import numpy as np

from diffclust import metrics
from diffclust._validation import some
from diffclust.cli.allocator import Trimming, trim
from diffclust.cli.findings import show_findings
from diffclust.cli.options import Demo, Fit, Predict
from diffclust.cli.outlook import tell_if_long, would_take
from diffclust.cli.pictures import Pictures
from diffclust.cli.progress_bar import ProgressBar
from diffclust.cli.run_folder import (
    environment,
    new_run,
    peak_memory_mb,
    write_assignments,
    write_summary,
)
from diffclust.cli.samples import (
    as_fitted,
    check_samples,
    given_with,
    inputs_of,
    load_images,
    load_shapes,
    size_of,
)
from diffclust.cli.unfinished import Unfinished
from diffclust.data import Collection, load_mask
from diffclust.image_source import ImageSource
from diffclust.models import MODELS, AbstractImageModel, AbstractModel, Result
from diffclust.solvers import Callback
from diffclust.storage import checkpoint

_LARGEST_SEED = 2**32 - 1
"""Larger ones need JAX's double precision."""


def fit(options: Fit, *, command: str = "fit") -> None:
    """Clusters images or shapes and writes a run.

    Args:
        options: What was asked for.
        command: What the run is said to be; a run of another command than `fit` is replaced only
            by its like.

    Raises:
        ValueError: If it cannot be done.
        FitError: If the fit breaks down.
        OSError: If something cannot be read or written.
    """
    check_seed(options.seed)
    model = make_model(options)
    pictures = Pictures(options, model)
    size = size_of(options)
    if options.dry_run:
        with ProgressBar(model.num_restarts) as bar:
            print(would_take(options, model, _load(options, model, size, bar), bar))
        return
    unfinished = Unfinished(options, model)
    if unfinished.is_done():
        unfinished.remove()
        print(f"{options.out} holds a finished run; there is nothing to go on with")
        return
    with (
        new_run(
            options.out,
            overwrite=options.overwrite,
            inputs=inputs_of(options),
            command=None if command == "fit" else command,
        ) as folder,
        ProgressBar(model.num_restarts) as bar,
    ):
        dataset = _load(options, model, size, bar)
        tell_if_long(options, model, dataset, bar)
        given = given_with(options, dataset)
        # The fit is given the samples and nothing else: it never sees labels.
        settings = {
            "key": jax.random.key(options.seed),
            "chunk_size": options.chunk_size,
            "callback": _watched(dataset, pictures.watching(bar)),
            **given,
        }
        with unfinished.snapshots(dataset, given) as extra:
            result = model.fit(dataset.samples, **settings, **extra)
            pictures.compare(result, dataset, settings, bar)
            bar.show("writing")
            summary = summarise(options, dataset, result, command, result.summary())
            checkpoint.save(folder / "model", result)
            write_files(folder, result, dataset, summary, options, title=None, pictures=pictures)
    unfinished.remove()
    tell_skipped(dataset)
    show_findings(options.out, result, dataset, summary)


def _watched(dataset: Collection, callback: Callback) -> Callback:
    """What is told of the fit; where images are larger than memory, free memory is given back."""
    return Trimming(callback) if isinstance(dataset.samples, ImageSource) else callback


def _load(
    options: Fit, model: AbstractModel, size: tuple[int, int] | None, bar: ProgressBar
) -> Collection:
    """The samples that shall be fitted, checked."""
    if isinstance(model, AbstractImageModel):
        dataset = load_images(options, size, options.channels, bar)
    else:
        dataset = load_shapes(options)
    check_samples(model, dataset)
    return dataset


def predict(options: Predict) -> None:
    """Assigns images or shapes to the clusters of a saved model and writes a run.

    Args:
        options: What was asked for.

    Raises:
        ValueError: If it cannot be done.
        OSError: If something cannot be read or written.
    """
    check_seed(options.seed)
    options = as_fitted(options)
    pictures = Pictures(options)
    with (
        new_run(
            options.out, overwrite=options.overwrite, inputs=[options.source, options.model]
        ) as folder,
        ProgressBar() as bar,
    ):
        fitted = checkpoint.load(options.model)
        if isinstance(fitted.model, AbstractImageModel):
            height, width, channels = fitted.sample_shape
            dataset = load_images(options, (height, width), channels, bar)
        else:
            dataset = load_shapes(options)
        check_samples(fitted.model, dataset, fitted=True)
        begun = time.perf_counter()
        assignment = fitted.predict(dataset.samples, callback=bar)
        figures = {
            "method": fitted.model.method,
            "k": fitted.model.num_clusters,
            "n": len(dataset),
            "loss": float(np.sum(assignment.distances, dtype=np.float64)),
            "iterations": 0,
            "status": "predicted",
            "chunk_size": fitted.outcome.chunk_size,
            "seconds": time.perf_counter() - begun,
        }
        # Bridges are pairs of the images that were fitted, and certainties theirs, not of these.
        theirs = ("bridges", "certainties")
        extras = {n: a for n, a in fitted.outcome.extras.items() if n not in theirs}
        outcome = dataclasses.replace(fitted.outcome, assignment=assignment, extras=extras)
        result = dataclasses.replace(fitted, outcome=outcome)
        bar.show("writing")
        summary = summarise(options, dataset, result, "predict", figures)
        summary["model"] = options.model
        title = f"{dataset.name}, assigned by a model that was fitted before"
        write_files(folder, result, dataset, summary, options, title=title, pictures=pictures)
    tell_skipped(dataset)
    show_findings(options.out, result, dataset, summary)


def demo(options: Demo) -> None:
    """Clusters the digits that scikit-learn bundles with DI K-means.

    Args:
        options: What was asked for.

    Raises:
        ValueError: If the folder holds anything but an earlier demo.
        OSError: If something cannot be written.
    """
    fit(
        Fit(
            "digits",
            10,
            options.out,
            method="di-kmeans",
            seed=options.seed,
            overwrite=True,
        ),
        command="demo",
    )


def make_model(options: Fit) -> AbstractModel:
    """The model that was asked for.

    Args:
        options: What was asked for.

    Returns:
        A model, its own defaults in place of what was not given.

    Raises:
        ValueError: If the method does not have an option, or not that value.
    """
    model = MODELS[options.method]
    fields = model.setting_types()
    given = options.options.given()
    foreign = [written for name, (written, _) in given.items() if name not in fields]
    if foreign:
        raise ValueError(f"{options.method} has no option {', '.join(foreign)}; leave it out")
    # The name in messages of the model is the field's.
    if options.clusters < 1:
        raise ValueError(f"-k must be at least 1, not {options.clusters}")
    settings = {}
    for name, (written, value) in given.items():
        if fields[name] is int and isinstance(value, tuple):
            if len(value) != 1:
                raise ValueError(f"{written} must be one number for {options.method}, not {value}")
            value = value[0]
        settings[name] = value
    if options.start is not None and "assignments" not in signature(model.fit).parameters:
        raise ValueError(f"{options.method} cannot begin with clusters; leave out --start")
    if options.mask is not None:
        if "mask" not in fields:
            raise ValueError(f"{options.method} clusters shapes and takes no --mask; leave it out")
        settings["mask"] = load_mask(options.mask, size_of(options))
    return model.from_settings({"num_clusters": options.clusters, **settings})


def check_seed(seed: int) -> None:
    """Refuses seeds that JAX does not take.

    Args:
        seed: The seed.

    Raises:
        ValueError: If it is negative or too large.
    """
    if not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(f"--seed must be between 0 and {_LARGEST_SEED}, not {seed}")


def summarise(
    options: Fit | Predict,
    dataset: Collection,
    result: Result,
    command: str,
    figures: dict[str, Any],
) -> dict[str, Any]:
    """Everything that `summary.json` holds.

    Args:
        options: What was asked for.
        dataset: The samples.
        result: Their clusters.
        command: What the run is said to be.
        figures: The figures of the fit.

    Returns:
        Names and values.
    """
    summary = {**figures, "seed": options.seed, "peak_memory_mb": peak_memory_mb()}
    if dataset.labels is not None:
        summary.update(metrics.scores(dataset.labels, result.assignments))
    return {
        **summary,
        "command": command,
        "settings": result.model.settings(),
        "source": {
            "source": options.source,
            "split": options.split,
            "limit": options.limit,
            "rate": options.rate,
            "seconds": options.seconds,
            **{name: getattr(options, name, None) for name in ("weights", "start")},
            "sample_shape": result.sample_shape,
            "skipped": dataset.skipped,
        },
        **environment(),
    }


def write_files(
    folder: Path,
    result: Result,
    dataset: Collection,
    summary: dict[str, Any],
    options: Fit | Predict,
    *,
    title: str | None,
    pictures: Pictures,
) -> None:
    """Writes what fits and predictions have in common.

    Args:
        folder: Where.
        result: The clusters.
        dataset: The samples.
        summary: What `summarise` returned.
        options: What was asked for.
        title: Heading of the report, or None for the data's name.
        pictures: What else the report shows.
    """
    from diffclust.plotting import save_prototypes

    write_assignments(folder, dataset, result.outcome.assignment)
    save_prototypes(folder / "prototypes.png", result)
    if not options.no_report:
        from diffclust.report import write_report

        scores = {name: summary[name] for name in ("acc", "nmi", "ari") if name in summary}
        trim()
        write_report(
            folder / "report.html",
            result,
            dataset,
            scores=scores or None,
            seed=options.seed,
            title=title,
            **pictures.for_report(),
        )
    write_summary(folder, summary)


def tell_skipped(dataset: Collection) -> None:
    """Names the files that were left out.

    Args:
        dataset: The samples.
    """
    if dataset.skipped:
        names = some(map(repr, dataset.skipped))
        print(f"skipped {len(dataset.skipped)} unreadable files: {names}", file=sys.stderr)
