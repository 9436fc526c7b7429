"""The elbow of a curve that falls: after it, more clusters gain little."""

from collections.abc import Sequence

import numpy as np


def elbow(num_clusters: Sequence[int], losses: Sequence[float]) -> int | None:
    """The number of clusters after which the loss falls less.

    It is where the curve lies farthest below the chord between its ends. The curve is first made
    what perfect fits would give, by taking for each K the least loss of no more clusters: a better
    fit of K clusters is one of more clusters, too. Drawing its lower convex hull would not change
    the choice, as what lies farthest below a line is a corner of the hull.

    The choice depends on the range of K, and means little where the curve has no bend: look at it.

    Args:
        num_clusters: Values of K, all different, in any order.
        losses: The loss of each, summed or averaged; may be negative.

    Returns:
        One of the K, the least of several that are as good; None where there is no bend: fewer
        than three K, or no loss below the chord.

    Raises:
        ValueError: If the two differ in length, a K occurs twice, or a loss is not a finite number.

    References:
        Satopää et al., Finding a "Kneedle" in a Haystack, 2011; Monnier et al., DTI clustering,
        App. C.3.
    """
    ks, values = np.asarray(num_clusters), np.asarray(losses, dtype=np.float64)
    if ks.shape != values.shape or ks.ndim != 1:
        raise ValueError(
            f"every K needs one loss; got {ks.shape} values of K and {values.shape} losses"
        )
    if len(np.unique(ks)) != len(ks):
        raise ValueError(f"every K may occur once only; got {ks.tolist()}")
    if not np.isfinite(values).all():
        raise ValueError(f"losses must be finite numbers; got {values.tolist()}")
    if len(ks) < 3:
        return None
    order = np.argsort(ks)
    ks, values = ks[order], np.minimum.accumulate(values[order])
    share = (ks - ks[0]) / (ks[-1] - ks[0])
    below = values[0] + share * (values[-1] - values[0]) - values
    # What rounding makes of a straight line is no bend.
    if below.max() <= 1e-9 * np.abs(values).max():
        return None
    return int(ks[below.argmax()])
