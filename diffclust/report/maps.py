"""The HTML of maps by t-SNE: samples before and after alignment."""

import numpy as np
from jaxtyping import Float

from diffclust.analysis import CommonStart
from diffclust.data import Dataset
from diffclust.models import Result, of_images
from diffclust.plotting import map_svg, neighbour_map
from diffclust.report.text import count
from diffclust.transforms import as_spatial

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
    result: Result, dataset: Dataset, others: CommonStart | None, *, most: int, seed: int
) -> str:
    """Maps side by side: images as they are, after the affine part of their alignments, aligned.

    Args:
        result: A fit of images.
        dataset: The images it was fitted to.
        others: Fits from the same start; an affine one among them aligns for the second map.
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
            alt = f"Map by t-SNE, {title.lower()}"
            svg = map_svg(points, result.assignments[chosen], alt=alt)
            panels.append(f"<figure><figcaption>{title}</figcaption>{svg}</figure>")
    if not panels:
        return ""
    which = "All" if len(chosen) == size else "A random draw of"
    note = (
        " Each image is aligned to the prototype of its own cluster, which alone draws clusters "
        "together: look for colours that mix."
        if len(panels) > 1
        else " This method aligns no images, so there is one map."
    )
    return (
        f'<div class="maps">{"".join(panels)}</div><p class="note">{which} '
        f"{count(len(chosen), 'image')}, placed by t-SNE so that images that are much alike lie "
        "close together; colours and numbers are clusters. Distances between groups, their sizes "
        f"and the directions mean nothing.{note}</p>"
    )


def _versions(
    result: Result, dataset: Dataset, others: CommonStart | None, chosen: np.ndarray
) -> list[tuple[str, np.ndarray]]:
    """Titles and images of the maps."""
    images = np.asarray(dataset.images[chosen])
    versions = [("As they came", images)]
    params = result.outcome.assignment.params[chosen]
    if result.model.descriptor.moves == "prototypes" or params.shape[1] == 0:
        return versions
    fits = () if others is None else others.results
    affine = next((fit for fit in fits if _is_affine(_affine_embedding(fit))), None)
    embedding = _affine_embedding(result)
    if affine is not None:
        aligned = affine.align(images, affine.outcome.assignment.params[chosen])
        versions.append((f"Aligned by {affine.model.descriptor.title}", aligned))
    elif embedding is not None and not _is_affine(embedding):
        # The affine maps nearest to the alignments.
        nearest = np.linalg.lstsq(embedding, np.asarray(params, np.float64).T, rcond=None)[0]
        part = (embedding @ nearest).T.astype(params.dtype)
        versions.append(("Aligned, the affine part alone", result.align(images, part)))
    versions.append(("Aligned", result.align(images, params)))
    return versions


def _affine_embedding(result: Result) -> Float[np.ndarray, "params 6"] | None:
    """The affine maps among a fit's alignments; None where these are no maps, or none of them."""
    transform = as_spatial(of_images(result).energy().transform)
    if transform is None or transform.affine_embedding is None:
        return None
    return np.asarray(transform.affine_embedding, np.float64)


def _is_affine(embedding: Float[np.ndarray, "params 6"] | None) -> bool:
    """Whether there are no other alignments than affine ones."""
    return embedding is not None and len(embedding) <= embedding.shape[1]
