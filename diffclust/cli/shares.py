"""What each of several processes reads of a source: its own share, and what is known of all."""

import json
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, Int

from diffclust.cli.options import Fit
from diffclust.cli.progress_bar import ProgressBar
from diffclust.cli.samples import check_samples, load_images, load_shapes, size_of
from diffclust.data import Collection, DataError, Dataset
from diffclust.data.arrays import convert_channels
from diffclust.data.folder import kinds_in, load_folder
from diffclust.data.pictures import FORMATS
from diffclust.data.stream import FolderImages, open_stream
from diffclust.image_source import ImageSource
from diffclust.models import AbstractImageModel, AbstractModel
from diffclust.parallel.processes import even_share, gathered_bytes, joined_rows, together


class SharedImages(ImageSource):
    """The images of all processes, of which this one reads more only when it is asked to."""

    def __init__(self, images: ImageSource, checksum: int) -> None:
        """Reads nothing yet.

        Args:
            images: Where the images can be read.
            checksum: What `checksum` shall return, which the processes found together.
        """
        self._images, self._checksum = images, checksum

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """See `ImageSource.shape`."""
        return self._images.shape

    def read(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m height width channels"]:
        """See `ImageSource.read`.

        Args:
            index: Which ones.

        Returns:
            The images.
        """
        return self._images.read(index)

    def checksum(self) -> int:
        """See `ImageSource.checksum`; nothing is read for it."""
        return self._checksum


def read_share(
    options: Fit, model: AbstractModel, mesh: Mesh, bar: ProgressBar | None
) -> tuple[Collection, Collection]:
    """The samples that this process fits, checked, and all samples.

    Args:
        options: What was asked for.
        model: The model that will be fitted.
        mesh: Devices of all processes.
        bar: Told how many files have been read; None in silent processes.

    Returns:
        This process's samples, and those of all, in the order of the source. Where files can be
        read one by one, those of the others are not read for that.

    Raises:
        ValueError: If they cannot be read or clustered.
    """
    with together(mesh):
        own, whole = _read(options, model, mesh, bar)
    if whole is None:
        assert isinstance(own, Dataset)
        own, whole = _joined(own, options, mesh)
    with together(mesh):
        # That there are enough of all, the fit will check.
        check_samples(model, own, fitted=True)
    return own, whole


def _read(
    options: Fit, model: AbstractModel, mesh: Mesh, bar: ProgressBar | None
) -> tuple[Collection, Collection | None]:
    """This process's samples, and all, or None where nobody has read them."""
    bar = ProgressBar() if bar is None else bar
    if not isinstance(model, AbstractImageModel):
        shapes = load_shapes(options)
        return shapes.take(_rows(len(shapes), mesh)), shapes
    size = size_of(options)
    path = Path(options.source)
    if options.stream and path.suffix not in (".npy", ".npz"):
        raise DataError(
            "several processes stream .npy and uncompressed .npz files alone; leave out --stream"
        )
    if path.is_dir() and kinds_in(path, FORMATS) == (True,) and options.rate is None:
        own = load_folder(
            path,
            split=options.split,
            size=size,
            channels=options.channels,
            skip_bad=options.skip_bad,
            limit=options.limit,
            seed=options.seed,
            part=(jax.process_index(), jax.process_count()),
            progress=bar.reading,
        )
        return own, None
    whole = _opened(options, size)
    if whole is None:
        whole = load_images(options, size, options.channels, bar)
    own = whole.take(_rows(len(whole), mesh))
    if isinstance(own.images, ImageSource) and not options.stream:
        own = _replaced(own, own.images[:])
    return own, whole


def _rows(count: int, mesh: Mesh) -> Int[np.ndarray, " m"]:
    own = even_share(count, mesh)
    if own.stop == own.start:
        raise DataError(
            f"there are {count} samples, which {jax.process_count()} processes cannot share; "
            f"start fewer"
        )
    return np.arange(own.start, own.stop)


def _opened(options: Fit, size: tuple[int, int] | None) -> Dataset | None:
    """A file whose images can be read one by one; None for anything else."""
    if not options.source.endswith((".npy", ".npz")):
        return None
    try:
        return open_stream(
            options.source,
            split=options.split,
            size=size,
            channels=options.channels,
            limit=options.limit,
            seed=options.seed,
        )
    except DataError:
        # Compressed, say; or what is wrong with it, the loader will tell.
        return None


def _replaced(dataset: Dataset, images: Any) -> Dataset:
    return Dataset(
        images,
        dataset.labels,
        dataset.label_names,
        dataset.paths,
        dataset.name,
        dataset.skipped,
        dataset.indices,
    )


def _joined(own: Dataset, options: Fit, mesh: Mesh) -> tuple[Dataset, Dataset]:
    """This process's pictures, as many channels as all have, and all of the folder."""
    assert own.paths is not None
    told = {"shape": own.images.shape[1:], "paths": own.paths, "skipped": own.skipped}
    said = [json.loads(part) for part in gathered_bytes(json.dumps(told).encode())]
    shapes = [tuple(part["shape"]) for part in said]
    sizes = sorted({f"{width}x{height}" for height, width, _ in shapes})
    if len(sizes) > 1:
        raise DataError(
            f"images must have one size, and there are {' and '.join(sizes)} (width x height); "
            f"give --size to resize and centre-crop all"
        )
    height, width, _ = shapes[0]
    depth = max(shape[2] for shape in shapes)
    pixels = np.asarray(own.images)
    if pixels.shape[3] != depth:
        pixels = np.stack([convert_channels(image, depth) for image in pixels])
    size = None if options.size is None else (height, width)
    paths = [path for part in said for path in part["paths"]]
    files = FolderImages(map(Path, paths), shape=(height, width, depth), size=size)
    whole = Dataset(
        SharedImages(files, _checksum(pixels)),
        None if own.labels is None else joined_rows(own.labels, mesh),
        own.label_names,
        tuple(paths),
        own.name,
        tuple(path for part in said for path in part["skipped"]),
        joined_rows(own.indices, mesh),
    )
    return _replaced(own, pixels), whole


def _checksum(pixels: np.ndarray) -> int:
    """The CRC-32 of the images of all processes, one after the other; all must ask."""
    value = 0
    for number in range(jax.process_count()):
        own = zlib.crc32(np.ascontiguousarray(pixels).data, value)
        value = int(gathered_bytes(str(own).encode())[number])
    return value
