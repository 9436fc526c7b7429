"""Images that are larger than memory: sources that read a few at a time, and a writer for them.

Take `RawImages` for a file, `FolderImages` for pictures and `RecordImages` for a data set of
records; `open_stream` makes them of what the command line takes. Models cluster them like arrays.
"""

import functools
import os
import struct
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Unpack, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from diffclust.data.arrays import (
    LoadOptions,
    LoadSettings,
    as_images,
    check_labels,
    check_shape,
    fit_images,
)
from diffclust.data.dataset import DataError, Dataset, FileError, encode_labels
from diffclust.data.files import choose_keys, damage_explained, no_split, read_npy_header
from diffclust.data.folder import (
    FolderFiles,
    choose_files,
    decode_each,
    decode_listed,
    find_pictures,
    intensities,
)
from diffclust.data.pictures import quiet_decoding, read_picture
from diffclust.image_source import Faults, ImageSource, SizedImages, installed_memory, uniform
from diffclust.storage.staging import staged_file

_LOCAL_HEADER = 30
"""Bytes of what precedes a member of a zip file, but for its name and extra field."""


def _state(about: os.stat_result) -> tuple[int, int, int]:
    """Length, time of the last change and number of a file."""
    return about.st_size, about.st_mtime_ns, about.st_ino


class RawImages(SizedImages):
    """Images that are stored uncompressed in a file, one after the other, in C order.

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
        count, height, width, *channels = shape
        self._shape = (count, height, width, channels[0] if channels else 1)
        self._bytes = int(np.prod(self._shape[1:])) * self._dtype.itemsize
        needed, self._state = offset + self._shape[0] * self._bytes, _state(self._path.stat())
        if (length := self._state[0]) < needed:
            raise DataError(
                f"{str(path)!r} is cut short: it has {length:,} bytes of the {needed:,} that "
                f"{self._shape[0]:,} images of {self._shape[1:]} need; write it again."
            )

    def read(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m height width channels"]:
        # What lies together in the file is read at once.
        order = np.argsort(index, kind="stable")
        places = index[order]
        stored = np.empty((len(index), *self._shape[1:]), self._dtype)
        starts = np.flatnonzero(np.diff(places, prepend=-2) != 1)
        changed = f"{str(self._path)!r} was changed, replaced or cut short while it was read."
        with self._path.open("rb", buffering=0) as file:
            # What another file holds in these places may be no images.
            if _state(os.fstat(file.fileno())) != self._state:
                raise DataError(changed)
            for start, stop in zip(starts, [*starts[1:], len(places)], strict=True):
                file.seek(self._offset + int(places[start]) * self._bytes)
                left = stored[start:stop].reshape(-1).view(np.uint8).data
                while left:
                    if not (done := file.readinto(left)):
                        raise DataError(changed)
                    left = left[done:]
        if np.any(order[1:] < order[:-1]):
            stored = stored[np.argsort(order, kind="stable")]
        return as_images(stored, name=self._name, indices=index)


class JoinedImages(SizedImages):
    """The images of several sources, one source after the other."""

    def __init__(self, parts: list[RawImages]) -> None:
        """Reads nothing yet.

        Args:
            parts: The sources, with images of one shape.
        """
        self._parts = parts
        self._ends = np.cumsum([len(part) for part in parts])
        self._shape = (int(self._ends[-1]), *parts[0].shape[1:])

    def read(self, index: np.ndarray) -> np.ndarray:
        images = np.empty((len(index), *self.shape[1:]), np.float32)
        owner = np.searchsorted(self._ends, index, side="right")
        for number, part in enumerate(self._parts):
            here = owner == number
            if here.any():
                images[here] = part.read(index[here] - (self._ends[number] - len(part)))
        return images


class FittedImages(SizedImages):
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
        self._size = LoadOptions(size=size, channels=channels).target
        self._source, self._channels = source, channels
        count, height, width, own_channels = source.shape
        self._shape = (count, *(self._size or (height, width)), channels or own_channels)

    def read(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m height width channels"]:
        return fit_images(self._source.read(index), self._size, self._channels)


class FolderImages(SizedImages):
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
        self._files, self._size = tuple(files), size
        self._shape = (len(self._files), *shape)

    def read(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m height width channels"]:
        """Decodes files.

        Args:
            index: Which ones.

        Returns:
            The images.

        Raises:
            DataError: If a file cannot be read any more.
        """
        files = [self._files[i] for i in index.tolist()]
        _, height, width, channels = self._shape
        images = np.empty((len(files), height, width, channels), np.float32)
        results = decode_each(lambda file: read_picture(file, self._size), files)
        for i, pixels in enumerate(results):
            if isinstance(pixels, FileError):
                raise DataError(f"{str(files[i])!r} cannot be read ({pixels}); repair it.")
            if pixels.shape[:2] != (height, width):
                raise DataError(
                    f"images must have one size: got {pixels.shape[1]}x{pixels.shape[0]} and "
                    f"{width}x{height} (width x height); give --size (size=) to resize all."
                )
            images[i] = intensities(pixels, channels)
        return images


@runtime_checkable
class Records(Protocol):
    """Records that can be read in any order: `tfds.data_source`, a source of grain, a list."""

    def __len__(self) -> int:
        """Number of records."""
        ...

    def __getitem__(self, index: Any, /) -> Any:
        """Reads one record.

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


class RecordImages(SizedImages):
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
        self._size = LoadOptions(size=size, channels=channels).target
        if len(records) == 0:
            raise DataError("there are no records; give at least one image.")
        self._records, self._image, self._channels = records, image, channels
        self._shape = (len(records), *self._decode(0, records[0]).shape)

    def read(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m height width channels"]:
        """Decodes records.

        Args:
            index: Which ones.

        Returns:
            The images.

        Raises:
            DataError: If one is no image, or of another size than the first.
        """
        images = np.empty((len(index), *self._shape[1:]), np.float32)
        numbers = index.tolist()
        read_many = getattr(self._records, "__getitems__", None)
        records = read_many(numbers) if read_many else (self._records[i] for i in numbers)
        for i, (number, record) in enumerate(zip(numbers, records, strict=True)):
            image = self._decode(number, record)
            if image.shape != self._shape[1:]:
                raise DataError(
                    f"record {number} has an image of shape {image.shape}, and the first has "
                    f"{self._shape[1:]}; give size= (and channels=) to make all alike."
                )
            images[i] = image
        return images

    def _decode(self, number: int, record: Any) -> np.ndarray:
        pixels = np.asarray(self._image(record))[None]
        images = as_images(pixels, name=f"record {number}", indices=np.array([number]))
        return fit_images(images, self._size, self._channels)[0]


def write_stream(
    path: str | Path,
    chunks: Iterable[np.ndarray],
    *,
    shape: Sequence[int | np.integer],
    dtype: str | np.dtype = "uint8",
) -> None:
    """Writes a large `.npy` file in chunks; a file that is not complete is removed.

    Args:
        path: The file; one that exists is replaced.
        chunks: Images `[m, height, width]` or `[m, height, width, channels]`, in order.
        shape: That of all together.
        dtype: How intensities are stored; chunks must have that type.

    Raises:
        DataError: If the chunks do not make up that shape, or are of another type.
        OSError: If it cannot be written.
    """
    stored, written, shape = np.dtype(dtype), 0, tuple(map(int, shape))
    with staged_file(path, overwrite=True) as staged, staged.open("wb") as file:
        descr = np.lib.format.dtype_to_descr(stored)
        header = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in chunks:
            if chunk.shape[1:] != shape[1:] or chunk.dtype != stored:
                raise DataError(
                    f"chunks must be {stored} of shape (m, {', '.join(map(str, shape[1:]))}): "
                    f"got {chunk.dtype} of {chunk.shape}."
                )
            file.write(np.ascontiguousarray(chunk).data)
            written += len(chunk)
        if written != shape[0]:
            raise DataError(f"the chunks hold {written} images, and the shape says {shape[0]}.")


def open_stream(source: str | Path, **settings: Unpack[LoadSettings]) -> Dataset:
    """Open images that are read whenever they are needed, and never all at once.

    Args:
        source: A `.npy` file, an `.npz` file that is not compressed, or a folder of pictures, each
            of which is decoded once for a check, and again in every pass.
        **settings: As for `load`.

    Returns:
        The images as an `ImageSource`, otherwise as `load` gives them.

    Raises:
        DataError: If the source is no such file or folder, or unfit in a way that `load` refuses.
    """
    if not str(source):
        raise DataError("source must not be empty; give the path of a file or a folder")
    path, options = Path(source), LoadOptions(**settings)
    if path.is_dir():
        return _open_folder(choose_files(path, find_pictures(path), options), options)
    images, labels = _open_file(path, options.split)
    if options.size is not None or options.channels is not None:
        images = FittedImages(images, size=options.size, channels=options.channels)
    dataset = Dataset(images, *encode_labels(labels), name=path.stem)
    return dataset.limit(options.limit, options.seed)


def outgrows_memory(
    source: str | Path, *, size: tuple[int, int] | None = None, limit: int | None = None
) -> bool:
    """Whether images, as float32, would take more than half of the memory.

    Args:
        source: What `open_stream` takes; anything else is no larger than memory.
        size: Height and width to which they are brought, or None.
        limit: At most so many of them; None for all.

    Returns:
        False also where the size of the memory or of the images is unknown.
    """
    path, installed = Path(source), installed_memory()
    if installed is None or not str(source):
        return False
    try:
        if path.is_dir():
            files = find_pictures(path)
            with quiet_decoding():
                count, shape = len(files), read_picture(path / files[0], size).shape
        else:
            count, *shape = _open_file(path, "all", labels=False)[0].shape
    # Reading it will report what is wrong.
    except (DataError, FileError, OSError):
        return False
    height, width = size or shape[:2]
    count = count if limit is None else min(count, max(limit, 0))
    return 4 * count * height * width * shape[2] > installed / 2


def _open_file(
    path: Path, split: str, *, labels: bool = True
) -> tuple[ImageSource, np.ndarray | None]:
    """Opens the images of a file, and reads their labels."""
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".npz") or not path.is_file():
        what = "cannot be read as a stream" if path.exists() else "does not exist"
        raise DataError(
            f"{str(path)!r} {what}; give a .npy file, an uncompressed .npz "
            f"file or a folder of pictures, or leave out --stream."
        )
    with damage_explained(path):
        if suffix == ".npz":
            return _open_members(path, split, labels)
        if split != "all":
            raise no_split(path, split, "it is one array")
        with path.open("rb") as file:
            return _open_array(path, file), None


def _open_array(path: Path, file: BinaryIO) -> RawImages:
    """Opens the images of an array that begins at the file's position."""
    shape, is_fortran, dtype = read_npy_header(file)
    if dtype.hasobject:
        raise DataError(f"{str(path)!r} needs pickle, which is never loaded; save plain numbers.")
    if is_fortran:
        raise DataError(
            f"{str(path)!r} holds its images column by column (Fortran order), which cannot be "
            f"read one by one; save it again with np.save(path, np.ascontiguousarray(images))."
        )
    return RawImages(path, offset=file.tell(), shape=shape, dtype=dtype)


def _open_members(
    path: Path, split: str, wants_labels: bool
) -> tuple[ImageSource, np.ndarray | None]:
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        keys, label_keys = choose_keys(names, path, split)
        parts = [_open_member(path, file, archive.getinfo(f"{key}.npy")) for key in keys]
    if len({part.shape[1:] for part in parts}) > 1:
        raise DataError(
            f"{' and '.join(keys)} in {str(path)!r} must have images of one size: got "
            f"{' and '.join(str(part.shape) for part in parts)}; choose one split."
        )
    images = parts[0] if len(parts) == 1 else JoinedImages(parts)
    if not wants_labels or len(label_keys) != len(keys):
        return images, None
    with np.load(path, allow_pickle=False) as loaded:
        labels = np.concatenate([np.asarray(loaded[key]) for key in label_keys])
    where = f"{' and '.join(label_keys)} in {str(path)!r}"
    return images, check_labels(labels, len(images), where)


def _open_member(path: Path, file: BinaryIO, member: zipfile.ZipInfo) -> RawImages:
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise DataError(
            f"{member.filename!r} in {str(path)!r} is compressed, and cannot be read in pieces; "
            f"save it with np.savez, or alone: np.save('images.npy', np.load({str(path)!r})"
            f"[{member.filename.removesuffix('.npy')!r}])."
        )
    file.seek(member.header_offset)
    header = file.read(_LOCAL_HEADER)
    # Sizes of the name and of the extra field, which may differ from those in the directory.
    name, extra = struct.unpack("<HH", header[26:30])
    file.seek(member.header_offset + _LOCAL_HEADER + name + extra)
    return _open_array(path, file)


def _open_folder(files: FolderFiles, options: LoadOptions) -> Dataset:
    """Decodes all files once to find faults, the common size and the number of channels."""
    kept, faults, shape = [], [], (0, 0, 0)
    decode = functools.partial(read_picture, size=options.target)
    with quiet_decoding():
        for position, pixels in decode_listed(decode, files.listing, options):
            shape = (*pixels.shape[:2], max(shape[2], pixels.shape[2]))
            shown = intensities(pixels, options.channels or pixels.shape[2])[None]
            faults.append((False, not shown.any(), uniform(shown)[0]))
            kept.append(position)
    height, width, depth = shape
    shape = (height, width, options.channels or depth)
    images = FolderImages([files.listing.items[i] for i in kept], shape=shape, size=options.target)
    # Without these, all files would be decoded once more. Pixels of files are always finite.
    images.faults = Faults(*map(np.flatnonzero, np.array(faults).T))
    return files.dataset(images, np.array(kept, np.int64))
