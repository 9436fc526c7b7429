"""Feature matrices in chunks, and their moments: count, mean, scatter, the paths' largest norms."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from diffclust import _validation as check
from diffclust.linalg import product
from diffclust.parallel.chunks import samples_within
from diffclust.parallel.mesh import (
    own_mesh,
    ready_on_cpu,
    replicate,
    shard_rows,
    sharded,
    spans,
    unreplicated,
)
from diffclust.parallel.processes import allgather_rows
from diffclust.types import Scalar

_BUDGETS = {"cpu": 64 * 2**20, "device": 512 * 2**20}


def checked_features(
    value: Any, name: str, *, width: int | None = None, offset: int = 0
) -> np.ndarray:
    """A matrix of features.

    Args:
        value: Anything array-like of shape `(n, features)`.
        name: The argument's name in messages.
        width: How many features there must be, or None for any number.
        offset: Number of the first row in messages.

    Returns:
        A floating array of JAX's default precision.

    Raises:
        ValueError: For another shape, an empty matrix, no numbers, NaN or infinity.
    """
    array = check.as_array(value, name, "rows of one length")
    if array.ndim != 2 or 0 in array.shape or (width is not None and array.shape[1] != width):
        wanted = "(n, features)" if width is None else f"(n, {width})"
        raise ValueError(f"{name} must have shape {wanted}, n at least 1; got {array.shape}")
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"{name} must hold numbers, not {array.dtype}; convert it to float first")
    array = array.astype(jnp.result_type(float), copy=False)
    with np.errstate(invalid="ignore", over="ignore"):
        total = array.sum(dtype=np.float64)
    # One number tells without a mask of the matrix's size, unless the sum itself overflows.
    if not np.isfinite(total) and not (finite := np.isfinite(array).all(axis=1)).all():
        first = ", ".join(str(int(i) + offset) for i in np.flatnonzero(~finite)[:5])
        raise ValueError(
            f"{name} holds NaN or infinity in row {first}; remove or repair these samples"
        )
    return array


def equal_chunks(
    features: Any, *, size: int | None = None, weight: np.ndarray | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Cuts features into chunks of one size, so that nothing compiles twice.

    Args:
        features: A matrix `(n, features)`, or an iterable of such matrices, read once.
        size: Rows a chunk; chosen from the number of features where it is not given, and no more
            than there are rows.
        weight: Weights of the rows, or None for ones.

    Yields:
        A chunk, and the weights of its rows, which are zero for the padding of the last one.

    Raises:
        ValueError: If an argument is not what it should be, or there is no matrix.
    """
    if size is not None:
        check.count(size, "chunk_size")
    weight = None if weight is None else checked_weight(weight)
    width: int | None = None
    seen = done = 0
    given = size
    waiting: list[np.ndarray] = []

    def weights(rows: np.ndarray) -> np.ndarray:
        if weight is None:
            return np.ones(len(rows), rows.dtype)
        check_length(weight[: done + len(rows)], done + len(rows))
        return weight[done : done + len(rows)].astype(rows.dtype)

    for part in as_matrices(features):
        part = checked_features(part, "features", width=width, offset=seen)
        width, seen = part.shape[1], seen + len(part)
        if size is None:
            # A multiple of 16, so small that a chunk is little beside the machine's memory.
            size = samples_within(4 * part.shape[1], **_BUDGETS, most=8192) // 16 * 16
        waiting.append(part)
        while sum(map(len, waiting)) >= size:
            rows = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
            yield rows[:size], weights(rows[:size])
            done += size
            waiting = [rows[size:]] if len(rows) > size else []
    if width is None or size is None:
        raise ValueError("features is an iterable without any chunk; give at least one")
    if waiting:
        rows = np.concatenate(waiting)
        if given is None and not done:
            size = 16 * -(-len(rows) // 16)
        padding = ((0, size - len(rows)), (0, 0))
        yield np.pad(rows, padding), np.pad(weights(rows), padding[:1])
        done += len(rows)
    if weight is not None:
        check_length(weight, done)


def as_matrices(features: Any) -> Iterable[Any]:
    """Cuts an iterable of matrices into parts, so that a large one is not converted as a whole.

    Args:
        features: A matrix, or an iterable of matrices.

    Returns:
        An iterable of matrices, or what may be made one.
    """
    if isinstance(features, list | tuple) and features and np.ndim(features[0]) < 2:
        features = np.asarray(features)
    if getattr(features, "ndim", 0) == 2 and len(features) > 8192:
        return (features[start : start + 8192] for start in range(0, len(features), 8192))
    if hasattr(features, "shape") or not isinstance(features, Iterable):
        return (features,)
    return features


Normalisation = Literal["none", "largest", "root", "standardise"]
"""What is done to features before their principal directions are sought; see
`fit_principal_directions`."""

Features = Float[Array, " features"]


class Moments(eqx.Module):
    """Count, mean and scatter of the samples seen, and the largest squared norm of each path.

    Attributes:
        count: Weight of the samples.
        mean: Their mean.
        scatter: Σ w (x - mean)(x - mean)ᵀ, not divided by the count.
        largest: The largest squared Euclidean norm over samples of every path's coefficients.

    References:
        Chan, Golub and LeVeque (1983), Algorithms for computing the sample variance, Eq. 1.5b.
    """

    count: Scalar
    mean: Features
    scatter: Float[Array, "features features"]
    largest: Float[Array, " paths"]

    @staticmethod
    def empty(num_features: int, *, num_paths: int = 1, dtype: Any = None) -> "Moments":
        """Moments of nothing.

        Args:
            num_features: D.
            num_paths: How many equal runs of consecutive features there are.
            dtype: Floating dtype; JAX's default where it is not given.

        Returns:
            Zeros.

        Raises:
            ValueError: If the features do not fall into that many equal paths.
        """
        if num_features % num_paths:
            raise ValueError(
                f"{num_features} features do not fall into {num_paths} paths of equal length"
            )
        dtype = jnp.result_type(float) if dtype is None else dtype
        return Moments(
            jnp.zeros((), dtype),
            jnp.zeros((num_features,), dtype),
            jnp.zeros((num_features, num_features), dtype),
            jnp.zeros((num_paths,), dtype),
        )

    def add(
        self,
        batch: Float[Array, "n features"],
        weight: Float[Array, " n"] | None = None,
        *,
        axis_name: str | None = None,
    ) -> "Moments":
        """Adds a batch. Pure; the order of batches changes the last digits only.

        The batch is centred at its own mean before it is squared, and merged by Chan's update:
        nothing is ever the difference of two large sums.

        Args:
            batch: Samples.
            weight: Their weights, or None for ones; zero marks padding.
            axis_name: Name of a mapped device axis that holds the batch's other parts, or None.

        Returns:
            The moments of all samples seen.
        """
        weight = jnp.ones(batch.shape[:1], batch.dtype) if weight is None else weight

        def total(values: Array) -> Array:
            return values if axis_name is None else jax.lax.psum(values, axis_name)

        count = total(jnp.sum(weight))
        share = 1.0 / jnp.maximum(count, jnp.finfo(batch.dtype).tiny)
        rough = total(product(weight, batch)) * share
        centred = batch - rough[None]
        # The mean of what is left repairs the rounding of a long sum.
        rest = total(product(weight, centred)) * share
        mean = rough + rest
        centred = (centred - rest[None]) * jnp.sqrt(weight)[:, None]
        scatter = total(product(centred.T, centred))
        norms = jnp.sum(batch.reshape(batch.shape[0], self.largest.size, -1) ** 2, axis=2)
        largest = jnp.max(jnp.where(weight[:, None] > 0, norms, 0.0), axis=0)
        if axis_name is not None:
            largest = jax.lax.pmax(largest, axis_name)
        return self.merge(Moments(count, mean, scatter, largest))

    def merge(self, other: "Moments") -> "Moments":
        """The moments of both; pure.

        Args:
            other: Moments of other samples.

        Returns:
            Those of all of them.
        """
        both = self.count + other.count
        part = other.count / jnp.maximum(both, jnp.finfo(self.mean.dtype).tiny)
        shift = other.mean - self.mean
        return Moments(
            both,
            self.mean + shift * part,
            self.scatter + other.scatter + jnp.outer(shift, shift) * (self.count * part),
            jnp.maximum(self.largest, other.largest),
        )


def rooted(features: Array, normalisation: Normalisation) -> Array:
    """The element-wise part of a normalisation.

    Args:
        features: Any array.
        normalisation: `"root"` takes sign(x) √|x|; all others nothing.

    Returns:
        An array of the same shape.
    """
    if normalisation != "root":
        return features
    magnitude = jnp.abs(features)
    # The gradient at zero is infinite; zero features are common, so it is cut off there.
    safe = jnp.where(magnitude > 0, magnitude, 1.0)
    return jnp.where(magnitude > 0, jnp.sign(features) * jnp.sqrt(safe), 0.0)


@functools.partial(jax.jit, static_argnums=(3, 4), donate_argnums=0)
def _add(
    moments: Moments, batch: Array, weight: Array, normalisation: Normalisation, mesh: Mesh | None
) -> Moments:
    def step(
        moments: Moments, batch: Array, weight: Array, *, axis_name: str | None = None
    ) -> tuple[Moments, Array]:
        return moments.add(rooted(batch, normalisation), weight, axis_name=axis_name), weight

    return sharded(step, mesh)(moments, batch, weight)[0]


def _even(rows: np.ndarray, mesh: Mesh | None) -> np.ndarray:
    """Rows, and zeros until the devices can share them evenly."""
    padding = 0 if mesh is None else -len(rows) % mesh.size
    if not padding:
        return rows
    return np.concatenate([rows, np.zeros((padding, *rows.shape[1:]), rows.dtype)])


def checked_weight(weight: Any) -> np.ndarray:
    """Weights of samples, of which there may be fewer or more.

    Args:
        weight: Numbers, array-like.

    Returns:
        An array.

    Raises:
        ValueError: If some are negative or not finite.
    """
    weight = check.as_array(weight, "weight")
    if weight.ndim != 1 or not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError("weight must be finite and at least 0, one number for each sample")
    return weight


def check_length(weight: np.ndarray, count: int) -> None:
    """Refuses weights of another number than that of the samples.

    Args:
        weight: The weights.
        count: How many samples there are.

    Raises:
        ValueError: If they differ.
    """
    if weight.shape != (count,):
        raise ValueError(
            f"weight must have one number for each sample; got {weight.shape} for {count} samples"
        )


def feature_moments(
    features: Any,
    *,
    normalisation: Normalisation = "none",
    path_size: int = 1,
    weight: Float[np.ndarray, " n"] | None = None,
    chunk_size: int | None = None,
    mesh: Mesh | None = None,
) -> Moments:
    """Moments of many samples, chunk by chunk: they are never in memory twice.

    Args:
        features: A matrix `(n, features)`, or an iterable of such matrices, read once.
        normalisation: `"root"` takes the moments of the features' square roots; the others are
            scalings, which are applied to the moments later.
        path_size: How many consecutive features make a path.
        weight: Weights of the samples, or None for ones.
        chunk_size: Samples a chunk; chosen from the number of features where it is not given.
        mesh: Devices that share every chunk, or None for one. Of several processes each gives its
            own samples, and all get the moments of all.

    Returns:
        The moments.

    Raises:
        ValueError: If an argument is not what it should be.
    """
    check.one_of(normalisation, get_args(Normalisation), "normalisation")
    check.count(path_size, "path_size")
    moments, own = None, own_mesh(mesh)
    for batch, counts in equal_chunks(features, size=chunk_size, weight=weight):
        if moments is None:
            if batch.shape[1] % path_size:
                raise ValueError(
                    f"path_size is {path_size}, which does not divide the {batch.shape[1]} features"
                )
            num_paths = batch.shape[1] // path_size
            moments = Moments.empty(batch.shape[1], num_paths=num_paths, dtype=batch.dtype)
            moments = replicate(moments, own)
        rows, share = (shard_rows(jax.device_put(_even(x, own)), own) for x in (batch, counts))
        moments = ready_on_cpu(_add(moments, rows, share, normalisation, own), own)
    assert moments is not None
    moments = unreplicated(moments, own)
    if not spans(mesh):
        return moments
    every = allgather_rows(jax.tree.map(lambda leaf: np.asarray(leaf)[None], moments), mesh)
    parts = [
        jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), every) for i in range(len(every.count))
    ]
    return functools.reduce(Moments.merge, parts)
