"""Every member of the clusters, in files beside a report that it loads when somebody asks for them.

A page of members is a script (browsers load scripts from a disk, and nothing else that is text)
with their HTML, and for images one picture of all of them, or their originals where these are
larger.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
from PIL import Image

from diffclust.data import Dataset, Recordings
from diffclust.data.dataset import FileError
from diffclust.plotting.pictures import as_picture, displayable, picture_file
from diffclust.report.clusters import Gallery, Members, member_figure
from diffclust.report.page import titled_svg
from diffclust.report.selection import SampleInfo, sample_info
from diffclust.report.sounds import encoded
from diffclust.storage.staging import REPORT_MARK, check_target, staged

MOST_BYTES = 50_000_000
"""Of all files beside a report."""

_MOST_ON_PAGE, _MOST_PIXELS = 200, 4_000_000
"""Samples on a page, and pixels of its picture."""

_TILE = 256
"""Pixels of the longer side of an image on a page's picture; larger images have their own files."""

_LOSSLESS = 64
"""Up to so many pixels a side no picture loses anything."""

_READ_BYTES = 32_000_000
"""Images that are in memory at once."""

_BLOCK = 4096
"""Bytes that the smallest file takes."""

LARGEST_WEBP = 16_383
"""Pixels a side that a WebP may have."""

_SHOWN_BY_BROWSERS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")


@contextlib.contextmanager
def member_files(path: str | Path, gallery: Gallery, most_bytes: int) -> Iterator[Gallery]:
    """Writes the folder beside a report, which takes its place at the end of the block.

    It has pages of the members of all clusters, the nearest to the prototype first, and the first
    page of every cluster comes before the second of any, until the files would be larger than
    allowed. Images are read a few at a time.

    Args:
        path: The report.
        gallery: What is shown of the clusters.
        most_bytes: The size of all files together; 0 for no folder.

    Yields:
        The gallery with what was written.

    Raises:
        ValueError: If something that no report wrote is where the folder shall be.
    """
    if not most_bytes:
        yield gallery
        return
    beside = Path(path).with_name(f"{Path(path).stem}_files")
    kind, is_one = "folder of a report", lambda folder: (folder / REPORT_MARK).is_file()
    target = check_target(beside, kind=kind, is_one=is_one, overwrite=True)
    url = quote(os.fsencode(beside.name))
    with staged(target, replace=True) as folder:
        mark = {"report": url, "files": "members"}
        (folder / REPORT_MARK).write_text(json.dumps(mark) + "\n", "utf-8")
        members = _Writer(folder, url, gallery, most_bytes).write()
        yield dataclasses.replace(gallery, members=members)


class _Writer:
    """Writes files until they would be too large."""

    def __init__(self, folder: Path, url: str, gallery: Gallery, most_bytes: int) -> None:
        self.folder, self.url, self.gallery = folder, url, gallery
        self.most_bytes = self.left = most_bytes
        # Of what may be written, so that there is room for pages.
        self.left_for_originals = most_bytes // 2
        self.images = gallery.dataset.images if isinstance(gallery.dataset, Dataset) else None
        self.step = _MOST_ON_PAGE
        if self.images is not None:
            height, width = self.images.shape[1:3]
            shrunk = min(1.0, _TILE / max(height, width))
            self.tile = max(1, round(width * shrunk)), max(1, round(height * shrunk))
            self.step = min(self.step, max(1, _MOST_PIXELS // math.prod(self.tile)))
        # The file of a sample's own, or nothing; its part of a page's picture.
        self.originals: dict[int, str] = {}
        self.parts: dict[int, str] = {}

    def write(self) -> Members:
        """Writes originals of the samples that the report itself shows, and then the pages."""
        views = self.gallery.views
        shown = [0] * len(views)
        for position in self.gallery.samples:
            self._write_original(position)
        starts = range(0, max(view.size for view in views), self.step)
        for start, view in itertools.product(starts, views):
            positions, number = view.members[start : start + self.step], start // self.step
            if len(positions) and not self._write_page(view.index, number, positions):
                break
            shown[view.index] += len(positions)
        full = self.parts | {p: file for p, file in self.originals.items() if file}
        return Members(self.url, self.most_bytes, self.step, tuple(shown), full)

    def _write_page(self, cluster: int, number: int, positions: np.ndarray) -> bool:
        """Writes a page; False where there is no room for it."""
        gallery, name = self.gallery, f"{cluster}-{number}"
        infos = sample_info(gallery.result, gallery.dataset, positions)
        sheet, parts = b"", {}
        if self.images is None:
            drawings = (
                gallery.renderer.sample(position, f"{name}-{place}", info.tooltip(gallery.words))
                for place, (position, info) in enumerate(infos.items())
            )
        else:
            sheet, drawings, parts = self._sheet(name, infos)
        figures = "".join(
            member_figure(
                drawing, info, position, gallery.words, full=self._write_original(position)
            )
            for drawing, (position, info) in zip(drawings, infos.items(), strict=True)
        )
        script = f"members({json.dumps(name)}, {json.dumps(figures)});\n".encode()
        if len(script) + len(sheet) > self.left:
            return False
        self._write(f"{name}.js", script)
        if sheet:
            self._write(f"{name}.webp", sheet)
        self.parts |= parts
        return True

    def _write(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)
        self.left -= max(len(content), _BLOCK)

    def _sheet(
        self, name: str, infos: dict[int, SampleInfo]
    ) -> tuple[bytes, list[str], dict[int, str]]:
        """Draws all images of a page in one picture, of which the drawing of each is a part.

        Returns:
            The picture, the drawings, and the parts of the samples that the report itself shows.
        """
        width, height = self.tile
        columns = math.ceil(math.sqrt(len(infos)))
        size = columns * width, math.ceil(len(infos) / columns) * height
        sheet, drawings, parts = Image.new("RGB", size), [], {}
        href = f'<image href="{self.url}/{name}.webp" width="{size[0]}" height="{size[1]}"/>'
        pictures = zip(self._pictures(list(infos)), infos.items(), strict=True)
        for place, (picture, (position, info)) in enumerate(pictures):
            corner = place % columns * width, place // columns * height
            sheet.paste(picture.resize(self.tile), corner)
            box = f"{corner[0]} {corner[1]} {width} {height}"
            drawings.append(titled_svg(box, info.tooltip(self.gallery.words), href))
            if position in self.gallery.samples:
                parts[position] = f"{name}.webp {box} {size[0]} {size[1]}"
        lossless = max(self.tile) <= _LOSSLESS
        return _webp(sheet, lossless=lossless), drawings, parts

    def _pictures(self, positions: list[int]) -> Iterator[Image.Image]:
        """The images, read a few at a time."""
        assert self.images is not None
        at_once = max(1, _READ_BYTES // (4 * math.prod(self.images.shape[1:])))
        for start in range(0, len(positions), at_once):
            for image in np.asarray(self.images[np.array(positions[start : start + at_once])]):
                yield as_picture(displayable(image))

    def _write_original(self, position: int) -> str:
        """Writes what a sample was before it was made smaller, or a picture; its file, or nothing.

        It is tried once.
        """
        if position not in self.originals:
            name, content = self._original(position)
            room = min(self.left, self.left_for_originals)
            self.originals[position] = name if 0 < len(content) <= room else ""
            if self.originals[position]:
                self.left_for_originals -= max(len(content), _BLOCK)
                self._write(name, content)
        return self.originals[position]

    def _original(self, position: int) -> tuple[str, bytes]:
        """Name and content of a sample's own file; empty where a page's picture is all there is."""
        dataset = self.gallery.dataset
        if isinstance(dataset, Recordings):
            with contextlib.suppress(FileError):  # It may have gone since it was read.
                return f"{position}.flac", encoded(dataset, position)
        elif isinstance(dataset, Dataset):
            path = Path("" if dataset.paths is None else dataset.paths[position])
            suffix = path.suffix.lower()
            if suffix in _SHOWN_BY_BROWSERS:
                with contextlib.suppress(OSError), Image.open(path) as picture:
                    fits = path.stat().st_size <= self.left_for_originals
                    if fits and max(picture.size) > max(self.tile):
                        return f"{position}{suffix}", path.read_bytes()
            if max(self.tile) < max(dataset.images.shape[1:3]) <= LARGEST_WEBP:
                return f"{position}.webp", _webp(next(self._pictures([position])))
        return "", b""


def _webp(picture: Image.Image, *, lossless: bool = False) -> bytes:
    quality = {"lossless": True} if lossless else {"quality": 85}
    return picture_file(picture, "webp", method=2, **quality)
