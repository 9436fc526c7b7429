"""The HTML of a film: the prototypes pass by pass, and stills where nothing shall move."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from diffclust.plotting import Frame, as_picture
from diffclust.report.drawing import data_uri
from diffclust.report.text import count, whole

if TYPE_CHECKING:
    from PIL.Image import Image

_TILE = 80
"""Pixels that the longer side of a prototype has at least."""

_GAP, _LINE = 8, 18

_GREY = (128, 128, 128, 255)
"""Of all writing in pictures: legible on light and on dark pages."""

_FRAME_MS, _HELD_MS = 140, 1800
"""How long a frame is shown, and the first and the last one."""

_MOST_CHARACTERS = 533_000
"""Of an animated picture as a `data:` URI."""

_STILLS = "(prefers-reduced-motion: reduce), print"
"""Where stills are shown at once."""


def film_section(frames: Sequence[Frame], unit: str) -> str:
    """An animated picture of all prototypes, and four moments of it.

    Args:
        frames: At least two.
        unit: What the frames count: `"pass"` or `"step"`.

    Returns:
        HTML.
    """
    height, width = frames[-1].pictures.shape[1:3]
    # Whole multiples of a small one's own size.
    factor = max(1, math.ceil(_TILE / max(height, width)))
    sheets = [_sheet(frame, unit, (width * factor, height * factor)) for frame in frames]
    moments = np.unique(np.linspace(0, len(sheets) - 1, 4).round().astype(int)).tolist()
    stills = _tiled([sheets[i] for i in moments], columns=2)
    width, height = sheets[0].size
    prototypes = count(len(frames[-1].pictures), "prototype")
    first, last = frames[0].done, frames[-1].done
    ends = f"{unit} {first} to {unit} {last}"
    kept = "" if len(frames) > last - first else f", of which {whole(len(frames))} moments are kept"
    return (
        '<figure class="film"><picture>'
        f'<source media="{_STILLS}" srcset="{data_uri(stills, "webp", quality=75)}">'
        f'<img src="{_animation(sheets)}" width="{width}" height="{height}" '
        f'alt="The {prototypes} from {ends}"></picture>'
        f"<figcaption>From {ends}: {count(last - first, unit)}{kept}. Each prototype is drawn in "
        'its own range. <button type="button" class="stills" hidden>Show stills</button>'
        "</figcaption></figure>"
    )


def _sheet(frame: Frame, unit: str, size: tuple[int, int]) -> "Image":
    """All prototypes of a moment with their numbers, and below them how far the fit was."""
    from PIL import Image, ImageDraw, ImageFont

    clusters, (width, height) = len(frame.pictures), size
    # Of large images restarts see coarse ones, which need not look coarser than they are.
    small = max(size) % max(frame.pictures.shape[1:3]) == 0 and max(size) < 2 * _TILE
    way = Image.Resampling.NEAREST if small else Image.Resampling.BICUBIC
    font, tiles = ImageFont.load_default(12), []
    for cluster, pixels in enumerate(frame.pictures):
        tile = Image.new("RGBA", (width, height + _LINE))
        tile.paste(as_picture(pixels).convert("RGB").resize(size, way))
        draw = ImageDraw.Draw(tile)
        draw.text((width / 2, height + 2), str(cluster), _GREY, font, anchor="ma")
        tiles.append(tile)
    columns = clusters if clusters <= 5 else min(8, math.ceil(math.sqrt(2 * clusters)))
    sheet = _tiled(tiles, columns, below=_LINE)
    ImageDraw.Draw(sheet).text((0, sheet.height - _LINE), f"{unit} {frame.done}", _GREY, font)
    return sheet


def _tiled(tiles: Sequence["Image"], columns: int, below: int = 0) -> "Image":
    """Pictures of one size side by side and below each other, and room below all of them."""
    from PIL import Image

    width, height = tiles[0].width + _GAP, tiles[0].height + _GAP
    columns = min(columns, len(tiles))
    whole_sheet = Image.new(
        "RGBA", (columns * width, math.ceil(len(tiles) / columns) * height + below)
    )
    for number, tile in enumerate(tiles):
        row, column = divmod(number, columns)
        whole_sheet.paste(tile, (column * width, row * height))
    return whole_sheet


def _animation(sheets: Sequence["Image"]) -> str:
    """An animated WebP; with fewer frames where it would be too large."""
    kept = list(sheets)
    while True:
        times = [_HELD_MS, *[_FRAME_MS] * (len(kept) - 2), _HELD_MS]
        uri = data_uri(
            kept[0],
            "webp",
            save_all=True,
            append_images=kept[1:],
            duration=times,
            loop=0,
            quality=70,
            alpha_quality=60,
            method=3,
        )
        if len(uri) <= _MOST_CHARACTERS or len(kept) <= 4:
            return uri
        kept = [*kept[:-1:2], kept[-1]]
