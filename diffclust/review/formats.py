"""Labels as other programs read them, and as `diffclust predict` does."""

import html
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from diffclust.models import Result
from diffclust.report.text import plain
from diffclust.review.edits import Review
from diffclust.storage.checkpoint import prototypes_checksum
from diffclust.storage.staging import EXPORT_MARK, read_object

_LONGEST = 200
"""Bytes of a name; most file systems allow 255."""

_RESERVED = {"CON", "PRN", "AUX", "NUL"} | {f"{n}{i}" for n in ("COM", "LPT") for i in range(1, 10)}
"""What no file may be called on Windows."""


def safe_cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula.

    Args:
        text: What stands in a cell.

    Returns:
        The text, after an apostrophe where it begins like a formula.
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text


def shortened(name: str) -> str:
    """A file's name that leaves room for a number before it.

    Args:
        name: The name.

    Returns:
        The name, without some of what stands before its ending if it is long.
    """
    if len(os.fsencode(name)) <= _LONGEST:
        return name
    stem, ending = os.path.splitext(name)
    most = max(1, _LONGEST - len(os.fsencode(ending)))
    return os.fsencode(stem)[:most].decode("utf-8", "ignore") + ending


def folder_names(labels: Iterable[str]) -> dict[str, str]:
    """A folder for each label, which every file system allows, no two alike.

    Args:
        labels: Any texts.

    Returns:
        Names of folders by label.
    """
    names: dict[str, str] = {}
    taken = {EXPORT_MARK}  # a file beside them
    for label in dict.fromkeys(labels):
        kept = "".join("_" if c in '<>:"/\\|?*' else c for c in plain(label))
        base = kept.encode("utf-8", "replace")[:_LONGEST].decode("utf-8", "ignore").strip(". ")
        base = f"_{base}" if base.split(".")[0].upper() in {*_RESERVED, ""} else base
        name, number = base, 2
        while name.casefold() in taken:
            name, number = f"{base}-{number}", number + 1
        taken.add(name.casefold())
        names[label] = name
    return names


def table_rows(
    review: Review, indices: np.ndarray, places: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """The rows of a table of labels.

    Args:
        review: The review.
        indices: Position of each sample in its source.
        places: File or name of each sample.

    Yields:
        Index, place, cluster as it was fitted, label, and 1 where it is doubtful.
    """
    labels = map(safe_cell, review.labelling.labels())
    doubtful, fitted = review.labelling.doubtful.astype(int), review.initial.clusters
    yield from zip(indices, map(safe_cell, places), fitted, labels, doubtful, strict=True)


def fiftyone(labels: Sequence[str], files: Sequence[Path]) -> dict[str, str]:
    """FiftyOne's format FiftyOneImageClassificationDataset.

    Args:
        labels: The label of each image.
        files: Its file, in the folder `data`; no two names alike but for their endings.

    Returns:
        Contents of files by name.
    """
    classes = sorted(set(labels))
    pairs = zip(files, labels, strict=True)
    codes = {file.stem: classes.index(label) for file, label in pairs}
    return {"labels.json": json.dumps({"classes": classes, "labels": codes})}


def label_studio(
    labels: Sequence[str], files: Sequence[Path], doubtful: Iterable[bool], kind: str
) -> dict[str, str]:
    """Label Studio's tasks: labels as annotations, doubtful ones as predictions to be confirmed.

    Args:
        labels: The label of each sample.
        files: Its file, relative to Label Studio's document root.
        doubtful: Whether the label is doubtful.
        kind: What the samples are, `"image"` or `"audio"`.

    Returns:
        Contents of files by name: the tasks, and the labelling interface for them.
    """
    tasks = []
    for label, file, unsure in zip(labels, files, doubtful, strict=True):
        value = {"choices": [label]}
        choice = {"from_name": "label", "to_name": kind, "type": "choices", "value": value}
        data = {kind: f"/data/local-files/?d={quote(file.as_posix(), errors='surrogateescape')}"}
        group = "predictions" if unsure else "annotations"
        tasks.append({"data": data, group: [{"result": [choice]}]})
    choices = "".join(f'<Choice value="{html.escape(x)}"/>' for x in sorted(set(labels)))
    interface = (
        f'<View><{kind.title()} name="{kind}" value="${kind}"/><Choices name="label" '
        f'toName="{kind}" choice="single">{choices}</Choices></View>\n'
    )
    return {"tasks.json": json.dumps(tasks), "config.xml": interface}


def cluster_labels(review: Review, result: Result, nouns: str) -> dict[str, Any]:
    """Returns the labels of a model's clusters, as `diffclust predict --cluster-labels` reads them.

    A prediction is of a cluster of the fit, and has its label. Samples that were moved by hand, one
    by one or by a split, leave the clusters of the fit as they are.

    Args:
        review: The review.
        result: The model.
        nouns: What samples are called, in the plural.

    Returns:
        What JSON holds: the label of each cluster of the fit, the checksum of the prototypes, and
        a note that says what moved samples change.
    """
    labelling = review.labelling
    homes = np.asarray(labelling.homes)[review.initial.clusters]
    moved = int((homes != labelling.clusters).sum())
    note = "new ones get the label of the cluster they are assigned to"
    if moved:
        were = "was" if moved == 1 else "were"
        note += (
            f"; {moved} of the {nouns} {were} moved or split off by hand: that changes no cluster"
        )
    return {
        "labels": [labelling.label(home) for home in labelling.homes],
        "prototypes": prototypes_checksum(result),
        "moved": moved,
        "note": note,
    }


def read_cluster_labels(path: str, result: Result) -> tuple[list[str], str]:
    """Reads what `cluster_labels` gives.

    Args:
        path: The file.
        result: The model whose clusters are labelled.

    Returns:
        The label of each cluster, and the note.

    Raises:
        ValueError: If it holds no labels, or those of another model.
    """
    if not Path(path).is_file():
        raise ValueError(f"{path!r} does not exist, or is no file")
    content = read_object(Path(path))
    labels, remedy = content.get("labels"), "give labels.json, which 'diffclust review' exports"
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError(f"{path!r} holds no labels of clusters; {remedy}")
    same = content.get("prototypes") == prototypes_checksum(result)
    if not same or len(labels) != result.model.num_clusters:
        raise ValueError(f"{path!r} holds labels of another model's clusters; {remedy}")
    return labels, plain(content.get("note", ""))
