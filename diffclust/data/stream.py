"""Images that are larger than memory: sources that read a few at a time, and a writer for them.

Take `RawImages` for a file, `FolderImages` for pictures and `RecordImages` for a data set of
records; `open_stream` makes them of what the command line takes. Models cluster them like arrays.
"""

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from diffclust.data.arrays import as_images, check_shape
from diffclust.data.dataset import DataError
from diffclust.data.gather import FileError, decode_each
from diffclust.data.pictures import read_picture
from diffclust.data.resize import check_channels, convert_channels, fit_images, parse_size
from diffclust.image_source import ImageSource


class RawImages(ImageSource):
    """Images that lie one after the other in a file, uncompressed, in the order of C.

    They are read, not mapped: of a mapped file what was looked at counts as used memory.
    """

    def __init__(
        self, path: str | Path, *, offset: int, shape: tuple[int, ...], dtype: np.dtype
    ) -> None:
        """Reads nothing yet.

        Args:
            path: The file.
            offset: Where the first image begins, in bytes.
            shape: Number of images, height and width, and channels unless it is one.
            dtype: How intensities are stored; as for `as_images`.

        Raises:
            DataError: If these cannot be images, or the file is shorter.
        """
        self._path, self._offset, self._dtype = Path(path), offset, np.dtype(dtype)
        self._name = f"the array in {str(path)!r}"
        # Refuses shapes and types that no image has, without any of it in memory.
        blank = np.broadcast_to(np.zeros((), dtype), shape)
        check_shape(blank, self._name)
        as_images(blank[:1], name=self._name)
        self._shape = (*shape, 1) if len(shape) == 3 else shape
        self._bytes = int(np.prod(self._shape[1:])) * self._dtype.itemsize
        needed, there = offset + self._shape[0] * self._bytes, self._path.stat().st_size
        if there < needed:
            raise DataError(
                f"{str(path)!r} is cut short: it has {there:,} bytes of the {needed:,} that "
                f"{self._shape[0]:,} images of {self._shape[1:]} need; write it again."
            )

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """See `ImageSource.shape`."""
        count, height, width, channels = self._shape
        return count, height, width, channels

    def read(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m height width channels"]:
        """See `ImageSource.read`; what lies together in the file is read at once."""
        order = np.argsort(index, kind="stable")
        places = index[order]
        stored = np.empty((len(index), *self._shape[1:]), self._dtype)
        starts = np.flatnonzero(np.diff(places, prepend=-2) != 1)
        with self._path.open("rb", buffering=0) as file:
            for start, stop in zip(starts, [*starts[1:], len(places)], strict=True):
                file.seek(self._offset + int(places[start]) * self._bytes)
                self._fill(file, stored[start:stop])
        if np.any(order[1:] < order[:-1]):
            stored = stored[np.argsort(order, kind="stable")]
        return as_images(stored, name=self._name, indices=index)

    def _fill(self, file: Any, part: np.ndarray) -> None:
        left = part.reshape(-1).view(np.uint8).data
        while left:
            done = file.readinto(left)
            if not done:
                raise DataError(f"{str(self._path)!r} was cut short while it was read.")
            left = left[done:]


class FittedImages(ImageSource):
    """Images of another source, brought to a size and a number of channels as they are read."""

    def __init__(
        self,
        source: ImageSource,
        *,
        size: int | tuple[int, int] | None = None,
        channels: int | None = None,
    ) -> None:
        """Reads nothing yet.

        Args:
            source: The images.
            size: As for `load_array`.
            channels: As for `load_array`.

        Raises:
            DataError: If a setting is out of range.
        """
        check_channels(channels)
        self._source, self._size, self._channels = source, parse_size(size), channels

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """See `ImageSource.shape`."""
        count, height, width, channels = self._source.shape
        height, width = self._size or (height, width)
        return count, height, width, self._channels or channels

    def read(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m height width channels"]:
        """See `ImageSource.read`."""
        images = convert_channels(self._source.read(index), self._channels)
        return images if self._size is None else fit_images(images, self._size)


class FolderImages(ImageSource):
    """Picture files of one size, decoded by several threads whenever they are asked for."""

    def __init__(
        self,
        files: Iterable[Path],
        *,
        shape: tuple[int, int, int],
        size: tuple[int, int] | None = None,
    ) -> None:
        """Reads nothing yet.

        Args:
            files: The files, which can all be read.
            shape: Height, width and channels that the images shall have.
            size: Height and width to which they are resized and centre-cropped; None where they
                have that size.
        """
        self._files, self._each, self._size = tuple(files), shape, size

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """See `ImageSource.shape`."""
        return (len(self._files), *self._each)

    def read(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m height width channels"]:
        """See `ImageSource.read`.

        Args:
            index: Which ones.

        Returns:
            The images.

        Raises:
            DataError: If a file cannot be read any more.
        """
        files = [self._files[i] for i in index.tolist()]
        images = np.empty((len(files), *self._each), np.float32)
        pixels = decode_each(lambda file: read_picture(file, self._size), files)
        for i, found in enumerate(pixels):
            if isinstance(found, FileError):
                raise DataError(f"{str(files[i])!r} cannot be read ({found}); repair it.")
            images[i] = intensities(found, self._each)
        return images


def intensities(
    pixels: np.ndarray, shape: tuple[int, int, int]
) -> Float[np.ndarray, "height width channels"]:
    """Decoded pixels as an image.

    Args:
        pixels: uint8, or float32 in [0, 1], `[height, width, 1 or 3]`.
        shape: What the image must have; only the number of channels is changed.

    Returns:
        Intensities in [0, 1].

    Raises:
        DataError: If it has another size.
    """
    if pixels.shape[:2] != shape[:2]:
        raise DataError(
            f"images must have one size: got {pixels.shape[1]}x{pixels.shape[0]} and "
            f"{shape[1]}x{shape[0]} (width x height); give --size (size=) to resize all."
        )
    scaled = pixels if pixels.dtype == np.float32 else pixels.astype(np.float32) / np.float32(255)
    return convert_channels(scaled, shape[2])


@runtime_checkable
class Records(Protocol):
    """Records that can be read in any order: `tfds.data_source`, a source of grain, a list."""

    def __len__(self) -> int:
        """Number of records."""
        ...

    def __getitem__(self, index: Any, /) -> Any:
        """One record.

        Args:
            index: Its number, from 0.
        """
        ...


def image_of(record: Any) -> Any:
    """The image in a record.

    Args:
        record: A mapping that holds it under `"image"`, or the image itself.

    Returns:
        An array of pixels.
    """
    return record["image"] if isinstance(record, Mapping) else record


class RecordImages(ImageSource):
    """The images in records that can be read in any order."""

    def __init__(
        self,
        records: Records,
        *,
        size: int | tuple[int, int] | None = None,
        channels: int | None = None,
        image: Callable[[Any], Any] = image_of,
    ) -> None:
        """Reads the first record.

        Args:
            records: The records; where they have `__getitems__`, several are asked for at once.
            size: As for `load_array`; needed where images differ in size.
            channels: As for `load_array`.
            image: What takes the image from a record: pixels as for `as_images`, `[height, width]`
                or `[height, width, channels]`.

        Raises:
            DataError: If there are no records, or the first holds no image.
        """
        check_channels(channels)
        if len(records) == 0:
            raise DataError("there are no records; give at least one image.")
        self._records, self._image = records, image
        self._size, self._channels = parse_size(size), channels
        self._each = self._decoded(0, records[0]).shape

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """See `ImageSource.shape`."""
        height, width, channels = self._each
        return len(self._records), height, width, channels

    def read(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m height width channels"]:
        """See `ImageSource.read`.

        Args:
            index: Which ones.

        Returns:
            The images.

        Raises:
            DataError: If one is no image, or of another size than the first.
        """
        images = np.empty((len(index), *self._each), np.float32)
        numbers = index.tolist()
        several = getattr(self._records, "__getitems__", None)
        records = several(numbers) if several else (self._records[number] for number in numbers)
        for i, (number, record) in enumerate(zip(numbers, records, strict=True)):
            found = self._decoded(number, record)
            if found.shape != self._each:
                raise DataError(
                    f"record {number} has an image of shape {found.shape}, and the first has "
                    f"{self._each}; give size= (and channels=) to make all alike."
                )
            images[i] = found
        return images

    def _decoded(self, number: int, record: Any) -> np.ndarray:
        pixels = np.asarray(self._image(record))[None]
        images = as_images(pixels, name=f"record {number}", indices=np.array([number]))
        images = convert_channels(images, self._channels)
        return (images if self._size is None else fit_images(images, self._size))[0]


def write_stream(
    path: str | Path,
    chunks: Iterable[np.ndarray],
    *,
    shape: tuple[int, ...],
    dtype: str | np.dtype = "uint8",
) -> None:
    """Writes a large `.npy` file piece by piece; it is there whole or not at all.

    Args:
        path: The file; one that exists is replaced.
        chunks: Images `[m, height, width]` or `[m, height, width, channels]`, in order.
        shape: That of all together.
        dtype: How intensities are stored; chunks must have that type.

    Raises:
        DataError: If the chunks do not make up that shape, or are of another type.
        OSError: If it cannot be written.
    """
    path, stored = Path(path), np.dtype(dtype)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    written = 0
    try:
        with staged.open("wb") as file:
            header = {
                "descr": np.lib.format.dtype_to_descr(stored),
                "fortran_order": False,
                "shape": shape,
            }
            np.lib.format.write_array_header_1_0(file, header)
            for chunk in chunks:
                if chunk.shape[1:] != tuple(shape[1:]) or chunk.dtype != stored:
                    raise DataError(
                        f"chunks must be {stored} of shape (m, {', '.join(map(str, shape[1:]))}): "
                        f"got {chunk.dtype} of {chunk.shape}."
                    )
                file.write(np.ascontiguousarray(chunk).data)
                written += len(chunk)
        if written != shape[0]:
            raise DataError(f"the chunks hold {written} images, and the shape says {shape[0]}.")
        os.replace(staged, path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
