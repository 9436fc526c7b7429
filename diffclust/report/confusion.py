"""The HTML of the table of classes against clusters."""

import numpy as np

from diffclust import metrics
from diffclust.data import Collection
from diffclust.models import Result
from diffclust.report.text import count, escape, percent, whole

_MOST_ROWS, _MOST_COLUMNS = 40, 60

_DARK = 0.55
"""From this share of a class on a cell is so dark that its number must be light."""


def confusion_section(result: Result, dataset: Collection) -> str:
    """How many samples of each class are in each cluster, the best match on the diagonal.

    Args:
        result: A fit.
        dataset: The data it was fitted to.

    Returns:
        HTML; nothing without labels, or with more classes or clusters than a table can show.
    """
    if dataset.labels is None:
        return ""
    classes, clusters = np.unique(dataset.labels), result.model.num_clusters
    if len(classes) > _MOST_ROWS or clusters > _MOST_COLUMNS:
        return ""
    table = np.zeros((len(classes), clusters), int)
    np.add.at(table, (np.searchsorted(classes, dataset.labels), result.assignments), 1)
    matched = metrics.best_mapping(dataset.labels, result.assignments)
    order = sorted(range(clusters), key=lambda cluster: _place(cluster, matched, table))
    names = [_name(dataset, int(label)) for label in classes]
    head = "".join(f'<th><a href="#cluster-{cluster}">{cluster}</a></th>' for cluster in order)
    body = "".join(
        f"<tr><th>{escape(names[row])}</th>{_cells(table[row], order, int(classes[row]), matched)}"
        "</tr>\n"
        for row in range(len(classes))
    )
    agree = sum(int(table[list(classes).index(c), k]) for k, c in matched.items())
    total, noun = int(table.sum()), dataset.noun
    return (
        f'<div class="across"><table class="confusion"><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>"
        '<p class="note">Rows are classes, columns clusters; framed is the one-to-one match with '
        f"the most {noun}s in it, {whole(agree)} of {count(total, noun)} "
        f"({percent(agree / total)}). The fit never saw the classes.</p>"
    )


def _place(cluster: int, matched: dict[int, int], table: np.ndarray) -> tuple[int, int, int]:
    """Matched clusters by their class, then the others by the class they mostly are."""
    if cluster in matched:
        return 0, matched[cluster], cluster
    return 1, int(table[:, cluster].argmax()), cluster


def _cells(counts: np.ndarray, order: list[int], label: int, matched: dict[int, int]) -> str:
    total = max(1, int(counts.sum()))
    cells = []
    for cluster in order:
        number, share = int(counts[cluster]), int(counts[cluster]) / total
        classes = ["match"] if matched.get(cluster) == label else []
        classes += ["dark"] if share > _DARK else []
        named = f' class="{" ".join(classes)}"' if classes else ""
        shown = whole(number) if number else ""
        cells.append(f'<td{named} style="--share:{100 * share:.0f}%">{shown}</td>')
    return "".join(cells)


def _name(dataset: Collection, label: int) -> str:
    return str(label) if dataset.label_names is None else dataset.label_names[label]
