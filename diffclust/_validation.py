"""Checks of what users pass in, on the host, before anything is compiled.

Every message says which argument, what came, and what would do.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Int

from diffclust._precision import warn_of_offset
from diffclust.image_source import Images, ImageSource, uniform
from diffclust.methods import METHODS, plural

_FIRST_SAMPLES = 4096
"""How many samples are looked at to see how far from zero all are."""

_COLLINEAR = 1e-6
"""Landmarks lie on a line where they stray from it by less than this share of its length."""


def some(items: Iterable[object], most: int = 5) -> str:
    """The first few of many, for an error message that stays on one line.

    Args:
        items: What to name. File names come as `repr(name)`, which keeps newlines and odd bytes
            from breaking the line.
        most: How many to name before the rest is only counted.

    Returns:
        For example `'a.png', 'b.png' and 7 more`.
    """
    texts = [str(item) for item in items]
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def reason_of(error: BaseException) -> str:
    """Returns the message of an error on one line.

    Args:
        error: Whatever was raised.

    Returns:
        Its message, or its type where it has none.
    """
    text = str(getattr(error, "strerror", None) or error)
    return " ".join(text.split()) or type(error).__name__


def images(value: Any, name: str = "images", *, any_channels: bool = False) -> np.ndarray:
    """Checks a batch of images.

    Args:
        value: Anything array-like of shape `(n, height, width, channels)`, or `(n, height, width)`
            for grey images; unsigned whole numbers of 8 or 16 bits are divided by the largest.
        name: The argument's name in messages.
        any_channels: Whether arrays that look as if channels came first are taken.

    Returns:
        A floating array of shape `(n, height, width, channels)`, in JAX's default precision.

    Raises:
        ValueError: For any other shape or type, an empty batch, NaN or infinity, or for images
            that are read as they are needed.
    """
    in_memory(value, name)
    array = as_array(value, name, "images of one size")
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or 0 in array.shape:
        raise ValueError(
            f"{name} must have shape (n, height, width, channels) or (n, height, width), none of "
            f"them 0; got {np.shape(value)}"
        )
    _, first, rows, last = array.shape
    if not any_channels and first in (1, 3) and min(rows, last) >= 8 and rows < 4 * last:
        raise ValueError(
            f"{name} of shape {array.shape} look as if channels came first; give "
            "numpy.moveaxis(images, 1, -1), of shape (n, height, width, channels)"
        )
    if is_of_bytes(array.dtype):
        array = array.astype(jnp.result_type(float)) / np.iinfo(array.dtype).max
    if not _holds_numbers(array):
        raise ValueError(f"{name} must hold numbers, not {array.dtype}; convert it to float first")
    array = array.astype(jnp.result_type(float), copy=False)
    finite_images(array, name)
    return array


def finite_images(array: np.ndarray, name: str = "images") -> None:
    """Refuses images that are not finite.

    Args:
        array: Images, of shape `(n, height, width, channels)`.
        name: The argument's name in the message.

    Raises:
        ValueError: If there are NaN or infinity.
    """
    _finite(np.flatnonzero(~np.isfinite(array).all(axis=(1, 2, 3))), name)


def is_of_bytes(dtype: np.dtype) -> bool:
    """Whether intensities of a type are divided by the largest: unsigned, of 8 or 16 bits.

    Args:
        dtype: The type, in any order of bytes.

    Returns:
        The answer.
    """
    return dtype.name in ("uint8", "uint16")


def floating(array: Any, name: str) -> None:
    """Refuses whole numbers, in whose type nothing can be computed that lies between them.

    Args:
        array: An array, which may be traced.
        name: The argument's name in messages.

    Raises:
        ValueError: If they are not floating numbers.
    """
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        remedy = "use astype(float)"
        if is_of_bytes(array.dtype):
            kind = np.iinfo(array.dtype)
            remedy = f"divide images of {kind.bits} bits by {kind.max}"
        raise ValueError(f"{name} must be floating numbers, not {array.dtype}; {remedy}")


def _holds_numbers(array: np.ndarray) -> bool:
    # bfloat16, which JAX arrays may have, is no float to NumPy.
    return array.dtype.kind in "iuf" or array.dtype.name == "bfloat16"


def unmasked(value: Any, name: str) -> None:
    """Refuses NumPy's masked arrays, whose hidden values would count.

    Args:
        value: Anything.
        name: The argument's name in messages.

    Raises:
        ValueError: If something is masked.
    """
    if np.ma.is_masked(value):
        raise ValueError(f"{name} has masked values; give an array without them")


def as_array(value: Any, name: str, what: str = "numbers") -> np.ndarray:
    """An array of anything array-like without masked values.

    Args:
        value: Anything array-like.
        name: The argument's name in messages.
        what: What it must hold, in messages.

    Returns:
        The array.

    Raises:
        ValueError: If something is masked or traced, parts have several shapes, or it is a set of
            samples with names.
    """
    unmasked(value, name)
    not_traced(value, name)
    try:
        array = np.asarray(value)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(f"{name} must hold {what}; these parts have several shapes") from error
    if array.dtype == object and hasattr(value, "samples"):
        raise ValueError(f"{name} must be an array, not a {type(value).__name__}; give its samples")
    return array


def not_traced(value: Any, name: str) -> Any:
    """Refuses what `jax.jit` or `jax.vmap` gives a function in place of an array.

    Args:
        value: Anything.
        name: The argument's name in messages.

    Returns:
        The same.

    Raises:
        ValueError: If it is traced.
    """
    if isinstance(value, Tracer):
        raise ValueError(
            f"{name} is traced, and a fit runs on the host; diffclust.solvers.compiled_lloyd works "
            "under jax.jit and jax.vmap"
        )
    return value


def in_memory(value: Any, name: str = "images") -> None:
    """Refuses images that are read as they are needed.

    Args:
        value: Images.
        name: The argument's name in messages.

    Raises:
        ValueError: If they are an `ImageSource`.
    """
    if isinstance(value, ImageSource):
        raise ValueError(
            f"{name} are read as they are needed, but this needs all of them in memory at once; "
            "give fewer or smaller ones as an array (on the command line --limit or --size, and no "
            "--stream), or take another method: "
            f"{', '.join(name for name, method in METHODS.items() if method.streams)}"
        )


def _finite(bad: np.ndarray, name: str, what: str = "these images") -> None:
    if bad.size:
        raise ValueError(
            f"{name} holds NaN or infinity at index {some(bad)}; remove or repair {what}"
        )


def images_or_source(value: Any) -> Images:
    """Checks a batch of images, or images that are read as they are needed.

    Args:
        value: As for `images`, or an `ImageSource`, which is read once in pieces.

    Returns:
        A floating array of shape `(n, height, width, channels)`, or the source.

    Raises:
        ValueError: As for `images`.
    """
    if not isinstance(value, ImageSource):
        return images(value)
    if len(value.shape) != 4 or 0 in value.shape:
        raise ValueError(
            f"images must have shape (n, height, width, channels), none 0; got {value.shape}"
        )
    _finite(value.faults.not_finite, "images")
    return value


def uniform_images(array: Images) -> Int[np.ndarray, " some"]:
    """Images of a single colour, in which there is nothing to see.

    Args:
        array: Images.

    Returns:
        Their indices.
    """
    return (
        array.faults.uniform if isinstance(array, ImageSource) else np.flatnonzero(uniform(array))
    )


def not_blank(array: Images) -> None:
    """Refuses blank images, which have no unit norm.

    Args:
        array: Images.

    Raises:
        ValueError: With the indices of the blank images.
    """
    if isinstance(array, ImageSource):
        blank = array.faults.blank
    else:
        blank = np.flatnonzero(~array.reshape(len(array), -1).any(axis=1))
    if blank.size:
        raise ValueError(
            f"images holds blank images at index {some(blank)}: all black, or of one colour where "
            "backgrounds are taken out; they cannot be scaled to unit norm: remove them"
        )


def cluster_count(clusters: int, samples: int, what: str = "images") -> None:
    """Checks that K is not above the number of samples.

    Args:
        clusters: Number of clusters.
        samples: Number of samples.
        what: What the samples are called in the message.

    Raises:
        ValueError: If it is.
    """
    if clusters > samples:
        raise ValueError(
            f"num_clusters is {clusters}, but the number of {what} is {samples}; ask for fewer"
        )


def positive(value: Any, name: str, *, least: float | int = 1, strictly: bool = False) -> None:
    """Checks a number, or an array of numbers; traced ones have no values to check.

    Args:
        value: The number.
        name: The argument's name in messages.
        least: The least that is allowed.
        strictly: Whether `least` itself is not allowed.

    Raises:
        ValueError: If it is below, infinite, or an integer that 64 bits do not hold.
    """
    if isinstance(value, Tracer):
        return
    array = np.asarray(value)
    if array.dtype.kind in "OUSc":
        raise ValueError(f"{name} must be a number that 64 bits hold, not {value}")
    if not np.all(array > least if strictly else array >= least):
        raise ValueError(
            f"{name} must be {'above' if strictly else 'at least'} {least}, not {value}"
        )
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite, not {value}")


def count(value: Any, name: str, *, least: int = 1) -> None:
    """Checks a whole number.

    Args:
        value: The number.
        name: The argument's name in messages.
        least: The least that is allowed.

    Raises:
        ValueError: If it is not an integer, or below.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    positive(value, name, least=least)


def plain_number(value: Any) -> Any:
    """A number of NumPy's as one of Python's, which `jax.jit` takes for a constant.

    Args:
        value: Anything.

    Returns:
        The number; anything else as it is.
    """
    is_array = isinstance(value, np.ndarray | jax.Array) and not isinstance(value, Tracer)
    is_number = isinstance(value, np.number) or (is_array and value.ndim == 0)
    return value.item() if is_number else value


def plain_numbers(value: Any) -> Any:
    """Numbers in a tuple, which `jax.jit` takes for a constant.

    Args:
        value: A number, a list or an array of numbers, or anything else.

    Returns:
        A tuple of Python's numbers, of one where one was given; None and text as they are.
    """
    if value is None or isinstance(value, str):
        return value
    return tuple(map(plain_number, value)) if np.iterable(value) else (plain_number(value),)


def plain_pair(value: Any) -> Any:
    """Validates a height and width; one number stands for both."""
    numbers = plain_numbers(value)
    return 2 * numbers if isinstance(numbers, tuple) and len(numbers) == 1 else numbers


def part(value: Any, kind: type, name: str) -> None:
    """Refuses a part of another kind, such as a class in the place of an object.

    Args:
        value: What was given.
        kind: What it must be an instance of.
        name: What messages call it.

    Raises:
        ValueError: With what was given.
    """
    if not isinstance(value, kind):
        given = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise ValueError(f"{name} must be an {kind.__name__}, not {given}")


def one_of(value: Any, choices: Iterable[object], name: str) -> None:
    """Checks a choice.

    Args:
        value: What was chosen.
        choices: What there is to choose.
        name: The argument's name in messages.

    Raises:
        ValueError: If it is none of them.
    """
    if value not in (listed := tuple(choices)):
        raise ValueError(f"{name} must be one of {listed}, not {value!r}")


def shaped(array: Any, shape: tuple[int, ...], name: str, words: str) -> None:
    """Checks the shape of an array that belongs to others.

    Args:
        array: The array, which may be traced.
        shape: The shape that it must have.
        name: What the array is called in the message.
        words: What there must be of it, such as "one row for each sample".

    Raises:
        ValueError: If it has another shape.
    """
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, {words}; got {array.shape}")


def landmarks_fit(landmarks: Sequence[int], height: int, width: int) -> None:
    """Checks that an image has at least as many pixels a side as there are landmarks.

    Args:
        landmarks: Rows and columns of the landmark grid.
        height: Rows of the images.
        width: Columns of the images.

    Raises:
        ValueError: If it has fewer.
    """
    rows, columns = landmarks
    if height < rows or width < columns:
        raise ValueError(
            f"images of {height}×{width} pixels are smaller than the landmark grid of "
            f"{rows}×{columns}; use fewer landmarks or larger images"
        )


def sample_arrays(leaves: Sequence[Any], name: str = "samples") -> None:
    """Checks the arrays of samples by their shapes and types alone.

    Args:
        leaves: Arrays, or images that are read as they are needed.
        name: The argument's name in messages.

    Raises:
        ValueError: With what is wrong and what would do.
    """
    counts = {leaf.shape[:1] for leaf in leaves}
    if len(counts) != 1 or counts == {()} or (0,) in counts:
        raise ValueError(
            f"{name} must be arrays with one leading axis for at least one sample; got "
            f"shapes {[leaf.shape for leaf in leaves]}"
        )
    for leaf in leaves:
        if not np.issubdtype(leaf.dtype, np.floating):
            raise ValueError(
                f"{name} must be floating numbers, not {leaf.dtype}; scale them, or astype(float)"
            )


def samples(value: Any, name: str = "samples", *, finite: bool = True) -> Any:
    """Checks samples of any kind.

    Args:
        value: A floating array with a leading axis, or a tree of such arrays.
        name: The argument's name in messages.
        finite: Whether NaN and infinities are refused.

    Returns:
        The same with arrays of NumPy's, in JAX's floating type.

    Raises:
        ValueError: With what is wrong and what would do.
    """
    if isinstance(value, list | tuple) and any(isinstance(row, list | tuple) for row in value):
        leaves = jax.tree.leaves(value)
        if leaves and all(isinstance(leaf, int | float) for leaf in leaves):
            # JAX takes nested lists for a tree of numbers.
            value = as_array(value, name, "rows of one length").astype(float)
    array = jax.tree.map(lambda leaf: as_array(leaf, name), value)
    sample_arrays(jax.tree.leaves(array), name)
    with np.errstate(over="ignore"):
        array = jax.tree.map(lambda leaf: leaf.astype(jnp.result_type(float), copy=False), array)
    for leaf in jax.tree.leaves(array) if finite else ():
        bad = ~np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)
        _finite(np.flatnonzero(bad), name, "these")
    for leaf in jax.tree.leaves(array):
        warn_of_offset(leaf[:_FIRST_SAMPLES], name)
    return array


def weights(
    value: Any, samples: int, name: str = "sample_weight", what: str = "image"
) -> np.ndarray | None:
    """Checks sample weights.

    Args:
        value: Non-negative numbers, one a sample, or None.
        samples: Number of samples.
        name: The argument's name in messages.
        what: What a sample is called in messages.

    Returns:
        A floating array, or None.

    Raises:
        ValueError: For a wrong length, a negative or infinite weight, or no positive one.
    """
    if value is None:
        return None
    dtype, given = jnp.result_type(float), as_array(value, name)
    try:
        with np.errstate(over="ignore"):
            array = given.astype(dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, not {given.dtype}") from error
    shaped(array, (samples,), name, f"one for each {what}")
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise ValueError(f"{name} must be finite and at least 0 (as {dtype})")
    # Their sums, times a sample's squares, must be numbers too.
    limits = np.finfo(array.dtype)
    least, most = float(limits.tiny), 1e-8 * float(limits.max)
    is_small = array.max() < least
    if is_small or np.sum(array, dtype=np.float64) > most:
        size = ("too small" if given.any() else "zero") if is_small else "too large"
        raise ValueError(f"{name} is {size} for all {plural(what)}; give some a weight such as 1")
    return array


def series(value: Any, name: str = "series") -> np.ndarray:
    """Checks series over time.

    Args:
        value: Array-like `[n, length]` or `[n, length, channels]` of numbers, NaN where a value is
            missing; or a list of series of different lengths, `[length]` or `[length, channels]`,
            which are filled up with NaN.
        name: The argument's name in messages.

    Returns:
        A floating array `[n, length, channels]`.

    Raises:
        ValueError: If the shape is another, some values are infinite, or a series has fewer than
            two values.
    """
    try:
        if isinstance(value, list | tuple):
            if not value:
                raise TypeError("there are none")
            value = _padded([filled(one) for one in value])
        value = filled(value) if np.ma.is_masked(value) else value
        if np.iscomplexobj(value):
            raise TypeError("not complex ones")
        array = np.asarray(value).astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers ({error})") from error
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(
            f"{name} must have shape [n, length] or [n, length, channels], none of them 0: got "
            f"{list(np.shape(value))}"
        )
    if np.isinf(array).any():
        raise ValueError(f"{name} holds infinities; NaN marks what is missing")
    seen = np.isfinite(array).all(axis=2).sum(axis=1)
    if (short := np.flatnonzero(seen < 2)).size:
        raise ValueError(f"{name} holds fewer than two values at index {some(short)}")
    dtype = np.dtype(jnp.result_type(float))
    limits = np.finfo(dtype)
    with np.errstate(over="ignore"):
        mean, deviation = np.nanmean(array, axis=1), np.nanstd(array, axis=1)
    lost = np.abs(mean) * limits.eps > 1e-2 * deviation
    lost |= (deviation < np.sqrt(limits.tiny)) | (np.abs(mean) > np.sqrt(limits.max))
    varies = deviation > 1e-12 * np.abs(mean)  # else it is constant but for rounding
    if (lost := np.flatnonzero((lost & varies).any(axis=1))).size:
        raise ValueError(
            f"{name} would lose their digits in {dtype} at index {some(lost)}: they lie too far "
            "from zero for how much they vary, or are too small or too large; subtract their "
            "means, or rescale them"
        )
    return array.astype(dtype)


def filled(one: Any) -> np.ndarray:
    """A series, or several.

    Args:
        one: Anything array-like.

    Returns:
        An array of 64 bits, NaN where values are masked.
    """
    return np.ma.filled(np.ma.asarray(one, dtype=np.float64), np.nan)


def _padded(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Series of different lengths in one array, NaN after their ends."""
    length = max((len(part) for part in parts), default=0)
    columns = [part.reshape(len(part), -1) for part in parts]
    padded = [
        np.pad(part, ((0, length - len(part)), (0, 0)), constant_values=np.nan) for part in columns
    ]
    return np.stack(padded)


def landmarks(
    value: Any,
    name: str = "shapes",
    *,
    collinear: Literal["refuse", "accept"] = "refuse",
    shapes: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
) -> np.ndarray:
    """Checks landmark configurations.

    Args:
        value: Anything array-like of shape `(n, landmarks, dims)`.
        name: The argument's name in messages.
        collinear: Whether shapes whose landmarks all lie on one line are refused (their
            covariances have no inverse) or accepted.
        shapes: What messages call each shape; by default they are counted from 0.
        names: What they call each landmark, likewise.

    Returns:
        An array of 64 bits: coordinates may be far larger than shapes.

    Raises:
        ValueError: If the shape or type is another, there are fewer than 3 landmarks or 2
            dimensions, some are NaN or infinite, or all landmarks of a shape lie in one point or
            on one line.
    """
    one_of(collinear, ("refuse", "accept"), "collinear")
    unmasked(value, name)
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"{name} must be one array [n, landmarks, dims]: these shapes have different numbers "
            f"of landmarks; give all the same ones."
        ) from error
    if given.ndim != 3 or 0 in given.shape:
        raise ValueError(
            f"{name} must be [n, landmarks, dims], none of them 0: got {list(given.shape)}; "
            f"use landmarks[None] for a single shape, reshape(n, -1, 2) for flat rows."
        )
    if not _holds_numbers(given):
        raise ValueError(f"{name} must hold numbers: got dtype {given.dtype}; convert them first.")
    if given.shape[1] < 3 or given.shape[2] < 2:
        raise ValueError(
            f"{name} must have at least 3 landmarks in at least 2 dimensions: got "
            f"{list(given.shape)} as [n, landmarks, dims]; add landmarks, or use moveaxis."
        )
    # Rounding is that of the type in which they came.
    unit = np.finfo(given.dtype).eps if given.dtype.kind == "f" else np.finfo(np.float64).eps
    checked = given.astype(np.float64)

    def named(indices: np.ndarray) -> str:
        return some(indices) if shapes is None else some([repr(shapes[i]) for i in indices])

    missing = ~np.all(np.isfinite(checked), axis=2)
    bad = np.flatnonzero(np.any(missing, axis=1))
    if bad.size:
        first = np.flatnonzero(missing[bad[0]])
        known = None if names is None else some([repr(names[int(i)]) for i in first])
        raise ValueError(
            f"{name} must be finite: {bad.size} of {len(checked)} shapes have missing, NaN or "
            f"infinite landmarks, at {named(bad)} (landmarks {known or some(first)} of the first "
            f"of them{'' if known else ', counted from 0'}); fill them in, or leave out these "
            "shapes or landmarks."
        )
    _check_shapes(checked, name, named, unit=float(unit), flat=collinear == "refuse")
    return checked


def _check_shapes(
    array: np.ndarray, name: str, named: Callable[[np.ndarray], str], *, unit: float, flat: bool
) -> None:
    """Refuses coincident landmarks and, with `flat`, collinear ones."""
    rounding = 8.0 * unit * np.abs(array).max(axis=(1, 2))
    extent = np.abs(array - array[:, :1]).max(axis=(1, 2))
    points = np.flatnonzero(extent <= rounding)
    if points.size:
        raise ValueError(
            f"{name} must have landmarks apart from each other: all lie in one point in "
            f"{points.size} of {len(array)} shapes, at {named(points)}; remove or correct these."
        )
    if not flat:
        return
    centred = array - array.mean(axis=1, keepdims=True)
    values = np.linalg.svd(centred, compute_uv=False)
    lines = np.flatnonzero(
        values[:, 1] <= _COLLINEAR * values[:, 0] + rounding * np.sqrt(array.shape[1])
    )
    if lines.size:
        raise ValueError(
            f"{name} must not lie on one line: they do in {lines.size} of {len(array)} shapes, at "
            f"{named(lines)}; remove these shapes, or add landmarks beside the line."
        )


def groups(value: Any, samples: int, clusters: int, what: str = "image") -> Int[np.ndarray, " n"]:
    """Checks assignments that a fit is to start from.

    Args:
        value: A cluster for each sample.
        samples: Number of samples.
        clusters: Number of clusters.
        what: What a sample is called in the message.

    Returns:
        Integers of 32 bits.

    Raises:
        ValueError: For a wrong length or type, a cluster that there is not, or one left empty.
    """
    array = as_array(value, "assignments")
    within(array, samples, clusters, "assignments", what)
    vacant = np.setdiff1d(np.arange(clusters), array)
    if vacant.size:
        raise ValueError(
            f"assignments leave cluster {int(vacant[0])} empty; give every cluster at least one "
            f"{what}, or ask for fewer clusters"
        )
    return array.astype(np.int32)


def within(array: Any, samples: int, clusters: int, name: str, what: str) -> None:
    """Checks that there is a cluster for each sample; of traced ones, their shape and type.

    Args:
        array: The clusters.
        samples: Number of samples.
        clusters: Number of clusters.
        name: What the message calls the array.
        what: What it calls a sample.

    Raises:
        ValueError: For a wrong length or type, or a cluster that there is not.
    """
    if array.shape != (samples,) or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"{name} must be {samples} whole numbers, one for each {what}; got {array.dtype} of "
            f"shape {array.shape}"
        )
    if not isinstance(array, Tracer):
        least, most = np.min(np.asarray(array)), np.max(np.asarray(array))
        if least < 0 or most >= clusters:
            raise ValueError(f"{name} must lie in 0 to {clusters - 1}; got {least} to {most}")
