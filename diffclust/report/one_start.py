"""The HTML of several methods from one start: a row of prototypes each."""

from collections.abc import Sequence

import numpy as np

from diffclust import metrics
from diffclust.analysis.common_start import CommonStart
from diffclust.data import Collection
from diffclust.models import Result
from diffclust.report.pictures import data_uris
from diffclust.report.terms import terms_of
from diffclust.report.text import escape, percent

_MOST_BYTES = 90_000
"""Of the prototypes of one row."""


def one_start_section(result: Result, others: CommonStart, dataset: Collection) -> str:
    """The start, what other methods made of it, and what the fit made of it, row by row.

    Args:
        result: The fit.
        others: Fits from the same start.
        dataset: The data, whose labels, where there are any, score the rows.

    Returns:
        HTML.
    """
    rows = [prototype_row("The start", "images drawn by k-means++", others.start)]
    rows += [
        prototype_row(_name(other), _told(other, result, dataset), other.prototypes)
        for other in others.results
    ]
    rows.append(
        prototype_row(f"{_name(result)}, this fit", _told(result, None, dataset), result.prototypes)
    )
    moved = getattr(result.model, "split_merge", False)
    moves = (
        " Moves that split one cluster in two and remove another may have given a column "
        "something else to do."
        if moved
        else ""
    )
    note = (
        '<p class="note">Each column began as the image at its top; the other methods had one run '
        f"each from there.{moves} Losses of different methods are measured differently and are "
        "not compared.</p>"
    )
    return f'<div class="starts">{"".join(rows)}</div>{note}'


def _name(result: Result) -> str:
    name = terms_of(result).method
    return name[0].upper() + name[1:]


def _told(result: Result, fit: Result | None, dataset: Collection) -> str:
    told = []
    if dataset.labels is not None:
        scores = metrics.scores(dataset.labels, result.assignments)
        told.append(f"accuracy {percent(scores['acc'])}, ARI {scores['ari']:.3f}")
    if fit is not None:
        same = metrics.adjusted_rand_index(fit.assignments, result.assignments)
        told.append(f"agrees with this fit by an ARI of {same:.3f}")
    return "; ".join(told).replace("-", "−")


def prototype_row(name: str, told: str, images: Sequence[np.ndarray] | np.ndarray) -> str:
    """Prototypes in a row, each in its own range of intensities.

    Args:
        name: What they are, any text.
        told: What is told of them, HTML; perhaps nothing.
        images: The prototypes, at least one.

    Returns:
        HTML.
    """
    uris = data_uris(list(images), most_bytes=_MOST_BYTES, own_range=True)
    height, width = images[0].shape[:2]
    pictures = "".join(
        f'<img src="{uri}" width="{width}" height="{height}" alt="{escape(name)}, {i}">'
        for i, uri in enumerate(uris)
    )
    below = f' <span class="soft">{told}</span>' if told else ""
    return f'<h3>{escape(name)}{below}</h3><div class="row">{pictures}</div>'
