"""What the commands do."""

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from diffclust import checkpoint, metrics
from diffclust.cli.findings import show_findings
from diffclust.cli.options import Demo, Fit, MethodOptions, Predict, option, parse_grid
from diffclust.cli.progress_bar import ProgressBar
from diffclust.cli.run_folder import (
    environment,
    new_run,
    peak_memory_mb,
    write_assignments,
    write_summary,
)
from diffclust.cli.unfinished import Unfinished
from diffclust.data import (
    Collection,
    DataError,
    Dataset,
    LandmarkSet,
    check_landmarks,
    load,
    load_landmarks,
)
from diffclust.data.dataset import some
from diffclust.models import MODELS, AbstractImageModel, AbstractModel, Result

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
    _check_seed(options.seed)
    model = make_model(options)
    size = None if options.size is None else parse_grid(options.size, "size", "28 or 28x32")
    unfinished = Unfinished(options, model)
    if unfinished.is_done():
        print(f"{options.out} holds a finished run; there is nothing to go on with")
        return
    with (
        new_run(
            options.out,
            overwrite=options.overwrite,
            inputs=[options.source],
            command=None if command == "fit" else command,
        ) as folder,
        ProgressBar(model.num_restarts) as bar,
    ):
        if isinstance(model, AbstractImageModel):
            dataset = _load_images(options, size, options.channels, bar)
        else:
            dataset = _load_shapes(options)
        check_samples(model, dataset)
        # The fit is given the samples and nothing else: it never sees labels.
        settings = {
            "key": jax.random.key(options.seed),
            "chunk_size": options.chunk_size,
            "callback": bar,
        }
        with unfinished.snapshots(dataset) as extra:
            result = model.fit(dataset.samples, **settings, **extra)
        bar.show("writing")
        summary = _summarise(options, dataset, result, command, result.summary())
        checkpoint.save(folder / "model", result)
        _write(folder, result, dataset, summary, options, title=None)
    unfinished.remove()
    _tell_skipped(dataset)
    show_findings(options.out, result, dataset, summary)


def predict(options: Predict) -> None:
    """Assigns images or shapes to the clusters of a saved model and writes a run.

    Args:
        options: What was asked for.

    Raises:
        ValueError: If it cannot be done.
        OSError: If something cannot be read or written.
    """
    _check_seed(options.seed)
    with (
        new_run(
            options.out, overwrite=options.overwrite, inputs=[options.source, options.model]
        ) as folder,
        ProgressBar() as bar,
    ):
        fitted = checkpoint.load(options.model)
        if isinstance(fitted.model, AbstractImageModel):
            height, width, channels = fitted.sample_shape
            dataset = _load_images(options, (height, width), channels, bar)
        else:
            dataset = _load_shapes(options)
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
        # Bridges are pairs of the images that were fitted, not of these.
        extras = {n: a for n, a in fitted.outcome.extras.items() if n != "bridges"}
        outcome = dataclasses.replace(fitted.outcome, assignment=assignment, extras=extras)
        result = dataclasses.replace(fitted, outcome=outcome)
        bar.show("writing")
        summary = _summarise(options, dataset, result, "predict", figures)
        summary["model"] = options.model
        title = f"{dataset.name}, assigned by a model that was fitted before"
        _write(folder, result, dataset, summary, options, title=title)
    _tell_skipped(dataset)
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
            options=MethodOptions(restarts=1),
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
    return model.from_settings({"num_clusters": options.clusters, **settings})


def _load_images(
    options: Fit | Predict, size: tuple[int, int] | None, channels: int | None, bar: ProgressBar
) -> Dataset:
    _refuse_given(options, ("labels",), "a table of landmarks, and these are images")
    return load(
        options.source,
        split=options.split,
        size=size,
        channels=channels,
        skip_bad=options.skip_bad,
        limit=options.limit,
        seed=options.seed,
        progress=bar.reading,
    )


def _load_shapes(options: Fit | Predict) -> LandmarkSet:
    _refuse_given(
        options, ("split", "size", "channels", "skip_bad"), "images, and these are shapes"
    )
    return load_landmarks(options.source, labels=options.labels).limit(options.limit, options.seed)


def _refuse_given(options: Fit | Predict, names: Sequence[str], of_what: str) -> None:
    """Refuses options that mean nothing here, rather than leave them unread."""
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    for name in names:
        if name in defaults and getattr(options, name) != defaults[name]:
            raise ValueError(f"{option(name)} is for {of_what}; leave it out")


def check_samples(model: AbstractModel, dataset: Collection, *, fitted: bool = False) -> None:
    """Refuses samples that the model cannot cluster.

    Blank images are told by their files or indices, shapes on a line by their names.

    Args:
        model: The model.
        dataset: The samples.
        fitted: Whether clusters are there already, so that there may be fewer samples.

    Raises:
        ValueError: With what is wrong.
    """
    if model.num_clusters > len(dataset) and not fitted:
        raise ValueError(
            f"there are only {len(dataset)} {dataset.noun}s for {model.num_clusters} clusters; "
            f"give at most -k {len(dataset)}"
        )
    if isinstance(dataset, LandmarkSet):
        # The model has only their indices to tell, which a limit changes.
        check_landmarks(dataset.landmarks, shapes=dataset.names)
    try:
        model.validated(dataset.samples)
    except ValueError as error:
        if not isinstance(dataset, Dataset) or "blank" not in str(error):
            raise
        blank = np.flatnonzero(~dataset.images.any(axis=(1, 2, 3)))
        assert dataset.indices is not None
        places = dataset.indices[blank].tolist()
        if dataset.paths is not None:
            places = [
                f"{place} ({dataset.paths[i]!r})" for place, i in zip(places, blank, strict=True)
            ]
        raise DataError(
            f"{blank.size} of {len(dataset)} images are blank (all zero) and cannot be scaled to "
            f"unit norm, at index {some(places)}; remove them."
        ) from error


def _check_seed(seed: int) -> None:
    if not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(f"--seed must be between 0 and {_LARGEST_SEED}, not {seed}")


def _summarise(
    options: Fit | Predict,
    dataset: Collection,
    result: Result,
    command: str,
    figures: dict[str, Any],
) -> dict[str, Any]:
    """Everything that `summary.json` holds."""
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
            "sample_shape": result.sample_shape,
            "skipped": dataset.skipped,
        },
        **environment(),
    }


def _write(
    folder: Path,
    result: Result,
    dataset: Collection,
    summary: dict[str, Any],
    options: Fit | Predict,
    *,
    title: str | None,
) -> None:
    """Writes what fits and predictions have in common."""
    from diffclust.plotting import save_prototypes

    write_assignments(folder, dataset, result.outcome.assignment)
    save_prototypes(folder / "prototypes.png", result)
    if not options.no_report:
        from diffclust.report import write_report

        scores = {name: summary[name] for name in ("acc", "nmi", "ari") if name in summary}
        write_report(
            folder / "report.html",
            result,
            dataset,
            scores=scores or None,
            seed=options.seed,
            title=title,
        )
    write_summary(folder, summary)


def _tell_skipped(dataset: Collection) -> None:
    if dataset.skipped:
        names = some(map(repr, dataset.skipped))
        print(f"skipped {len(dataset.skipped)} unreadable files: {names}", file=sys.stderr)
