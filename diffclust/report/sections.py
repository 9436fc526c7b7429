"""The HTML between a fit and its clusters: film, other methods, confusion table, maps."""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont

from diffclust import metrics
from diffclust.analysis import CommonStart
from diffclust.data import Collection, Dataset
from diffclust.data.dataset import draw
from diffclust.methods import plural
from diffclust.models import Result
from diffclust.models.selection import counted
from diffclust.plotting import Film, Frame, as_picture, map_svg, neighbour_map
from diffclust.plotting.maps import NUM_MARKERS, marker
from diffclust.report.members import LARGEST_WEBP
from diffclust.report.page import data_uris, picture_uri, shaded_cell, shaded_table
from diffclust.report.selection import class_name, coarsening
from diffclust.report.text import SCORES, count, escape, integer, percent
from diffclust.sampling import block_means

MOST_MAPPED = 2_000
"""Samples a map shows at most."""

_MOST_ROWS, _MOST_COLUMNS = 40, 60
"""Of a confusion table."""

_MOST_BYTES = 90_000
"""Of the prototypes of one row."""

_STILLS_COUNT = 4
"""Moments that stand for an animation."""

_MAP_SIDE = 64
"""Pixels a side, at most, of images that are compared for the maps."""

_TILE = 80
"""Pixels that the longer side of a prototype in a film has at least."""

_GAP, _LETTERS = 8, 0.03
"""Between tiles in pixels; size of all letters as a part of a film's width, at least 14 pixels."""

_GREY = (128, 128, 128, 255)
"""Of all writing in pictures: legible on light and on dark pages."""

_NARROW = 300
"""Moments of a film that are no wider than this many pixels stand side by side as stills."""

_FRAME_MS, _PAUSE_MS = 140, 1800
"""How long a frame is shown, and the first and the last one."""

_MOST_CHARACTERS = 533_000
"""Of an animated picture as a `data:` URI."""

_STILLS = "(prefers-reduced-motion: reduce), print"
"""Where stills are shown at once."""


def film_section(result: Result, film: Film | None) -> str:
    """An animated picture of all prototypes, and four moments of it.

    Args:
        result: The fit.
        film: The callback that watched it, or None.

    Returns:
        HTML; nothing without a film.
    """
    if film is None or not (frames := film.frames(result)):
        return ""
    unit = film.unit
    height, width = frames[-1].pictures.shape[1:3]
    # Whole multiples of a small one's own size.
    factor = max(1, math.ceil(_TILE / max(height, width)))
    sheets = [_sheet(frame, unit, (width * factor, height * factor)) for frame in frames]
    moments = np.unique(np.linspace(0, len(sheets) - 1, _STILLS_COUNT).round().astype(int)).tolist()
    width, height = sheets[0].size
    # Wide ones below each other, so that a telephone does not make their letters smaller still.
    beside = 2 if width < _NARROW or _STILLS_COUNT * height > LARGEST_WEBP else 1
    if max(2 * width, 2 * height) > LARGEST_WEBP:
        return ""  # of thousands of clusters nothing could be seen
    stills = picture_uri(_tiled([sheets[i] for i in moments], beside), "webp", quality=75)
    prototypes = count(len(frames[-1].pictures), "prototype")
    first, last = frames[0].done, frames[-1].done
    ends = f"{unit} {first} to {unit} {last}"
    kept = (
        "" if len(frames) > last - first else f", of which {integer(len(frames))} moments are kept"
    )
    if (coarser := coarsening(result)) > 1:
        kept += f"; at first on {plural(result.model.words.noun)} {coarser} times coarser"
    return (
        f'<figure class="film"><picture><source media="{_STILLS}" srcset="{stills}">'
        f'<img src="{_animation(sheets)}" width="{width}" height="{height}" '
        f'alt="The {prototypes} from {ends}"></picture>'
        f"<figcaption>From {ends}: {count(last - first, unit)}{kept}. Each prototype is drawn in "
        'its own range. <button type="button" class="stills" hidden>Show stills</button>'
        "</figcaption></figure>"
    )


def _sheet(frame: Frame, unit: str, size: tuple[int, int]) -> Image.Image:
    """All prototypes of a moment with their numbers, and below them how far the fit was."""
    clusters, (width, height) = len(frame.pictures), size
    # Of large images restarts see coarse ones, which need not look coarser than they are.
    small = max(size) % max(frame.pictures.shape[1:3]) == 0 and max(size) < 2 * _TILE
    resampling = Image.Resampling.NEAREST if small else Image.Resampling.BICUBIC
    columns = min(clusters, 5) if clusters <= 20 else min(8, math.ceil(math.sqrt(2 * clusters)))
    columns = max(columns, math.ceil(math.sqrt(clusters / 2)))
    letters = max(14, round(_LETTERS * columns * (width + _GAP)))
    font, tiles = ImageFont.load_default(letters), []
    for cluster, pixels in enumerate(frame.pictures):
        tile = Image.new("RGBA", (width, height + letters + _GAP))
        tile.paste(as_picture(pixels).convert("RGB").resize(size, resampling))
        place = (width / 2, height + 2)
        ImageDraw.Draw(tile).text(place, str(cluster), _GREY, font, anchor="ma")
        tiles.append(tile)
    sheet = _tiled(tiles, columns, below=letters + _GAP)
    place = (0, sheet.height - letters - _GAP)
    ImageDraw.Draw(sheet).text(place, f"{unit} {frame.done}", _GREY, font)
    return sheet


def _tiled(tiles: Sequence[Image.Image], columns: int, below: int = 0) -> Image.Image:
    """Pictures of one size side by side and below each other, and room below all of them."""
    width, height, columns = tiles[0].width + _GAP, tiles[0].height + _GAP, min(columns, len(tiles))
    size = columns * width, math.ceil(len(tiles) / columns) * height + below
    sheet = Image.new("RGBA", size)
    for number, tile in enumerate(tiles):
        sheet.paste(tile, (number % columns * width, number // columns * height))
    return sheet


def _animation(sheets: Sequence[Image.Image]) -> str:
    """An animated WebP; with fewer frames where it would be too large."""
    kept, options = list(sheets), {"quality": 70, "alpha_quality": 60, "method": 3, "loop": 0}
    while True:
        times = [_PAUSE_MS, *[_FRAME_MS] * (len(kept) - 2), _PAUSE_MS]
        options |= {"save_all": True, "append_images": kept[1:], "duration": times}
        uri = picture_uri(kept[0], "webp", **options)
        if len(uri) <= _MOST_CHARACTERS or len(kept) <= 4:
            return uri
        kept = [*kept[:-1:2], kept[-1]]


def confusion_table(result: Result, dataset: Collection) -> str:
    """Draws the number of samples of each class in each cluster, the best match on the diagonal.

    Args:
        result: A fit.
        dataset: The data it was fitted to.

    Returns:
        HTML; nothing without labels, and one sentence where there are more classes or clusters
        than a table can show.
    """
    if dataset.labels is None:
        return ""
    own = counted(result.outcome)
    labels, assignments = dataset.labels[own], result.assignments[own]
    classes, clusters = np.unique(labels).tolist(), result.model.num_clusters
    if len(classes) > _MOST_ROWS or clusters > _MOST_COLUMNS:
        return (
            f'<p class="note">A table is shown of at most {_MOST_ROWS} classes and '
            f"{_MOST_COLUMNS} clusters; there are {len(classes)} and {clusters}.</p>"
        )
    table = np.zeros((len(classes), clusters), int)
    np.add.at(table, (np.searchsorted(classes, labels), assignments), 1)
    matched = metrics.best_mapping(labels, assignments)
    # Matched clusters by their class, then the others by the class they mostly are.
    order = sorted(
        range(clusters),
        key=lambda k: (k not in matched, matched.get(k, int(table[:, k].argmax())), k),
    )
    rows = []
    for label, counts in zip(classes, table[:, order].tolist(), strict=True):
        cells = [
            shaded_cell(
                number / max(1, sum(counts)),
                integer(number) if number else "",
                *["match"] * (matched.get(cluster) == label),
            )
            for cluster, number in zip(order, counts, strict=True)
        ]
        rows.append((class_name(dataset, label), cells))
    links = (f'<a href="#cluster-{k}">{k}</a>' for k in order)
    shown = shaded_table(links, rows, ("class", "cluster"))
    agree = sum(int(table[classes.index(label), k]) for k, label in matched.items())
    total, noun = int(table.sum()), dataset.noun
    return (
        f'{shown}<p class="note">Rows are classes, columns clusters; framed is the one-to-one '
        f"match with the most {plural(noun)} in it, {integer(agree)} of {count(total, noun)} "
        f"({percent(agree / total)}). The stronger a colour, the larger the share of the class. "
        "The fit never saw the classes.</p>"
    )


def common_start_rows(result: Result, dataset: Collection, others: CommonStart | None) -> str:
    """The start, and the prototypes of other methods and of the fit from it, row by row.

    Args:
        result: The fit.
        dataset: The data, whose labels, where there are any, score the rows.
        others: Fits from the same start, or None.

    Returns:
        HTML; nothing without other fits.
    """
    if others is None:
        return ""
    rows = [prototype_row("The start", f"{plural(dataset.noun)} drawn by k-means++", others.start)]
    own = counted(result.outcome)
    for fit in (*others.results, result):
        texts, title = [], fit.model.descriptor.title
        if dataset.labels is not None:
            scores = metrics.scores(dataset.labels[own], fit.assignments[own])
            accuracy, ari = percent(scores["acc"]), f"{scores['ari']:.3f}"
            texts.append(f"{SCORES['acc']} {accuracy}, {SCORES['ari']} {ari}")
        if fit is not result:
            same = metrics.adjusted_rand_index(result.assignments[own], fit.assignments[own])
            texts.append(f"adjusted Rand index with this fit {same:.3f}")
        name = f"{title[0].upper()}{title[1:]}{', this fit' if fit is result else ''}"
        rows.append(prototype_row(name, "; ".join(texts).replace("-", "−"), fit.prototypes))
    moves = (
        " Moves that split one cluster in two and remove another may have given a column "
        "something else to do."
        if others.split_merge
        else ""
    )
    return (
        f'<div class="starts">{"".join(rows)}</div><p class="note">Each column began as the image '
        f"at its top; the other methods had one run each from there.{moves} Losses of different "
        "methods are measured differently and are not compared.</p>"
    )


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
    result: Result, dataset: Collection, others: CommonStart | None, *, most: int, seed: int
) -> str:
    """Maps side by side: images as they are, registered or after the affine part, and aligned.

    Args:
        result: A fit.
        dataset: The samples it was fitted to.
        others: Fits from the same start; an affine one among them aligns for the second map, where
            images are not registered.
        most: Most images that are shown, drawn at random; 0 for no maps.
        seed: Seed of the draw and of t-SNE.

    Returns:
        HTML; nothing for shapes, and where there are fewer than 30 images.
    """
    if not most or not isinstance(dataset, Dataset):
        return ""
    size = len(result.assignments)
    chosen, panels = draw(size, most, seed), []
    for title, points in _mapped(_versions(result, dataset, others, chosen), seed):
        if points is not None:
            alt = f"Map by t-SNE, {title.lower()}"
            svg = map_svg(points, result.assignments[chosen], alt=alt)
            panels.append(f"<figure><figcaption>{title}</figcaption>{svg}</figure>")
    if not panels:
        return ""
    groups = np.unique(result.assignments[chosen]).tolist()
    legend = "".join(
        f'<button type="button" value="{group}" aria-label="Show cluster {group} alone">'
        f'<i class="{marker(group)}"></i>{group}</button>'
        for group in groups
    )
    which = "All" if len(chosen) == size else "A random draw of"
    note = (
        f" Each {dataset.noun} is aligned to the prototype of its own cluster, which alone draws "
        "clusters together: look for colours that mix."
        if _aligns(result)
        else f" This method aligns no {plural(dataset.noun)}."
    )
    again = ", and colours repeat: press a number above the maps to see that cluster alone"
    again = again if groups[-1] >= NUM_MARKERS else ""
    return (
        f'<div class="legend"><span class="soft">Cluster</span>{legend}</div>'
        f'<div class="maps">{"".join(panels)}</div><p class="note">{which} '
        f"{count(len(chosen), dataset.noun)}, placed by t-SNE so that those that are much alike "
        f"lie close together; colours and numbers are clusters{again}. Distances between groups, "
        f"their sizes and the directions mean nothing.{note}</p>"
    )


def _mapped(
    versions: Iterable[tuple[str, np.ndarray]], seed: int
) -> list[tuple[str, Float[np.ndarray, "n 2"] | None]]:
    """Titles and places of the maps, which are made beside each other."""
    import sklearn.manifold  # noqa: F401
    from threadpoolctl import threadpool_limits

    # One after the other: of large images there is room for few.
    small = ((title, block_means(images, _MAP_SIDE)) for title, images in versions)
    titles, images = zip(*small, strict=True)
    # Set once what each would set: threads that end in turn would leave it as it was not.
    with threadpool_limits(limits=1), ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(zip(titles, pool.map(partial(neighbour_map, seed=seed), images), strict=True))


def _aligns(result: Result) -> bool:
    """Whether images are moved onto prototypes."""
    moves = result.model.descriptor.moves
    return moves != "prototypes" and result.outcome.assignment.params.shape[1] > 0


def _versions(
    result: Result, dataset: Dataset, others: CommonStart | None, chosen: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Titles and images of the maps."""
    images = np.asarray(dataset.images[chosen])
    yield "As they came", images
    params = result.outcome.assignment.params[chosen]
    if is_registered := result.model.registers:
        yield "Registered", np.asarray(result.registered(images))
    if not _aligns(result):
        return
    if is_registered:
        yield "Aligned", result.align(images, params)
        return
    fits = () if others is None else others.results
    affine = next((fit for fit in fits if _is_affine(_affine_embedding(fit))), None)
    embedding = _affine_embedding(result)
    if affine is not None:
        aligned = affine.align(result.registered(images), affine.outcome.assignment.params[chosen])
        yield f"Aligned by {affine.model.descriptor.title}", aligned
    elif embedding is not None and not _is_affine(embedding):
        # The affine maps nearest to the alignments.
        nearest = np.linalg.lstsq(embedding, np.asarray(params, np.float64).T, rcond=None)[0]
        part = (embedding @ nearest).T.astype(params.dtype)
        yield "Aligned, the affine part alone", result.align(images, part)
    yield "Aligned", result.align(images, params)


def _affine_embedding(result: Result) -> Float[np.ndarray, "params 6"] | None:
    """The affine maps among a fit's alignments; None where these are no maps, or none of them."""
    spatial = result.model.spatial_transform
    embedding = None if spatial is None else spatial.affine_embedding
    return None if embedding is None else np.asarray(embedding, np.float64)


def _is_affine(embedding: Float[np.ndarray, "params 6"] | None) -> bool:
    """Whether there are no other alignments than affine ones."""
    return embedding is not None and len(embedding) <= embedding.shape[1]
