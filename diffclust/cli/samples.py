"""The samples that a command was told to read, and whether its model can cluster them."""

import dataclasses
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from diffclust import _validation
from diffclust.cli.allocator import map_large_blocks
from diffclust.cli.options import Fit, Predict
from diffclust.cli.parsing import option, parse_grid
from diffclust.cli.progress_bar import ProgressBar
from diffclust.cli.run_options import Sweep
from diffclust.cli.runs import file_names, read_run
from diffclust.data import (
    Collection,
    DataError,
    Dataset,
    LandmarkSet,
    check_landmarks,
    load,
    load_landmarks,
    load_weights,
)
from diffclust.data.stream import open_stream, outgrows_memory
from diffclust.models import AbstractModel


def load_images(
    options: Fit | Predict, size: tuple[int, int] | None, channels: int | None, bar: ProgressBar
) -> Dataset:
    """The images that were asked for.

    Args:
        options: What was asked for.
        size: Height and width to bring them to, or None.
        channels: Number of channels to bring them to, or None.
        bar: Told how many files have been read.

    Returns:
        The images.

    Raises:
        ValueError: If they cannot be read, or an option is for shapes.
    """
    _refuse_given(options, ("labels",), "a table of landmarks, and these are images")
    if options.stream or outgrows_memory(options.source, size=size, limit=options.limit):
        return _open(options, size, channels, bar)
    return load(
        options.source,
        split=options.split,
        size=size,
        channels=channels,
        skip_bad=options.skip_bad,
        limit=options.limit,
        seed=options.seed,
        progress=bar.reading,
        rate=options.rate,
        seconds=options.seconds,
    )


def _open(
    options: Fit | Predict, size: tuple[int, int] | None, channels: int | None, bar: ProgressBar
) -> Dataset:
    """Images that are read as they are needed, and a line that says so."""
    _refuse_given(options, ("rate", "seconds"), "recordings, and these are pictures")
    map_large_blocks()
    dataset = open_stream(
        options.source,
        split=options.split,
        size=size,
        channels=channels,
        skip_bad=options.skip_bad,
        limit=options.limit,
        seed=options.seed,
        progress=bar.reading,
    )
    needed = 4 * math.prod(dataset.samples.shape) / 2**30
    print(
        f"images are read as they are needed: {len(dataset):,} of them, which would take "
        f"{needed:.1f} GiB of memory",
        file=sys.stderr,
    )
    return dataset


def load_shapes(options: Fit | Predict) -> LandmarkSet:
    """The shapes that were asked for.

    Args:
        options: What was asked for.

    Returns:
        The shapes.

    Raises:
        ValueError: If they cannot be read, or an option is for images.
    """
    _refuse_given(
        options,
        ("split", "size", "channels", "rate", "seconds", "stream", "skip_bad"),
        "images, and these are shapes",
    )
    return load_landmarks(options.source, labels=options.labels).limit(options.limit, options.seed)


def size_of(options: Fit | Sweep) -> tuple[int, int] | None:
    """Height and width to which images are brought.

    Args:
        options: What was asked for.

    Returns:
        Both in pixels, or None where that was not asked for.

    Raises:
        ValueError: If it is no size.
    """
    return None if options.size is None else parse_grid(options.size, "size", "28 or 28x32")


def inputs_of(options: Fit) -> list[str]:
    """The files and folders that a fit reads.

    Args:
        options: What was asked for.

    Returns:
        Their paths.
    """
    return [options.source, *filter(None, (options.weights, options.mask, options.start))]


def given_with(options: Fit, dataset: Collection) -> dict[str, np.ndarray]:
    """What was given for each sample: a weight, a cluster to start from.

    Args:
        options: What was asked for.
        dataset: The samples.

    Returns:
        Arguments for a fit, each with an entry for every sample; nothing where none was given.

    Raises:
        ValueError: If they do not fit the samples.
    """
    found = {}
    if options.weights is not None:
        assert dataset.indices is not None
        total = len(dataset) + len(dataset.skipped) if options.limit is None else None
        found["sample_weight"] = load_weights(options.weights, dataset.indices, total=total)
    if options.start is not None:
        found["assignments"] = _clusters_of(options.start, options.clusters, dataset)
    return found


def _clusters_of(path: str, num_clusters: int, dataset: Collection) -> np.ndarray:
    """The clusters that a run before put the samples in."""
    run = read_run(path)
    if run.num_clusters != num_clusters:
        raise ValueError(
            f"the run in {path!r} has {run.num_clusters} clusters, not {num_clusters}; give -k "
            f"{run.num_clusters}, or another --start"
        )
    assert dataset.indices is not None
    order = np.argsort(run.indices)
    rows = order[np.searchsorted(run.indices, dataset.indices, sorter=order) % len(order)]
    names = file_names(dataset.places[1])
    theirs = file_names(run.places[row] for row in rows)
    known = (run.indices[rows] == dataset.indices) & (np.array(theirs) == np.array(names))
    if not known.all():
        first = int(known.argmin())
        raise ValueError(
            f"the run in {path!r} has no cluster for {dataset.noun} {dataset.indices[first]}"
            f"{f' ({names[first]!r})' if names[first] else ''}; --start takes a run of the same "
            "source"
        )
    return run.clusters[rows]


def as_fitted(options: Predict) -> Predict:
    """Recordings are made images as they were for the fit, where that is known and not told.

    Args:
        options: What was asked for.

    Returns:
        The same with the settings of the fit.
    """
    if not os.path.isdir(options.source):
        return options
    try:
        source = json.loads((Path(options.model) / "summary.json").read_text("utf-8"))["source"]
        known = {name: source.get(name) for name in ("rate", "seconds")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return options
    wanted = {
        name: value
        for name, value in known.items()
        if getattr(options, name) is None and isinstance(value, int | float)
    }
    return dataclasses.replace(options, **wanted)


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
        blank = _validation.blank_images(dataset.images)
        assert dataset.indices is not None
        places = dataset.indices[blank].tolist()
        if dataset.paths is not None:
            places = [
                f"{place} ({dataset.paths[i]!r})" for place, i in zip(places, blank, strict=True)
            ]
        raise DataError(
            f"{blank.size} of {len(dataset)} images are blank (all zero) and cannot be scaled to "
            f"unit norm, at index {_validation.some(places)}; remove them."
        ) from error
