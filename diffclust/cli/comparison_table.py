"""The figures of compared runs as a table of texts, and what has to be said of them."""

import math

from diffclust.cli.agreement import Comparison

SCORES = {"acc": "accuracy", "nmi": "NMI", "ari": "ARI"}
"""Scores against labels, by their names in a summary."""


def comparison_rows(found: Comparison) -> tuple[list[str], list[list[str]]]:
    """The table of figures.

    Args:
        found: The comparison.

    Returns:
        The heads of the columns, and the rows as texts.
    """
    scores = [name for name in SCORES if any(name in run.summary for run in found.runs)]
    comparable = any(found.groups)
    head = ["run", "method", "k", "samples", "loss", *(["comparable"] if comparable else [])]
    head += ["time", *(SCORES[name] for name in scores)]
    rows = []
    for name, run, group, best in zip(
        found.names, found.runs, found.groups, found.best, strict=True
    ):
        summary = run.summary
        row = [name, summary["method"], str(summary["k"]), str(summary["n"])]
        row.append(f"{summary['loss']:.6g}")
        if comparable:
            row.append(f"{group}{', least' if best else ''}")
        row.append(f"{summary['seconds']:.1f} s")
        row += [f"{summary[score]:.3f}" if score in summary else "" for score in scores]
        rows.append(row)
    return head, rows


def notes(found: Comparison) -> list[str]:
    """What has to be said of the figures.

    Args:
        found: The comparison.

    Returns:
        Sentences.
    """
    said = []
    if any(found.groups):
        said.append(
            "Losses are compared within a letter only: there the method, its settings, K and the "
            "samples are the same."
        )
    else:
        said.append(
            "No two losses can be compared: that takes the same method, settings, K and samples."
        )
    count = len(found.runs)
    pairs = [(i, j) for i in range(count) for j in range(i)]
    if any(math.isnan(found.agreement[pair]) for pair in pairs):
        said.append("Runs that share no samples have no agreement.")
    elif any(
        found.shared[i, j] < max(len(found.runs[i].indices), len(found.runs[j].indices))
        for i, j in pairs
    ):
        said.append("Agreement is that over the samples which two runs share.")
    return said
