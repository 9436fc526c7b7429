"""The HTML of a film: the prototypes pass by pass, and stills where nothing shall move."""

import base64
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from diffclust.plotting.film import Frame
from diffclust.report.text import count, whole

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_TILE = 80
"""Pixels that the longer side of a prototype has at least."""

_GAP, _LINE = 8, 18

_GREY = (128, 128, 128, 255)
"""Of all writing in pictures: legible on light and on dark pages."""

_FRAME_MS, _HELD_MS = 140, 1800
"""How long a frame is shown, and the first and the last one."""

_MOST_BYTES = 400_000

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
    size = _tile_size(frames[-1])
    sheets = [_sheet(frame, unit, size) for frame in frames]
    film, stills = _animation(sheets), _data_uri(_stills(sheets))
    width, height = sheets[0].size
    shown = len(frames[-1].pictures)
    ends = f"{unit} {frames[0].done} to {unit} {frames[-1].done}"
    done = frames[-1].done - frames[0].done
    plural = "passes" if unit == "pass" else f"{unit}s"
    every = "" if len(frames) > done else f", of which {whole(len(frames))} moments are kept"
    return (
        '<figure class="film"><picture>'
        f'<source media="{_STILLS}" srcset="{stills}">'
        f'<img src="{film}" width="{width}" height="{height}" '
        f'alt="The {count(shown, "prototype")} from {ends}"></picture>'
        f"<figcaption>From {ends}: {count(done, unit, plural)}{every}. Each prototype is drawn in "
        'its own range. <button type="button" class="stills" hidden>Show stills</button>'
        "</figcaption></figure>"
    )


def _tile_size(frame: Frame) -> tuple[int, int]:
    """Width and height of a prototype: whole multiples of a small one's own."""
    height, width = frame.pictures.shape[1:3]
    factor = max(1, math.ceil(_TILE / max(height, width)))
    return width * factor, height * factor


def _sheet(frame: Frame, unit: str, size: tuple[int, int]) -> "Picture":
    """All prototypes of a moment with their numbers, and below them how far the fit was."""
    from PIL import Image, ImageDraw, ImageFont

    clusters = len(frame.pictures)
    columns = clusters if clusters <= 5 else min(8, math.ceil(math.sqrt(2 * clusters)))
    rows = math.ceil(clusters / columns)
    width, height = size
    # Of large images restarts see coarse ones, which need not look coarser than they are.
    small = max(size) % max(frame.pictures.shape[1:3]) == 0 and max(size) < 2 * _TILE
    way = Image.Resampling.NEAREST if small else Image.Resampling.BICUBIC
    sheet = Image.new(
        "RGBA", (columns * (width + _GAP), rows * (height + _LINE + _GAP) + _LINE), (0, 0, 0, 0)
    )
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)
    for cluster, pixels in enumerate(frame.pictures):
        row, column = divmod(cluster, columns)
        x, y = column * (width + _GAP), row * (height + _LINE + _GAP)
        tile = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
        sheet.paste(tile.convert("RGB").resize(size, way), (x, y))
        draw.text((x + width / 2, y + height + 2), str(cluster), _GREY, font, anchor="ma")
    draw.text((0, sheet.height - _LINE), f"{unit} {frame.done}", _GREY, font)
    return sheet


def _animation(sheets: Sequence["Picture"]) -> str:
    """An animated WebP; with fewer frames where it would be too large."""
    kept = list(sheets)
    while True:
        times = [_FRAME_MS] * len(kept)
        times[0] = times[-1] = _HELD_MS
        file = io.BytesIO()
        kept[0].save(
            file,
            format="WEBP",
            save_all=True,
            append_images=kept[1:],
            duration=times,
            loop=0,
            quality=70,
            alpha_quality=60,
            method=3,
        )
        if file.tell() <= _MOST_BYTES or len(kept) <= 4:
            return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
        kept = [*kept[:-1:2], kept[-1]]


def _stills(sheets: Sequence["Picture"]) -> "Picture":
    """The start, two moments between, and the end."""
    from PIL import Image

    places = np.unique(np.linspace(0, len(sheets) - 1, 4).round().astype(int)).tolist()
    width, height = sheets[0].size
    columns = 1 if len(places) == 1 else 2
    rows = math.ceil(len(places) / columns)
    whole_sheet = Image.new("RGBA", (columns * (width + _GAP), rows * (height + _GAP)))
    for number, place in enumerate(places):
        row, column = divmod(number, columns)
        whole_sheet.paste(sheets[place], (column * (width + _GAP), row * (height + _GAP)))
    return whole_sheet


def _data_uri(picture: "Picture") -> str:
    file = io.BytesIO()
    picture.save(file, format="WEBP", quality=75)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
