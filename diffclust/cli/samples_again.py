"""The samples of runs that were written before, read and assigned again."""

import dataclasses
from typing import Any

import numpy as np

from diffclust.cli.options import Predict
from diffclust.cli.runs import SavedRun, file_names
from diffclust.cli.samples import load_images, load_shapes
from diffclust.data import Collection
from diffclust.models import AbstractImageModel, Result

_DECODING = ("rate", "seconds")
"""What a summary tells of how samples were made of files, beside their shape."""


def load_samples(run: SavedRun, result: Result, source: str | None, bar: Any) -> Collection:
    """The samples of a run, read again from where they came.

    Args:
        run: The run.
        result: Its model.
        source: Where they are now; None where they were.
        bar: Told how many files have been read.

    Returns:
        The samples, in the run's order.

    Raises:
        ValueError: If they cannot be read, or are others than those of the run.
    """
    told = run.summary["source"]
    options = Predict(
        str(run.folder),
        told["source"] if source is None else source,
        "",
        split=told["split"],
        limit=told["limit"],
        seed=run.summary["seed"],
        skip_bad=bool(told["skipped"]),
        **{name: told[name] for name in _DECODING if told.get(name) is not None},
    )
    if isinstance(result.model, AbstractImageModel):
        height, width, channels = result.sample_shape
        dataset = load_images(options, (height, width), channels, bar)
    else:
        dataset = load_shapes(options)
    assert dataset.indices is not None
    if not np.array_equal(dataset.indices, run.indices) or (
        file_names(dataset.places[1]) != file_names(run.places)
    ):
        raise ValueError(
            f"{options.source!r} no longer holds the {dataset.noun}s of this run; give the same "
            "ones with --source"
        )
    return dataset


def assigned(run: SavedRun, result: Result, dataset: Collection, bar: Any) -> Result:
    """The result with the assignment of this run's samples.

    Args:
        run: The run.
        result: Its model.
        dataset: Its samples.
        bar: Told of progress, where they have to be assigned again.

    Returns:
        The result; a prediction is made again, as runs of it keep no alignments.
    """
    if "model" not in run.summary:
        return result
    assignment = result.predict(dataset.samples, callback=bar)
    return dataclasses.replace(
        result, outcome=dataclasses.replace(result.outcome, assignment=assignment)
    )
