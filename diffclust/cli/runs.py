"""Runs that were written before, read again: figures, table and model."""

import csv
import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from diffclust.cli.run_folder import is_run
from diffclust.models import Result
from diffclust.storage import checkpoint


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
