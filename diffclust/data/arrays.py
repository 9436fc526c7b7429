"""Arrays: those passed in Python, and `.npy`, `.npz` and IDX files."""

from pathlib import Path

import numpy as np

from diffclust._validation import some
from diffclust.data.archives import Contents, read_archive
from diffclust.data.dataset import DataError, Dataset, draw, encode_labels
from diffclust.data.idx import is_idx, read_idx
from diffclust.data.resize import check_channels, convert_channels, fit_images, parse_size

_FULL_SCALE = {"bool": 1, "uint8": 255, "uint16": 65535}
_ROUNDING = 1e-5
"""How far outside [0, 1] counts as rounding, such as resizing leaves, and is clipped."""


def as_images(
    array: object, *, name: str = "images", indices: np.ndarray | None = None
) -> np.ndarray:
    """Check an array of images and bring it to float32 in [0, 1], channels last.

    Args:
        array: Array-like (NumPy, JAX, nested lists), `[n, height, width]` or
            `[n, height, width, channels]` with 1 or 3 channels. uint8 is divided by 255, uint16
            by 65535, bool becomes 0 and 1; floats must be in [0, 1] already.
        name: What an error calls the array.
        indices: What an error calls each image, integers `[n]`, for a part of a larger array; by
            default they count up from 0.

    Returns:
        float32 `[n, height, width, channels]`; without a copy where none is needed.

    Raises:
        DataError: If the shape is another, a side is empty, values are out of range, NaN or
            infinite (with the indices of those images), or the type has no fixed range.
    """
    return _to_images(_as_array(array, name), name, indices)


def load_array(
    path: str | Path,
    *,
    split: str = "all",
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    name: str | None = None,
) -> Dataset:
    """Load images from a `.npy`, `.npz` or IDX file, never unpickling anything.

    Args:
        path: The file. In an `.npz`, images are under `x_train` and `x_test` (labels under
            `y_train`, `y_test`, as Keras names them), under `x` (`y`), under `images` (`labels`),
            or are the only array in it. An IDX file (`train-images-idx3-ubyte`, gzipped or not)
            finds its labels (`train-labels-idx1-ubyte`) beside it.
        split: `"train"`, `"test"`, or `"all"` for both, train first.
        size: Side of a square, or height and width, in pixels, to which images are resized and
            centre-cropped; None leaves them.
        channels: 1 to make all grey, 3 to make all RGB, None to leave them.
        limit: At most so many images, drawn at random, in their old order.
        seed: Seed of the draw.
        name: What the data are called; by default the file's name without its suffix.

    Returns:
        The images, with labels where there are any.

    Raises:
        DataError: If the file is missing, damaged, needs pickle, lacks the split, or holds
            something else than images (as in `as_images`), or if a setting is out of range.
    """
    path = Path(path)
    target = parse_size(size)
    check_channels(channels)
    contents = read_idx(path, split) if is_idx(path) else read_archive(path, split)
    labels = _labels_of(contents, path)
    chosen = draw(len(contents.images), limit, seed) if contents.images.ndim else None
    raw = contents.images if chosen is None else contents.images[chosen]
    images = convert_channels(_to_images(raw, f"{contents.key} in {str(path)!r}", chosen), channels)
    if target is not None:
        images = fit_images(images, target)
    codes, names = (None, None) if labels is None else encode_labels(labels)
    return Dataset(
        images=images,
        labels=codes if codes is None or chosen is None else codes[chosen],
        label_names=names,
        name=Path(path.name.removesuffix(".gz")).stem if name is None else name,
        indices=chosen,
    )


def _as_array(array: object, name: str) -> np.ndarray:
    try:
        return np.asarray(array)
    except ValueError as error:
        raise DataError(
            f"{name} must be one array [n, height, width, channels]: these have several shapes; "
            f"bring them to one size first."
        ) from error


def _to_images(array: np.ndarray, name: str, indices: np.ndarray | None) -> np.ndarray:
    """`as_images`, where image i of the array is image `indices[i]` of the source."""
    check_shape(array, name)
    if array.ndim == 3:
        array = array[..., None]
    scale = _FULL_SCALE.get(array.dtype.name)
    if scale is not None:
        images = array.astype(np.float32)
        images /= scale
        return images
    # bfloat16, which JAX arrays may have, is no float to NumPy.
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise DataError(
            f"{name} must be uint8, uint16, bool or float: got dtype {array.dtype}, which has no "
            f"fixed range; use astype('uint8') for values of 0 to 255, or divide into [0, 1]."
        )
    # What overflows here is out of range as well, and is refused below.
    with np.errstate(over="ignore"):
        images = array.astype(np.float32, copy=False)
    _check_values(images, name, indices)
    outside = images.min() < 0.0 or images.max() > 1.0
    return np.clip(images, 0.0, 1.0) if outside else images


def check_shape(array: np.ndarray, name: str) -> None:
    """Refuse what is not `[n, h, w]` or `[n, h, w, c]`, with a remedy for what is common.

    Args:
        array: The array, of which only the shape is looked at.
        name: What an error calls it.

    Raises:
        DataError: If it has another shape.
    """
    shape = list(array.shape)
    wanted = f"{name} must be [n, height, width] or [n, height, width, channels] with 1 or 3"
    if array.ndim == 2:
        side = round(shape[1] ** 0.5)
        like = f"{side}, {side}" if side * side == shape[1] else "height, width"
        raise DataError(
            f"{wanted} channels: got {shape}; reshape flat rows with reshape(-1, {like}), "
            f"or a single image with image[None]."
        )
    if array.ndim not in (3, 4):
        raise DataError(f"{wanted} channels: got {shape}; reshape it.")
    if 0 in shape:
        raise DataError(f"{wanted} channels: got {shape}, which holds no pixels.")
    if array.ndim == 4 and shape[3] not in (1, 3):
        if shape[1] in (1, 3):
            remedy = "channels come last here: use moveaxis(1, -1)"
        elif shape[3] == 4:
            remedy = "drop the alpha channel: use array[..., :3]"
        else:
            remedy = "choose 1 or 3 of them"
        raise DataError(f"{wanted} channels: got {shape}; {remedy}.")


def _check_values(images: np.ndarray, name: str, indices: np.ndarray | None) -> None:
    """Refuse NaN, infinities and values out of [0, 1]."""
    # Extremes are NaN or infinite if any value is: one pass, and no mask of the array's size.
    low, high = float(images.min()), float(images.max())
    if not np.isfinite(low + high):
        bad = np.flatnonzero([not np.isfinite(image).all() for image in images])
        where = (bad if indices is None else indices[bad]).tolist()
        raise DataError(
            f"{name} must be finite: {len(bad)} of {len(images)} images hold NaN or infinity, "
            f"at indices {some(where)}; repair or remove them."
        )
    if low < -_ROUNDING or high > 1.0 + _ROUNDING:
        remedy = "divide by 255" if low >= 0.0 and 1.0 < high <= 255.0 else "rescale them"
        raise DataError(
            f"{name} must be in [0, 1] when floats: got {low:.6g} to {high:.6g}; {remedy}."
        )


def _labels_of(contents: Contents, path: Path) -> np.ndarray | None:
    if contents.labels is None:
        return None
    count = len(contents.images) if contents.images.ndim else 0
    return check_labels(contents.labels, count, f"{contents.label_key} in {str(path)!r}")


def check_labels(labels: np.ndarray, n: int, where: str) -> np.ndarray:
    """Refuse labels that are not one integer or string for each image.

    Args:
        labels: What is stored.
        n: Number of images.
        where: What an error calls them.

    Returns:
        Labels `[n]` of integers or strings.

    Raises:
        DataError: If they are something else.
    """
    # Keras keeps the labels of CIFAR as [n, 1].
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (n,):
        raise DataError(
            f"{where} must hold one label for each of the {n} images: got shape "
            f"{list(labels.shape)}; for one-hot rows save their argmax."
        )
    if labels.dtype.kind == "f" and np.array_equal(labels, np.round(labels)):
        labels = labels.astype(np.int64)
    if labels.dtype.kind == "S":
        labels = np.array([label.decode("utf-8", "replace") for label in labels.tolist()])
    if labels.dtype.kind not in "iubU":
        raise DataError(
            f"{where} must be integers or strings: got dtype {labels.dtype}; "
            f"convert them, or leave them out."
        )
    return labels
