"""Runs as folders: `summary.json`, `assignments.csv` and the model, written and read again."""

import contextlib
import csv
import dataclasses
import json
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from diffclust._version import __version__
from diffclust.data import Collection
from diffclust.estimate.measure import peak_bytes
from diffclust.models import Result
from diffclust.solvers import Assignment
from diffclust.storage import checkpoint
from diffclust.storage.staging import check_target, staged

_SUMMARY, _ASSIGNMENTS = "summary.json", "assignments.csv"
_BLOCK = 2**16


@contextlib.contextmanager
def new_run(
    out: str, *, overwrite: bool, inputs: Iterable[str] = (), command: str | None = None
) -> Iterator[Path]:
    """A folder for a run, which takes its place only when the block ends without an error.

    Args:
        out: Where it shall be.
        overwrite: Whether a run that is there is replaced.
        inputs: Files and folders that are read, and so must not be replaced.
        command: Replace only runs of this command.

    Yields:
        The folder to write into.

    Raises:
        ValueError: If something else is there, or an input.
        OSError: If it cannot be written.
    """
    kind = "run" if command is None else f"run of 'diffclust {command}'"
    target = check_target(
        out, kind=kind, is_one=lambda folder: is_run(folder, command), overwrite=overwrite
    )
    refuse_inputs(out, target, inputs)
    with staged(target, replace=overwrite) as folder:
        yield folder


def refuse_inputs(out: str, target: Path, inputs: Iterable[str]) -> None:
    """Refuses to replace a folder that holds what is read.

    Args:
        out: The folder, as it was given.
        target: Its real path.
        inputs: Files and folders that are read; those that do not exist are no matter.

    Raises:
        ValueError: If an input lies in the folder.
    """
    for path in inputs:
        if os.path.exists(path) and Path(os.path.realpath(path)).is_relative_to(target):
            raise ValueError(f"{out!r} holds {path!r}, which is read; give another folder")


def _summary_of(folder: Path) -> dict[str, Any]:
    """The summary of a run; empty where the folder holds no whole run, or does not exist."""
    try:
        summary = json.loads((folder / _SUMMARY).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) and "method" in summary else {}


def is_run(folder: Path, command: str | None = None) -> bool:
    """Whether a folder holds a whole run.

    Args:
        folder: The folder.
        command: The command that must have written it, or None for any.

    Returns:
        False also where there is no such folder.
    """
    summary = _summary_of(folder)
    return bool(summary) and command in (None, summary.get("command"))


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Writes `summary.json`.

    Args:
        folder: The run's folder.
        summary: What to write; NumPy's numbers and tuples are turned into JSON's.
    """

    def plain(value: Any) -> Any:
        if hasattr(value, "tolist"):
            return value.tolist()
        raise TypeError(f"JSON cannot hold a {type(value).__name__}")

    text = json.dumps(summary, indent=2, default=plain)
    (folder / _SUMMARY).write_text(text + "\n", "utf-8")


def write_table(path: Path, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Writes a table as CSV.

    Args:
        path: The file.
        header: Names of the columns.
        rows: What stands in them.
    """
    # Names of files need not be valid Unicode; so their bytes come out as they are.
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def write_assignments(folder: Path, dataset: Collection, assignment: Assignment) -> None:
    """Writes `assignments.csv`: index, path, cluster, distance, margin.

    The index is the sample's position in its source, the path empty where it is no file; shapes
    have a name in its stead. Numbers are written with the digits that give them back exactly.

    Args:
        folder: The run's folder.
        dataset: The samples.
        assignment: Their clusters, in the same order.
    """
    assert dataset.indices is not None
    column, places = dataset.places
    indices, clusters = dataset.indices, assignment.clusters
    distances, margins = assignment.distances, assignment.margins
    # Row by row as lists of Python's numbers, millions would take more than the images' memory.
    blocks = (slice(start, start + _BLOCK) for start in range(0, len(dataset), _BLOCK))
    rows = (
        row
        for block in blocks
        for row in zip(
            indices[block].tolist(),
            places[block],
            clusters[block].tolist(),
            # Of a NumPy scalar, which knows its precision: in double, float32's 0.1 has 17 digits.
            map(str, distances[block]),
            map(str, margins[block]),
            strict=True,
        )
    )
    header = ["index", column, "cluster", "distance", "margin"]
    write_table(folder / _ASSIGNMENTS, header, rows)


def environment() -> dict[str, Any]:
    """Versions, and the device that JAX computes on."""
    device = jax.devices()[0]
    return {
        "versions": {
            "diffclust": __version__,
            "jax": jax.__version__,
            "python": platform.python_version(),
        },
        "device": f"{device.platform}: {device.device_kind}",
    }


def peak_memory_mb() -> float | None:
    """The most memory that the process held, in MB (10⁶ bytes); None where nobody knows."""
    return round(peak_bytes() / 1e6, 1) or None


@dataclasses.dataclass(frozen=True, eq=False)
class SavedRun:
    """What a run's folder holds.

    Attributes:
        folder: The folder.
        summary: Its figures and settings.
        column: What the places are called in the table.
        indices: Position of each sample in its source.
        places: File or name of each sample; empty strings where there are none.
        clusters: Cluster of each sample.
        distances: Its distance to the cluster.
        margins: How much farther its second-best cluster is.
    """

    folder: Path
    summary: dict[str, Any]
    column: str
    indices: np.ndarray
    places: tuple[str, ...]
    clusters: np.ndarray
    distances: np.ndarray
    margins: np.ndarray

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


def file_names(places: Iterable[str]) -> list[str]:
    """What is left of places where the folders may be others.

    Args:
        places: File or name of each sample; empty strings where there are none.

    Returns:
        Their last parts.
    """
    return [Path(place).name for place in places]


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
    summary = _summary_of(folder)
    if summary.get("command") == "sweep":
        raise ValueError(f"{path!r} holds a sweep; give its run, {str(folder / 'chosen')!r}")
    if not summary:
        raise ValueError(
            f"{path!r} holds no run; give a folder that 'diffclust fit' or predict wrote"
        )
    try:
        with (folder / _ASSIGNMENTS).open(
            encoding="utf-8", errors="surrogateescape", newline=""
        ) as file:
            header, *rows = csv.reader(file)
        index, column, cluster, *_ = header
        if (index, cluster) != ("index", "cluster") or len(rows) != int(summary["n"]):
            raise ValueError("another number of rows, or other columns")
        indices, places, clusters, distances, margins = zip(*rows, strict=True)
        return SavedRun(
            folder,
            summary,
            column,
            np.array(indices).astype(np.int64),
            places,
            np.array(clusters).astype(np.int32),
            np.array(distances).astype(np.float64),
            np.array(margins).astype(np.float64),
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError, csv.Error) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"the run in {path!r} is damaged ({reason}); make it again") from error
