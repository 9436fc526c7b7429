"""One entry for every source: a name, a folder, or a file."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from diffclust.data.archives import check_split, read_archive
from diffclust.data.arrays import load_array
from diffclust.data.audio import recording
from diffclust.data.audio.folder import load_recordings
from diffclust.data.dataset import DataError, Dataset, draw
from diffclust.data.digits import load_digits
from diffclust.data.folder import load_folder
from diffclust.data.generated import affine_mnist, diffeo_mnist
from diffclust.data.idx import is_idx
from diffclust.data.landmarks.files import holds_landmarks
from diffclust.data.listing import kinds_in
from diffclust.data.mnist_variants import affnist_like, mnist_color
from diffclust.data.pictures import FORMATS, OTHER_SUFFIXES
from diffclust.data.resize import check_channels, convert_channels, fit_images, parse_size
from diffclust.data.tfds import PREFIX, load_tfds

DATA_DIR = "DIFFCLUST_DATA_DIR"
"""The environment variable that names the folder with `mnist.npz` and `usps.npz`."""


@dataclasses.dataclass(frozen=True)
class _Request:
    """What was asked of `load`, for the loader that takes it."""

    source: str
    split: str
    size: int | tuple[int, int] | None
    channels: int | None
    skip_bad: bool
    limit: int | None
    seed: int
    progress: Callable[[int, int], None] | None
    rate: int | None
    seconds: float | None


def load(
    source: str | Path,
    *,
    split: str = "all",
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    skip_bad: bool = False,
    limit: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    rate: int | None = None,
    seconds: float | None = None,
) -> Dataset:
    """Load images from wherever they are.

    Args:
        source: `"digits"` (bundled with scikit-learn); `"mnist"` or `"usps"` (from the folder that
            the environment variable DIFFCLUST_DATA_DIR names); `"affine-mnist"` or
            `"diffeo-mnist"` (made from MNIST's training images with `seed`); `"mnist-1k"` (1,000
            of MNIST's test images, drawn with `seed`); `"mnist-color"` (MNIST, coloured with
            `seed`); `"affnist-like"` (MNIST's test images, moved about with `seed`); a folder of
            pictures (`load_folder`) or of recordings (`load_recordings`); a `.npy`, `.npz` or IDX
            file (`load_array`); or `"tfds:"` and the name of a set of TensorFlow Datasets
            (`load_tfds`). A folder that bears one of these names is reached as `"./mnist"` or as a
            `Path`.
        split: `"train"`, `"test"`, or `"all"`; the first two only where the source has them.
        size: Side of a square, or height and width, in pixels, to which images are resized and
            centre-cropped; None leaves them. Of recordings, the numbers of bands and frames.
        channels: 1 to make all grey, 3 to make all RGB; None leaves them (a folder is grey if all
            of it is).
        skip_bad: Leave out files that cannot be read, and name them in `Dataset.skipped`.
        limit: At most so many images, drawn at random, in their old order.
        seed: Seed of the draw, and of the drawn and made sets.
        progress: Called as `progress(done, total)` while files are read.
        rate: Samples a second that recordings are resampled to; None for 48,000.
        seconds: Length of what is read of each recording; None for 1.

    Returns:
        The images, with labels (for evaluation only) where the source has them.

    Raises:
        DataError: If the source is unknown or unfit, in one line that says what would do.
    """
    check_split(split)
    check_channels(channels)
    parse_size(size)
    request = _Request(
        str(source), split, size, channels, skip_bad, limit, seed, progress, rate, seconds
    )
    if isinstance(source, str) and source in _NAMED:
        _refuse_sound_settings(request)
        return _NAMED[source](request)
    if isinstance(source, str) and source.startswith(PREFIX):
        _refuse_sound_settings(request)
        return load_tfds(source.removeprefix(PREFIX), **_common(request))
    if not request.source:
        # As a path it would be the current folder, which an unset shell variable does not mean.
        raise DataError(f"source must not be empty; give {_possible()}.")
    path = Path(source)
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise DataError(
            f"source {request.source!r} cannot be opened ({error.strerror}); give {_possible()}."
        ) from error
    if is_folder:
        return _from_folder(request)
    _refuse_sound_settings(request)
    if holds_landmarks(path):
        raise DataError(
            f"source {request.source!r} holds landmarks, not images; cluster them with "
            f"--method shape-kmeans, or in Python with ShapeKMeans, from load_landmarks."
        )
    if path.suffix.lower() in _SUFFIXES:
        return _SUFFIXES[path.suffix.lower()](request)
    if is_idx(path):
        return _from_array(request)
    raise _refuse(path)


def _common(request: _Request) -> dict[str, Any]:
    """What every loader takes that decodes one image after another."""
    return {
        "split": request.split,
        "size": request.size,
        "channels": request.channels,
        "skip_bad": request.skip_bad,
        "limit": request.limit,
        "seed": request.seed,
        "progress": request.progress,
    }


def _from_folder(request: _Request) -> Dataset:
    recordings = (*recording.FORMATS, *recording.OTHER_SUFFIXES)
    has_pictures, has_recordings = kinds_in(
        Path(request.source), (*FORMATS, *OTHER_SUFFIXES), recordings
    )
    if has_pictures and has_recordings:
        raise DataError(
            f"folder {request.source!r} holds images and recordings; put them in folders of "
            f"their own."
        )
    if has_recordings:
        return load_recordings(
            request.source, **_common(request), rate=request.rate, seconds=request.seconds
        )
    _refuse_sound_settings(request)
    return load_folder(request.source, **_common(request))


def _refuse_sound_settings(request: _Request) -> None:
    for name, value in (("rate", request.rate), ("seconds", request.seconds)):
        if value is not None:
            raise DataError(
                f"{name} is for a folder of recordings, and {request.source!r} is none; leave it "
                f"out."
            )


def _from_array(request: _Request) -> Dataset:
    return _load_file(Path(request.source), request, None)


def _from_data_dir(request: _Request) -> Dataset:
    return _load_file(_stored(request.source), request, request.source)


def _from_digits(request: _Request) -> Dataset:
    if request.split != "all":
        raise DataError(f"'digits' has no split {request.split!r}; use split 'all'.")
    return _adapt(load_digits(), request)


def _from_mnist(request: _Request) -> Dataset:
    make = {"affine-mnist": affine_mnist, "diffeo-mnist": diffeo_mnist}[request.source]
    stored = read_archive(_stored("mnist"), "train")
    train, test = make(stored.images, stored.labels, seed=request.seed)
    if request.split == "all":
        assert train.labels is not None
        assert test.labels is not None
        whole = dataclasses.replace(
            train,
            images=np.concatenate([train.images, test.images]),
            labels=np.concatenate([train.labels, test.labels]),
            indices=np.arange(len(train) + len(test)),
        )
        return _adapt(whole, request)
    return _adapt(train if request.split == "train" else test, request)


def _from_mnist_1k(request: _Request) -> Dataset:
    _refuse_train(request)
    path = _stored("mnist")
    drawn = load_array(path, split="test", limit=1000, seed=request.seed, name=request.source)
    return _adapt(drawn, request)


def _from_mnist_color(request: _Request) -> Dataset:
    path = _stored("mnist")
    stored = read_archive(path)
    first, count = 0, len(stored.images)
    if request.split != "all":
        n_test = len(read_archive(path, "test").images)
        first, count = (count - n_test, n_test) if request.split == "test" else (0, count - n_test)
    chosen = draw(count, request.limit, request.seed)
    chosen = np.arange(count) if chosen is None else chosen
    made = mnist_color(stored.images, stored.labels, seed=request.seed, indices=first + chosen)
    # Counted from the beginning of the split, as for "mnist".
    return _adapt(dataclasses.replace(made, indices=chosen), request)


def _from_mnist_test(request: _Request) -> Dataset:
    _refuse_train(request)
    stored = read_archive(_stored("mnist"), "test")
    chosen = draw(len(stored.images), request.limit, request.seed)
    made = affnist_like(stored.images, stored.labels, seed=request.seed, indices=chosen)
    return _adapt(made, request)


def _refuse_train(request: _Request) -> None:
    if request.split == "train":
        raise DataError(
            f"{request.source!r} has no split 'train': it is made from MNIST's test images; "
            f"use split 'all' or 'test', which are the same here."
        )


_NAMED: dict[str, Callable[[_Request], Dataset]] = {
    "digits": _from_digits,
    "mnist": _from_data_dir,
    "usps": _from_data_dir,
    "affine-mnist": _from_mnist,
    "diffeo-mnist": _from_mnist,
    "mnist-1k": _from_mnist_1k,
    "mnist-color": _from_mnist_color,
    "affnist-like": _from_mnist_test,
}
_SUFFIXES: dict[str, Callable[[_Request], Dataset]] = {".npy": _from_array, ".npz": _from_array}


def _load_file(path: Path, request: _Request, name: str | None) -> Dataset:
    return load_array(
        path,
        split=request.split,
        size=request.size,
        channels=request.channels,
        limit=request.limit,
        seed=request.seed,
        name=name,
    )


def _adapt(dataset: Dataset, request: _Request) -> Dataset:
    """Limit, resize and convert what a loader without these settings gave."""
    dataset = dataset.limit(request.limit, request.seed)
    assert isinstance(dataset.images, np.ndarray)
    images = convert_channels(dataset.images, request.channels)
    size = parse_size(request.size)
    if size is not None:
        images = fit_images(images, size)
    return dataclasses.replace(dataset, images=images)


def _stored(name: str) -> Path:
    """Where a named set lies."""
    folder = os.environ.get(DATA_DIR)
    if not folder:
        raise DataError(
            f"{name!r} is read from the folder that the environment variable {DATA_DIR} names, "
            f"which is not set; set it to a folder that holds {name}.npz."
        )
    path = Path(folder).expanduser() / f"{name}.npz"
    if not path.is_file():
        raise DataError(
            f"{DATA_DIR} is {folder!r}, which holds no {name}.npz; put the file there, "
            f"with x_train, y_train, x_test and y_test as Keras names them."
        )
    return path


def _refuse(path: Path) -> DataError:
    """What is wrong with a source that no loader takes."""
    suffix = path.suffix.lower()
    if not path.exists():
        what = "does not exist"
    elif suffix in FORMATS or suffix in OTHER_SUFFIXES:
        what = "is a single image, and clustering needs many"
    elif suffix in recording.FORMATS or suffix in recording.OTHER_SUFFIXES:
        what = "is a single recording, and clustering needs many"
    else:
        what = "is not a folder, .npy, .npz or IDX file"
    return DataError(f"source {str(path)!r} {what}; give {_possible()}.")


def _possible() -> str:
    """What can be a source."""
    return (
        f"a folder of images ({', '.join(FORMATS)}) or recordings "
        f"({', '.join(recording.FORMATS)}), a file ({', '.join(_SUFFIXES)}, IDX), tfds: and a "
        f"name, or one of {', '.join(_NAMED)}"
    )
