"""What tests of the command line have in common: small images, and how a command is run."""

from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.alignment import AbstractAligner, GridSearch, NoAlignment
from diffclust.cli import main
from diffclust.models import SeriesKMeans

Run = Callable[..., tuple[int, str, str]]
"""Runs a command; gives status, stdout and stderr."""

RUN_FILES = [
    *("assignments.csv", "model", "prototypes.png", "report.html", "report_files", "summary.json")
]
"""What a fit writes."""


def squares(count: int) -> np.ndarray:
    """Grey images of 8 × 8 pixels, each a bright rectangle somewhere on noise."""
    random = np.random.default_rng(0)
    images = random.integers(0, 50, (count, 8, 8), dtype=np.uint8)
    for i in range(count):
        images[i, 1 + i % 3 : 5 + i % 3, 2 : 4 + i % 4] += 150
    return images


def few_warps(model: SeriesKMeans) -> AbstractAligner:
    """In place of the aligner of series, which takes long to compile."""
    if not model.warps:
        return NoAlignment()
    return GridSearch(0.5 * jnp.eye(model.num_intervals), fourier=False)


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
    """What runs commands in the current folder."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(arguments)
        return status, *capsys.readouterr()

    return call


def entries(folder: str | Path = ".") -> list[str]:
    """What lies in a folder, in sorted order."""
    return sorted(path.name for path in Path(folder).iterdir())
