"""Flat maps of samples in which neighbours stay neighbours (t-SNE), drawn by cluster."""

import html
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from diffclust._renamed import renamed_keywords

_SIDE = 1000
"""Units of a drawn map."""

_MARGIN, _LETTERS = 64, 44
"""Around the samples, and height of the names, in the same units."""

_PERPLEXITY = 30.0

_LEAST = 30
"""Fewer samples than this have no neighbourhoods to show."""

_COMPONENTS = 50

NUM_MARKERS = 20
"""Groups that can be told apart: dots of ten colours, and rings of the same."""


def marker(group: int) -> str:
    """CSS classes of a group's markers.

    Args:
        group: Its number.

    Returns:
        `colour-0` to `colour-9`, with `ring` beside every second ten of them.
    """
    return f"colour-{group % 10}{' ring' * (group // 10 % 2)}"


def neighbour_map(samples: np.ndarray, *, seed: int = 0) -> Float[np.ndarray, "n 2"] | None:
    """Samples in the plane by t-SNE, from their leading 50 principal components.

    Args:
        samples: Samples with a leading axis.
        seed: Seed of what is random.

    Returns:
        Their places; None where there are fewer than 30, or all are the same.

    References:
        van der Maaten and Hinton (2008), Visualizing data using t-SNE; Cosentino et al., DI
        K-means, Fig. 4.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    count = len(samples)
    # The principal axes are far less exact in float32 where a sample has very many pixels.
    rows = np.asarray(samples, np.float64).reshape(count, -1)
    if count < _LEAST or not np.ptp(rows, axis=0).any():
        return None
    kept = min(_COMPONENTS, *rows.shape)
    rows = PCA(kept, svd_solver="auto", random_state=seed).fit_transform(rows)
    perplexity = min(_PERPLEXITY, (count - 1) / 4)
    start = rows[:, :2] if rows.shape[1] > 1 else np.repeat(rows, 2, axis=1)
    deviation = start.std(axis=0)
    start = 1e-4 * start / np.where(deviation > 0.0, deviation, 1.0)
    tsne = TSNE(
        init=start.astype(np.float32), perplexity=perplexity, max_iter=500, random_state=seed
    )
    # On a busy machine several threads wait for each other many times longer than they work.
    with threadpool_limits(limits=1):
        return np.asarray(tsne.fit_transform(rows.astype(np.float32)), np.float64)


@renamed_keywords(said="alt")
def map_svg(
    points: Float[np.ndarray, "n 2"],
    groups: Int[np.ndarray, " n"],
    *,
    alt: str,
    names: Sequence[str] | None = None,
) -> str:
    """A map as an inline SVG, each group in its colour and with its name at its middle.

    Colours are the CSS classes of `marker`, again and again.

    Args:
        points: Places of the samples.
        groups: A number for each, from 0.
        alt: A description for those who cannot see it.
        names: Name of each group; its number where they are not given.

    Returns:
        An `<svg>` element.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    span = max(float((high - low).max()), 1e-12)
    middle = (low + high) / 2
    drawn = _SIDE / 2 + (points - middle) / span * (_SIDE - 2 * _MARGIN)
    dots, texts = [], []
    for group in np.unique(groups).tolist():
        own = drawn[groups == group]
        path = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in own.tolist())
        drawn_as = marker(group)
        holes = f'<path class="hole" d="{path}"/>' if "ring" in drawn_as else ""
        dots.append(f'<g data-group="{group}"><path class="{drawn_as}" d="{path}"/>{holes}</g>')
        # The sample nearest to the median: the median itself may lie where none is.
        x, y = own[np.abs(own - np.median(own, axis=0)).sum(axis=1).argmin()].tolist()
        name = str(group if names is None else names[group])
        # Above it, or the name would hide a group that is small.
        place = f'x="{x:.0f}" y="{max(_LETTERS / 2, y - _LETTERS):.0f}"'
        texts.append(f'<text data-group="{group}" {place}>{html.escape(name)}</text>')
    crowded = ' class="crowded"' if len(texts) > NUM_MARKERS else ""
    return (
        f'<svg viewBox="0 0 {_SIDE} {_SIDE}" role="img" aria-label="{html.escape(alt)}">'
        '<g fill="none" stroke="currentColor" stroke-linecap="round">'
        f"{''.join(dots)}</g><g{crowded}>{''.join(texts)}</g></svg>"
    )
