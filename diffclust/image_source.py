"""Images that stay where they are and are read as they are needed.

Models take an `ImageSource` wherever they take an array of images; the sources for files, folders
and data sets are in `diffclust.data.stream`.
"""

import abc
import contextlib
import dataclasses
import functools
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

_BLOCK_BYTES = 8 * 2**20
"""What is read at once where all images are looked at in order."""


def installed_memory() -> int | None:
    """Bytes that a process may have: those of the machine, or of its control group if less."""
    limits = []
    with contextlib.suppress(AttributeError, OSError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # There is no such group, or it is "max".
            limits.append(int(Path(path).read_text("ascii")))
    return min(limits, default=None)


@dataclasses.dataclass(frozen=True, eq=False)
class Faults:
    """Images that not every model can cluster.

    Attributes:
        not_finite: Indices of those with NaN or infinity.
        blank: Indices of those that are black.
        uniform: Indices of those of a single colour, the former among them.
    """

    not_finite: Int[np.ndarray, " some"]
    blank: Int[np.ndarray, " others"]
    uniform: Int[np.ndarray, " more"]


def uniform(images: Float[np.ndarray, "n height width channels"]) -> Bool[np.ndarray, " n"]:
    """Whether all pixels of an image have the same colour.

    Args:
        images: Images in memory.

    Returns:
        A truth for each.
    """
    return (images == images[:, :1, :1]).all(axis=(1, 2, 3))


class ImageSource(abc.ABC):
    """Images of one size that are read when they are asked for, and not kept.

    It looks like an array as far as models need one: `len(source)`, `source.shape`,
    `source[10:20]` and `source[[3, 1, 2]]`. A subclass gives `shape` and `read`.
    """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int, int, int]:
        """Number of images, height, width and channels."""

    @abc.abstractmethod
    def read(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m height width channels"]:
        """Reads images; called from a second thread too.

        Args:
            index: Which ones, from 0, in any order; at least one.

        Returns:
            Intensities in [0, 1], channels last. The same index gives the same numbers each time.
        """

    @property
    def dtype(self) -> np.dtype:
        """The dtype of images that are read: JAX's default precision."""
        return np.dtype(jnp.result_type(float))

    @property
    def ndim(self) -> int:
        """Four: images by rows, columns and channels."""
        return len(self.shape)

    def __len__(self) -> int:
        """Number of images."""
        return self.shape[0]

    def __getitem__(self, index: Any) -> Float[np.ndarray, "*m height width channels"]:
        """Reads images.

        Args:
            index: A slice, whole numbers, a mask, or one whole number for a single image.

        Returns:
            The images, intensities in [0, 1].

        Raises:
            IndexError: If there is no such image.
        """
        # NumPy knows what an index means, and which ones are wrong.
        rows = np.array(self._positions[index])
        images = np.asarray(self.read(rows.reshape(-1))) if rows.size else np.zeros(0)
        return images.astype(self.dtype, copy=False).reshape(*rows.shape, *self.shape[1:])

    @functools.cached_property
    def _positions(self) -> Int[np.ndarray, " n"]:
        return np.arange(len(self))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All images in memory, for `numpy.asarray(source)`."""
        del copy
        return np.asarray(self[:], dtype)

    def blocks(self) -> Iterator[Float[np.ndarray, "m height width channels"]]:
        """All images in order, a few megabytes at once.

        Yields:
            The next images.
        """
        rows = max(1, _BLOCK_BYTES // (4 * int(np.prod(self.shape[1:]))))
        for start in range(0, len(self), rows):
            yield self[start : start + rows]

    @functools.cached_property
    def faults(self) -> Faults:
        """Reads all images once and returns what is wrong with some of them."""
        faults = [
            (~np.isfinite(block).all(axis=(1, 2, 3)), ~block.any(axis=(1, 2, 3)), uniform(block))
            for block in self.blocks()
        ]
        return Faults(*map(np.flatnonzero, np.concatenate([np.zeros((3, 0), bool), *faults], 1)))

    def checksum(self, value: int = 0) -> int:
        """Computes the CRC-32 of all intensities, as that of an array that holds them.

        Args:
            value: The CRC-32 of what comes before.

        Returns:
            The checksum, which the source keeps.
        """
        known, key = self._known_checksums, (value, str(self.dtype))
        if key not in known:
            blocks = self.blocks()
            known[key] = functools.reduce(lambda crc, block: checksum(block, crc), blocks, value)
        return known[key]

    @functools.cached_property
    def _known_checksums(self) -> dict[tuple[int, str], int]:
        return {}

    def take(self, index: Int[np.ndarray, " m"]) -> "ImageSource":
        """Selects some of the images without reading them.

        Args:
            index: Which ones, in the order in which they shall come.

        Returns:
            A source of these.
        """
        chosen = np.asarray(index)
        return _Derived((len(chosen), *self.shape[1:]), lambda rows: self.read(chosen[rows]))


Images = np.ndarray | ImageSource
"""What models of images cluster: an array, or what is read as it is needed."""


class SizedImages(ImageSource):
    """Images whose number and size are known from the start."""

    _shape: tuple[int, int, int, int]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Number of images, height, width and channels."""
        return self._shape


class _Derived(SizedImages):
    """Images that are computed from another source as they are read."""

    def __init__(
        self, shape: tuple[int, int, int, int], read: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        self._shape, self._make = shape, read

    def read(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m height width channels"]:
        return self._make(index)


def mapped(
    images: Images,
    function: Callable[[np.ndarray], np.ndarray],
    sample_shape: tuple[int, ...] | None = None,
) -> Images:
    """Images changed one by one; those that are not in memory, as they are read.

    Args:
        images: Images, in memory or not.
        function: Makes others of a few images.
        sample_shape: Height, width and channels of what it makes, where they are not the same.

    Returns:
        Images of the same kind.
    """
    if not isinstance(images, ImageSource):
        return function(images)
    height, width, channels = sample_shape or images.shape[1:]
    shape = (len(images), height, width, channels)
    return _Derived(shape, lambda rows: function(images.read(rows)))


def blanked(images: Images, hidden: Bool[np.ndarray, "height width 1"]) -> Images:
    """Images with some pixels black.

    Args:
        images: Images, in memory or not.
        hidden: Which ones.

    Returns:
        Images of the same kind.
    """
    return mapped(images, lambda shown: np.where(hidden[None], shown.dtype.type(0), shown))


def checksum(samples: Images | jax.Array, value: int = 0) -> int:
    """Computes the CRC-32 of the bytes of samples, or of any other array.

    Args:
        samples: The array, or images that are read as they are needed.
        value: The CRC-32 of what comes before.

    Returns:
        The checksum.
    """
    if isinstance(samples, ImageSource):
        return samples.checksum(value)
    return zlib.crc32(np.ascontiguousarray(samples).reshape(-1).view(np.uint8).data, value)
