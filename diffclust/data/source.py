"""One entry for every source: a name, a folder, or a file."""

import dataclasses
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Unpack

import numpy as np

from diffclust.data import audio
from diffclust.data.arrays import LoadOptions, LoadSettings, fit_images
from diffclust.data.audio import load_recordings
from diffclust.data.dataset import DataError, Dataset, encode_labels
from diffclust.data.files import is_idx, load_array, read_archive
from diffclust.data.folder import kinds_in, load_folder
from diffclust.data.generated import affine_mnist, affnist_like, diffeo_mnist, mnist_color
from diffclust.data.landmarks import table_of
from diffclust.data.pictures import FORMATS, OTHER_SUFFIXES
from diffclust.data.tfds import PREFIX, load_tfds
from diffclust.methods import methods_of_table

DATA_DIR = "DIFFCLUST_DATA_DIR"
"""The environment variable that names the folder with `mnist.npz` and `usps.npz`."""


def load(
    source: str | Path,
    *,
    rate: int | None = None,
    seconds: float | None = None,
    **settings: Unpack[LoadSettings],
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
        rate: Samples a second that recordings are resampled to; by default see `load_recordings`.
        seconds: Length of what is read of each recording; by default see `load_recordings`.
        **settings: What every loader takes by name: `split`, `size`, `channels`, `skip_bad`,
            `limit`, `seed` and `progress`; see `LoadSettings`.

    Returns:
        The images, with labels (for evaluation only) where the source has them.

    Raises:
        DataError: If the source is unknown or unfit, in one line that says what would do.
    """
    options = LoadOptions(**settings)
    name = source if isinstance(source, str) else ""
    is_folder = not is_name(name) and _is_folder(source)
    if is_folder and holds_recordings(Path(source)):
        return load_recordings(source, rate=rate, seconds=seconds, **settings)
    for given, value in (("rate", rate), ("seconds", seconds)):
        if value is not None:
            raise DataError(
                f"{given} is for a folder of recordings, and {str(source)!r} is none; leave it out."
            )
    if name.startswith(PREFIX):
        return load_tfds(name.removeprefix(PREFIX), **settings)
    if is_folder:
        return load_folder(source, **settings)
    _refuse_split(name, options)
    dataset = _NAMED.get(name, _load_file)(str(source), options)
    dataset = dataset.limit(options.limit, options.seed)
    images = fit_images(np.asarray(dataset.images), options.target, options.channels)
    return dataclasses.replace(dataset, images=images)


def is_name(source: str) -> bool:
    """Whether a source is the name of a set, not a path."""
    return source in _NAMED or source.startswith(PREFIX)


def is_picture(source: str) -> bool:
    """Whether a source is the file of a single picture."""
    return Path(source).suffix.lower() in FORMATS and Path(source).is_file()


def _is_folder(source: str | Path) -> bool:
    if not str(source):
        # As a path it would be the current folder, which an unset shell variable does not mean.
        raise DataError(f"source must not be empty; give {_known_sources()}.")
    try:
        return Path(source).is_dir()
    except OSError as error:
        raise DataError(
            f"source {str(source)!r} cannot be opened ({error.strerror}); give {_known_sources()}."
        ) from error


def holds_recordings(path: Path) -> bool:
    """Whether a folder holds recordings, and no pictures.

    Args:
        path: The folder.

    Returns:
        True for recordings, False for pictures, and where there is neither.

    Raises:
        DataError: If it holds both.
    """
    has_pictures, has_recordings = kinds_in(
        path, (*FORMATS, *OTHER_SUFFIXES), (*audio.FORMATS, *audio.OTHER_SUFFIXES)
    )
    if has_pictures and has_recordings:
        raise DataError(
            f"folder {str(path)!r} holds images and recordings; put them in folders of their own."
        )
    return has_recordings


def _load_file(source: str, options: LoadOptions) -> Dataset:
    path = Path(source)
    if (held := table_of(path)) is not None:
        method = methods_of_table(held)[0]
        raise DataError(
            f"source {source!r} holds {held}, not images; {method.name} clusters them (diffclust "
            f"fit --method {method.name}; in Python {method.model}, from load_{held})."
        )
    suffix = path.suffix.lower()
    if suffix in _SUFFIXES or is_idx(path):
        return load_array(path, **vars(options))
    if not path.exists():
        what = "does not exist"
    elif suffix in FORMATS or suffix in OTHER_SUFFIXES:
        what = "is a single image, and clustering needs many"
    elif suffix in audio.FORMATS or suffix in audio.OTHER_SUFFIXES:
        what = "is a single recording, not a folder of them"
    else:
        what = (
            "is not a folder, .npy, .npz or IDX file, nor one of landmarks (.npz, .csv, .tps) or "
            "series (.npz, .csv, .tsv, .ts)"
        )
    raise DataError(f"source {source!r} {what}; give {_known_sources()}.")


def _known_sources() -> str:
    """Names in words what can be a source."""
    return (
        f"a folder of images ({', '.join(FORMATS)}) or recordings ({', '.join(audio.FORMATS)}), a "
        f"file ({', '.join(_SUFFIXES)}, IDX), tfds: and a name, or one of {', '.join(_NAMED)}"
    )


def _npz_path(name: str) -> Path:
    """Returns the file of a named set."""
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


def _load_stored(name: str, options: LoadOptions) -> Dataset:
    return load_array(_npz_path(name), name=name, **vars(options))


def _load_affine_or_diffeo(name: str, options: LoadOptions) -> Dataset:
    make = {"affine-mnist": affine_mnist, "diffeo-mnist": diffeo_mnist}[name]
    stored = read_archive(_npz_path("mnist"), "train")
    parts = make(stored.images, stored.labels, seed=options.seed)
    if options.split != "all":
        return parts[options.split == "test"]
    fields = ("images", "labels", "indices")
    joined = {field: np.concatenate([getattr(part, field) for part in parts]) for field in fields}
    return dataclasses.replace(parts[0], **joined)


def _load_mnist_1k(name: str, options: LoadOptions) -> Dataset:
    settings = {**vars(options), "split": "test", "limit": 1000}
    return load_array(_npz_path("mnist"), name=name, **settings)


def _load_mnist_color(name: str, options: LoadOptions) -> Dataset:
    stored = read_archive(_npz_path("mnist"))
    first, count = 0, len(stored.images)
    if options.split != "all":
        n_test = len(read_archive(_npz_path("mnist"), "test").images)
        first, count = (count - n_test, n_test) if options.split == "test" else (0, count - n_test)
    chosen = options.draw(count)
    made = mnist_color(stored.images, stored.labels, seed=options.seed, indices=first + chosen)
    # Counted from the beginning of the split, as for "mnist".
    return dataclasses.replace(made, indices=chosen)


def _load_affnist_like(name: str, options: LoadOptions) -> Dataset:
    stored = read_archive(_npz_path("mnist"), "test")
    chosen = options.draw(len(stored.images))
    return affnist_like(stored.images, stored.labels, seed=options.seed, indices=chosen)


def _refuse_split(name: str, options: LoadOptions) -> None:
    """Refuses a split that a named set does not have."""
    if name == "digits" and options.split != "all":
        raise DataError(f"{name!r} has no split {options.split!r}; use split 'all'.")
    if name in ("mnist-1k", "affnist-like") and options.split == "train":
        raise DataError(
            f"{name!r} has no split 'train': it is made from MNIST's test images; "
            f"use split 'all' or 'test', which are the same here."
        )


_NAMED: dict[str, Callable[[str, LoadOptions], Dataset]] = {
    "digits": lambda name, options: load_digits(),
    "mnist": _load_stored,
    "usps": _load_stored,
    "affine-mnist": _load_affine_or_diffeo,
    "diffeo-mnist": _load_affine_or_diffeo,
    "mnist-1k": _load_mnist_1k,
    "mnist-color": _load_mnist_color,
    "affnist-like": _load_affnist_like,
}
MADE_SETS = ("affine-mnist", "diffeo-mnist", "mnist-color", "affnist-like")
"""Sets whose images depend on the seed."""

DRAWN_SETS = ("affine-mnist", "diffeo-mnist", "mnist-1k")
"""Named sets whose indices are those of a larger set that they are drawn from."""

_SUFFIXES = (".npy", ".npz")


def load_digits() -> Dataset:
    """Load 1,797 handwritten digits of 8×8 grey pixels, 10 classes, without any download.

    Returns:
        Images float32 `[1797, 8, 8, 1]`, scaled from 0..16 to [0, 1], with labels.

    References:
        E. Alpaydin, C. Kaynak, "Optical recognition of handwritten digits", UCI, 1998 (test part).
    """
    # Read as it lies: importing scikit-learn takes longer than everything before the first step.
    spec = importlib.util.find_spec("sklearn")
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin).with_name("datasets") / "data" / "digits.csv.gz"
    table = np.loadtxt(file, delimiter=",")
    images = (table[:, :-1].reshape(-1, 8, 8, 1) / 16.0).astype(np.float32)
    return Dataset(images, *encode_labels(table[:, -1].astype(np.int64)), name="digits")
