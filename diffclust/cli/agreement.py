"""How runs agree, and which of their losses may be compared."""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from diffclust import metrics
from diffclust.cli.runs import SavedRun

_SEARCH = {
    "num_restarts",
    "max_passes",
    "tolerance",
    "split_merge",
    "seeding",
    "steps",
    "max_steps",
    "curriculum",
    "batch_size",
    "learning_rate",
    "shortlist",
    "least_share",
    "refine_steps",
    "align_steps",
    "backbone",
    "initial_variance",
}
"""Settings of how a fit searches; all others are part of what its loss means."""


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Several runs side by side.

    Attributes:
        names: What the runs are called: their folders, as short as tells them apart.
        runs: The runs.
        agreement: Adjusted Rand index of each two over the samples that both have; NaN where they
            share too few.
        shared: How many samples each two share.
        groups: For each run the letter of those with which its loss can be compared; empty where
            there are none.
        best: Whether a run's loss is the least of its group.
    """

    names: tuple[str, ...]
    runs: tuple[SavedRun, ...]
    agreement: np.ndarray
    shared: np.ndarray
    groups: tuple[str, ...]
    best: tuple[bool, ...]


def compare_runs(runs: Sequence[SavedRun]) -> Comparison:
    """Compares runs.

    Args:
        runs: At least two.

    Returns:
        The comparison.
    """
    keys = [_keys(run) for run in runs]
    count = len(runs)
    agreement = np.full((count, count), np.nan)
    shared = np.zeros((count, count), int)
    for i in range(count):
        for j in range(i, count):
            first, second = _rows(keys[i], keys[j])
            shared[i, j] = shared[j, i] = len(first)
            if len(first) >= 2:
                value = metrics.adjusted_rand_index(
                    runs[i].clusters[first], runs[j].clusters[second]
                )
                agreement[i, j] = agreement[j, i] = value
    groups = _groups(runs, keys)
    best = tuple(
        bool(group)
        and run.summary["loss"]
        == min(r.summary["loss"] for r, g in zip(runs, groups, strict=True) if g == group)
        for run, group in zip(runs, groups, strict=True)
    )
    return Comparison(_names(runs), tuple(runs), agreement, shared, groups, best)


def _keys(run: SavedRun) -> dict[str, int]:
    """The row of each sample by what it is: its file, or its place in its source."""
    if run.column == "path" and all(run.places):
        return {os.path.realpath(place): row for row, place in enumerate(run.places)}
    source = run.summary["source"]
    name = source["source"]
    name = os.path.realpath(name) if os.path.exists(name) else name
    where = f"{name}\n{source['split']}"
    return {f"{where}\n{index}": row for row, index in enumerate(run.indices.tolist())}


def _rows(first: dict[str, int], second: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the samples that both have, in one order."""
    both = [key for key in first if key in second]
    return np.array([first[k] for k in both], int), np.array([second[k] for k in both], int)


def _groups(runs: Sequence[SavedRun], keys: Sequence[dict[str, int]]) -> tuple[str, ...]:
    meanings = [_meaning(run, own) for run, own in zip(runs, keys, strict=True)]
    repeated = [m for m in dict.fromkeys(meanings) if m is not None and meanings.count(m) > 1]
    letters = {meaning: _letter(number) for number, meaning in enumerate(repeated)}
    return tuple("" if m is None else letters.get(m, "") for m in meanings)


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"{number + 1}"


def _meaning(run: SavedRun, keys: dict[str, int]) -> str | None:
    """What the loss of a run means: the same for runs whose losses can be compared."""
    summary = run.summary
    settings = {n: v for n, v in summary["settings"].items() if n not in _SEARCH}
    # Weights that a fit learns itself make every run's loss its own; predictions sum distances.
    if settings.get("weight_rounds") or summary["status"] == "predicted":
        return None
    source = summary["source"]
    about: list[Any] = [
        summary["method"],
        settings,
        source["sample_shape"],
        source.get("weights"),
        sorted(keys),
    ]
    return json.dumps(about, sort_keys=True)


def _names(runs: Sequence[SavedRun]) -> tuple[str, ...]:
    """The last part of each folder, or as many parts as tell them apart."""
    parts = [run.folder.absolute().parts for run in runs]
    for length in range(1, max(map(len, parts)) + 1):
        names = tuple("/".join(part[-length:]) for part in parts)
        if len(set(names)) == len(names):
            return names
    return tuple(str(run.folder) for run in runs)
