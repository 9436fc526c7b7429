"""The HTML that compares clusters: with classes, and with other methods from the same start."""

from collections.abc import Sequence

import numpy as np

from diffclust import metrics
from diffclust.analysis import CommonStart
from diffclust.data import Collection
from diffclust.models import Result
from diffclust.report.drawing import data_uris
from diffclust.report.selection import class_name
from diffclust.report.text import count, escape, percent, whole

_MOST_ROWS, _MOST_COLUMNS = 40, 60

_DARK = 0.55
"""From this share of a class on a cell is so dark that its number must be light."""

_MOST_BYTES = 90_000
"""Of the prototypes of one row."""


def confusion_table(result: Result, dataset: Collection) -> str:
    """How many samples of each class are in each cluster, the best match on the diagonal.

    Args:
        result: A fit.
        dataset: The data it was fitted to.

    Returns:
        HTML; nothing without labels, or with more classes or clusters than a table can show.
    """
    if dataset.labels is None:
        return ""
    classes, clusters = np.unique(dataset.labels).tolist(), result.model.num_clusters
    if len(classes) > _MOST_ROWS or clusters > _MOST_COLUMNS:
        return ""
    table = np.zeros((len(classes), clusters), int)
    np.add.at(table, (np.searchsorted(classes, dataset.labels), result.assignments), 1)
    matched = metrics.best_mapping(dataset.labels, result.assignments)
    # Matched clusters by their class, then the others by the class they mostly are.
    order = sorted(
        range(clusters),
        key=lambda k: (k not in matched, matched.get(k, int(table[:, k].argmax())), k),
    )
    head = "".join(f'<th><a href="#cluster-{cluster}">{cluster}</a></th>' for cluster in order)
    body = "".join(
        f"<tr><th>{escape(class_name(dataset, label))}</th>"
        f"{_cells(counts[order], [matched.get(k) == label for k in order])}</tr>\n"
        for label, counts in zip(classes, table, strict=True)
    )
    agree = sum(int(table[classes.index(label), k]) for k, label in matched.items())
    total, noun = int(table.sum()), dataset.noun
    return (
        f'<div class="across"><table class="confusion"><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>"
        '<p class="note">Rows are classes, columns clusters; framed is the one-to-one match with '
        f"the most {noun}s in it, {whole(agree)} of {count(total, noun)} "
        f"({percent(agree / total)}). The fit never saw the classes.</p>"
    )


def _cells(counts: np.ndarray, is_match: Sequence[bool]) -> str:
    cells, total = [], max(1, int(counts.sum()))
    for number, match in zip(counts.tolist(), is_match, strict=True):
        share = number / total
        names = [*(["match"] if match else []), *(["dark"] if share > _DARK else [])]
        css_class = f' class="{" ".join(names)}"' if names else ""
        text = whole(number) if number else ""
        cells.append(f'<td{css_class} style="--share:{100 * share:.0f}%">{text}</td>')
    return "".join(cells)


def same_start_rows(result: Result, others: CommonStart, dataset: Collection) -> str:
    """The start, and the prototypes of other methods and of the fit from it, row by row.

    Args:
        result: The fit.
        others: Fits from the same start.
        dataset: The data, whose labels, where there are any, score the rows.

    Returns:
        HTML.
    """
    rows = [prototype_row("The start", "images drawn by k-means++", others.start)]
    for other in others.results:
        rows.append(prototype_row(_name(other), _scores(other, result, dataset), other.prototypes))
    name, scores = f"{_name(result)}, this fit", _scores(result, None, dataset)
    rows.append(prototype_row(name, scores, result.prototypes))
    moves = (
        " Moves that split one cluster in two and remove another may have given a column "
        "something else to do."
        if result.model.settings().get("split_merge")
        else ""
    )
    note = (
        '<p class="note">Each column began as the image at its top; the other methods had one run '
        f"each from there.{moves} Losses of different methods are measured differently and are "
        "not compared.</p>"
    )
    return f'<div class="starts">{"".join(rows)}</div>{note}'


def _name(result: Result) -> str:
    title = result.model.descriptor.title
    return title[0].upper() + title[1:]


def _scores(result: Result, fit: Result | None, dataset: Collection) -> str:
    texts = []
    if dataset.labels is not None:
        scores = metrics.scores(dataset.labels, result.assignments)
        texts.append(f"accuracy {percent(scores['acc'])}, ARI {scores['ari']:.3f}")
    if fit is not None:
        same = metrics.adjusted_rand_index(fit.assignments, result.assignments)
        texts.append(f"agrees with this fit by an ARI of {same:.3f}")
    return "; ".join(texts).replace("-", "−")


def prototype_row(name: str, note: str, images: Sequence[np.ndarray] | np.ndarray) -> str:
    """Prototypes in a row, each in its own range of intensities.

    Args:
        name: What they are, any text.
        note: What is said beside the name, HTML; perhaps nothing.
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
    beside = f' <span class="soft">{note}</span>' if note else ""
    return f'<h3>{escape(name)}{beside}</h3><div class="row">{pictures}</div>'
