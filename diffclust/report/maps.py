"""The HTML of maps by t-SNE: samples as they came, and as they were aligned."""

import numpy as np
from jaxtyping import Float

from diffclust.data import Dataset
from diffclust.models import AbstractGradientModel, Result, of_images
from diffclust.models.one_start import FromOneStart
from diffclust.plotting.maps import map_svg, neighbour_map
from diffclust.report.text import count
from diffclust.transforms import AbstractSpatialTransform

MOST_MAPPED = 2_000
"""Samples a map shows at most."""


def check_map_samples(count: int, name: str) -> None:
    """Refuses numbers of samples that no map can have.

    Args:
        count: The number.
        name: What it is called in the message.

    Raises:
        ValueError: If it is out of range.
    """
    if not 0 <= count <= MOST_MAPPED:
        raise ValueError(f"{name} must be between 0 (no maps) and {MOST_MAPPED:,}, not {count}")


def map_section(
    result: Result, dataset: Dataset, others: FromOneStart | None, *, most: int, seed: int
) -> str:
    """Maps side by side: nothing moved, the affine part of every alignment, all of it.

    Args:
        result: A fit of images.
        dataset: The images it was fitted to.
        others: Fits from the same start; AI K-means among them aligns for the second map.
        most: Most images that are shown, drawn at random.
        seed: Seed of the draw and of t-SNE.

    Returns:
        HTML; nothing where there are too few images for a map.
    """
    size = len(result.assignments)
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(size, min(most, MOST_MAPPED, size), replace=False))
    panels = []
    for title, images in _versions(result, dataset, others, chosen):
        points = neighbour_map(images, seed=seed)
        if points is not None:
            said = f"Map by t-SNE, {title.lower()}"
            drawn = map_svg(points, result.assignments[chosen], alt=said)
            panels.append(f"<figure><figcaption>{title}</figcaption>{drawn}</figure>")
    if not panels:
        return ""
    which = "All" if len(chosen) == size else "A random draw of"
    of_all = count(len(chosen), "image")
    drawn_together = (
        " Each image is aligned to the prototype of its own cluster, which alone draws clusters "
        "together: look for colours that mix."
        if len(panels) > 1
        else ""
    )
    lone = " This method aligns no images, so there is one map." if len(panels) == 1 else ""
    return (
        f'<div class="maps">{"".join(panels)}</div>'
        f'<p class="note">{which} {of_all}, placed by t-SNE so that images that are much alike lie '
        "close together; colours and numbers are clusters. Distances between groups, their sizes "
        f"and the directions mean nothing.{lone}{drawn_together}</p>"
    )


def _versions(
    result: Result, dataset: Dataset, others: FromOneStart | None, chosen: np.ndarray
) -> list[tuple[str, np.ndarray]]:
    """Titles and images of the maps."""
    images = np.asarray(dataset.images[chosen])
    versions = [("As they came", images)]
    params = result.outcome.assignment.params[chosen]
    if isinstance(result.model, AbstractGradientModel) or params.shape[1] == 0:
        return versions
    fits = () if others is None else others.results
    affine = next((fit for fit in fits if fit.model.method == "ai-kmeans"), None)
    part = _affine_part(result, params)
    if affine is not None:
        moved = affine.align(images, affine.outcome.assignment.params[chosen])
        versions.append(("Aligned by AI K-means", moved))
    elif part is not None:
        versions.append(("Aligned, the affine part alone", result.align(images, part)))
    versions.append(("Aligned", result.align(images, params)))
    return versions


def _affine_part(
    result: Result, params: Float[np.ndarray, "n params"]
) -> Float[np.ndarray, "n params"] | None:
    """The affine maps nearest to alignments; None where they are affine or no maps at all."""
    transform = of_images(result).energy().transform
    if not isinstance(transform, AbstractSpatialTransform) or transform.affine_embedding is None:
        return None
    embedding = np.asarray(transform.affine_embedding, np.float64)
    if len(embedding) <= embedding.shape[1]:
        return None
    found = np.linalg.lstsq(embedding, np.asarray(params, np.float64).T, rcond=None)[0]
    return (embedding @ found).T.astype(params.dtype)
