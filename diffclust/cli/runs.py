"""Runs that were written before, read again: figures, table, model and samples."""

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from diffclust import checkpoint
from diffclust.cli.options import Predict
from diffclust.cli.run_folder import is_run
from diffclust.data import Collection
from diffclust.models import AbstractImageModel, Result

_DECODING = ("rate", "seconds")
"""What a summary tells of how samples were made of files, beside their shape."""


@dataclasses.dataclass(frozen=True, eq=False)
class SavedRun:
    """What a run's folder holds.

    Attributes:
        folder: The folder.
        summary: Its figures and settings.
        indices: Position of each sample in its source.
        places: File or name of each sample; empty strings where there are none.
        column: What the places are called in the table.
        clusters: Cluster of each sample.
    """

    folder: Path
    summary: dict[str, Any]
    indices: np.ndarray
    places: tuple[str, ...]
    column: str
    clusters: np.ndarray

    @property
    def num_clusters(self) -> int:
        """K."""
        return int(self.summary["k"])

    def result(self) -> Result:
        """The model, fitted to the samples of this run or to those of another.

        Raises:
            ValueError: If it is missing or damaged.
        """
        return checkpoint.load(self.summary.get("model", self.folder))


def read_run(path: str) -> SavedRun:
    """Reads the summary and the table of a run.

    Args:
        path: Its folder.

    Returns:
        What it holds.

    Raises:
        ValueError: If the folder holds no whole run.
    """
    folder = Path(path)
    if is_run(folder, "sweep"):
        raise ValueError(f"{path!r} holds a sweep; give its run, {str(folder / 'chosen')!r}")
    if not is_run(folder):
        raise ValueError(
            f"{path!r} holds no run; give a folder that 'diffclust fit' or predict wrote"
        )
    try:
        summary = json.loads((folder / "summary.json").read_text("utf-8"))
        with (folder / "assignments.csv").open(
            encoding="utf-8", errors="surrogateescape", newline=""
        ) as file:
            header, *rows = list(csv.reader(file))
        index, column, cluster = header[:3]
        if (index, cluster) != ("index", "cluster") or len(rows) != int(summary["n"]):
            raise ValueError("another number of rows, or other columns")
        return SavedRun(
            folder,
            summary,
            np.array([int(row[0]) for row in rows], np.int64),
            tuple(row[1] for row in rows),
            column,
            np.array([int(row[2]) for row in rows], np.int32),
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError, csv.Error) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"the run in {path!r} is damaged ({reason}); make it again") from error


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
    from diffclust.cli.samples import load_images, load_shapes

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
    names = [Path(place).name for place in dataset.places[1]]
    if not np.array_equal(dataset.indices, run.indices) or (
        names != [Path(place).name for place in run.places]
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
