"""How well assignments agree with labels: accuracy (Hungarian), NMI and ARI.

Labels are for evaluation only; no fit sees them. Labels and assignments are any integers or
strings, in any order and with gaps, and the number of clusters need not be that of classes.
"""

from typing import Any

import numpy as np

_Codes = tuple[np.ndarray, np.ndarray]
"""Distinct values, and the index of each entry among them."""


def contingency_table(labels: object, assignments: object) -> np.ndarray:
    """Count the samples of every class in every cluster.

    Args:
        labels: The classes of n samples, array-like `[n]` of integers or strings.
        assignments: The clusters of the same samples, array-like `[n]` of integers or strings.

    Returns:
        Counts, int64 `[classes, clusters]`; rows and columns in sorted order of the values that
        occur.

    Raises:
        ValueError: If either is empty, not one-dimensional, not of integers or strings, or if
            their lengths differ.
    """
    return _tabulate(labels, assignments)[2]


def best_mapping(labels: object, assignments: object) -> dict[Any, Any]:
    """Match clusters to classes one to one so that the most samples agree.

    Args:
        labels: The classes of n samples, array-like `[n]` of integers or strings.
        assignments: The clusters of the same samples, array-like `[n]` of integers or strings.

    Returns:
        The class of each matched cluster. With more clusters than classes some clusters have no
        class and are absent; with fewer, some classes are not a value.

    Raises:
        ValueError: As in `contingency_table`.

    References:
        H. W. Kuhn, "The Hungarian method for the assignment problem", 1955.
    """
    classes, clusters, table = _tabulate(labels, assignments)
    rows, columns = _match(table)
    return dict(zip(clusters[columns].tolist(), classes[rows].tolist(), strict=True))


def accuracy(labels: object, assignments: object) -> float:
    """Share of samples whose cluster is matched to their class, under the best matching.

    The matching is one to one, so with more clusters than classes the samples of an unmatched
    cluster count as wrong, and with fewer those of an unmatched class do.

    Args:
        labels: The classes of n samples, array-like `[n]` of integers or strings.
        assignments: The clusters of the same samples, array-like `[n]` of integers or strings.

    Returns:
        The accuracy, in (0, 1].

    Raises:
        ValueError: As in `contingency_table`.

    References:
        DI K-means (`di-kmeans`), Eq. 5.
    """
    table = contingency_table(labels, assignments)
    return float(table[_match(table)].sum() / table.sum())


def normalized_mutual_information(labels: object, assignments: object) -> float:
    """Mutual information of labels and assignments over the arithmetic mean of their entropies.

    Args:
        labels: The classes of n samples, array-like `[n]` of integers or strings.
        assignments: The clusters of the same samples, array-like `[n]` of integers or strings.

    Returns:
        The NMI, in [0, 1]; 1 when both are one single group.

    Raises:
        ValueError: As in `contingency_table`.

    References:
        N. X. Vinh, J. Epps, J. Bailey, "Information theoretic measures for clusterings
        comparison", 2010; scikit-learn's `normalized_mutual_info_score`.
    """
    rows, columns, cells = _counts(labels, assignments)
    both = _entropy(rows) + _entropy(columns)
    if both == 0.0:
        return 1.0
    # Rounding may step over the bounds.
    return float(np.clip(2.0 * (both - _entropy(cells)) / both, 0.0, 1.0))


def adjusted_rand_index(labels: object, assignments: object) -> float:
    """Share of pairs of samples that both partitions treat alike, corrected for chance.

    Args:
        labels: The classes of n samples, array-like `[n]` of integers or strings.
        assignments: The clusters of the same samples, array-like `[n]` of integers or strings.

    Returns:
        The ARI, at most 1, near 0 for independent partitions, and below 0 when worse than chance.

    Raises:
        ValueError: As in `contingency_table`.

    References:
        L. Hubert, P. Arabie, "Comparing partitions", 1985, Eq. 5.
    """
    # Python integers: products of pair counts pass 2^63 at some 80,000 samples.
    rows, columns, cells = _counts(labels, assignments)
    in_classes, in_clusters, in_both = map(_pairs, (rows, columns, cells))
    all_pairs = _pairs(rows.sum(keepdims=True))
    if in_classes == in_clusters and (in_classes in (0, all_pairs)):
        return 1.0
    # All four terms are multiplied by the number of pairs, which keeps them exact.
    chance = in_classes * in_clusters
    most = (in_classes + in_clusters) * all_pairs
    return 2 * (in_both * all_pairs - chance) / (most - 2 * chance)


def scores(labels: object, assignments: object) -> dict[str, float]:
    """Accuracy, NMI and ARI at once.

    Args:
        labels: The classes of n samples, array-like `[n]` of integers or strings.
        assignments: The clusters of the same samples, array-like `[n]` of integers or strings.

    Returns:
        `{"acc": ..., "nmi": ..., "ari": ...}`.

    Raises:
        ValueError: As in `contingency_table`.
    """
    return {
        "acc": accuracy(labels, assignments),
        "nmi": normalized_mutual_information(labels, assignments),
        "ari": adjusted_rand_index(labels, assignments),
    }


def _tabulate(labels: object, assignments: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The classes, the clusters, and the table of counts."""
    (classes, row), (clusters, column) = _paired_codes(labels, assignments)
    cells = np.bincount(row * clusters.size + column, minlength=classes.size * clusters.size)
    return classes, clusters, cells.reshape(classes.size, clusters.size).astype(np.int64)


def _counts(labels: object, assignments: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sizes of the classes, of the clusters, and of what both share, all of them positive."""
    (_, row), (clusters, column) = _paired_codes(labels, assignments)
    _, cells = np.unique(row * clusters.size + column, return_counts=True)
    return np.bincount(row), np.bincount(column), cells


def _paired_codes(labels: object, assignments: object) -> tuple[_Codes, _Codes]:
    """The codes of labels and of assignments, as many of both."""
    rows, columns = _codes(labels, "labels"), _codes(assignments, "assignments")
    if rows[1].size != columns[1].size:
        raise ValueError(
            f"labels and assignments must have one entry for each sample: got {rows[1].size} "
            f"labels and {columns[1].size} assignments; pass those of the same samples."
        )
    return rows, columns


def _codes(values: object, name: str) -> _Codes:
    """The distinct values, sorted, and the index of each entry among them."""
    if np.ma.is_masked(values):
        raise ValueError(f"{name} must not be masked; leave out the samples without one")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be one-dimensional: {error}") from error
    if isinstance(values, list | tuple) and array.dtype.kind == "U":
        kinds = sorted({type(value).__name__ for value in values if not isinstance(value, str)})
        if array.ndim == 1 and kinds:
            raise ValueError(f"{name} must be all integers or all strings: got {kinds[0]} too")
    if array.ndim != 1:
        raise ValueError(
            f"{name} must be one-dimensional: got shape {array.shape}; of one-hot rows take argmax."
        )
    if array.size == 0:
        raise ValueError(f"{name} must not be empty: got no entries; pass one for each sample.")
    if array.dtype.kind in "OT" and all(isinstance(value, str) for value in array):
        array = np.asarray(array.tolist())
    if array.dtype.kind not in "iubUS":
        raise ValueError(
            f"{name} must be integers or strings: got dtype {array.dtype}; try astype(int)."
        )
    distinct, codes = np.unique(array, return_inverse=True)
    return distinct, codes.astype(np.int64)


def _match(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the one-to-one matching with the largest sum."""
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(table, maximize=True)


def _entropy(counts: np.ndarray) -> float:
    """Entropy in nats of the distribution that counts (all positive) describe."""
    share = counts / counts.sum()
    # With a single group the sum is -0.0.
    return float(abs(np.sum(share * np.log(share))))


def _pairs(counts: np.ndarray) -> int:
    """Number of pairs within groups of these sizes."""
    sizes, times = np.unique(counts, return_counts=True)
    pairs = zip(sizes.tolist(), times.tolist(), strict=True)
    return sum(number * size * (size - 1) // 2 for size, number in pairs)
