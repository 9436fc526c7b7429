"""The folder that a command writes: `summary.json`, `assignments.csv`, and what goes with them."""

import contextlib
import csv
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from diffclust._version import __version__
from diffclust.data import Collection
from diffclust.solvers import Assignment
from diffclust.storage.staging import check_target, staged

_SUMMARY = "summary.json"
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
    for path in inputs:
        if os.path.exists(path) and Path(os.path.realpath(path)).is_relative_to(target):
            raise ValueError(f"{out!r} holds {path!r}, which is read; give another folder")
    with staged(target, replace=overwrite) as folder:
        yield folder


def is_run(folder: Path, command: str | None = None) -> bool:
    """Whether a folder holds a whole run.

    Args:
        folder: The folder.
        command: The command that must have written it, or None for any.

    Returns:
        False also where there is no such folder.
    """
    try:
        summary = json.loads((folder / _SUMMARY).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(summary, dict) or "method" not in summary:
        return False
    return command in (None, summary.get("command"))


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
    # Names of files need not be valid Unicode; so their bytes come out as they are.
    with (folder / "assignments.csv").open(
        "w", encoding="utf-8", errors="surrogateescape", newline=""
    ) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["index", column, "cluster", "distance", "margin"])
        # Row by row as lists of Python's numbers, millions would take more than the images' memory.
        for start in range(0, len(dataset), _BLOCK):
            rows = slice(start, start + _BLOCK)
            writer.writerows(
                zip(
                    dataset.indices[rows].tolist(),
                    places[rows],
                    assignment.clusters[rows].tolist(),
                    _digits(assignment.distances[rows]),
                    _digits(assignment.margins[rows]),
                    strict=True,
                )
            )


def _digits(values: np.ndarray) -> Iterator[str]:
    # Of a NumPy scalar, which knows its precision: in double, float32's 0.1 has 17 digits.
    return (str(value) for value in values)


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
    try:
        import resource
    except ImportError:  # Windows
        return None
    # The unit is bytes on macOS, KiB elsewhere.
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)
