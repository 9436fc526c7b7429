"""Projection onto the orthogonal complement of the leading principal directions (POC).

In scattering space the few directions of largest variance are nearly the same for all classes:
they hold what varies within a class. Projecting them out brings samples of one class together.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Shaped

from diffclust import _validation as check
from diffclust.features.contrast import local_contrast
from diffclust.features.moments import (
    Features,
    Moments,
    Normalisation,
    as_matrices,
    check_length,
    checked_features,
    checked_weight,
    equal_chunks,
    feature_moments,
    rooted,
)
from diffclust.linalg import flip_signs, leading_eigenvectors, product
from diffclust.parallel.chunks import samples_within
from diffclust.parallel.in_flight import chunks_in_flight
from diffclust.parallel.mesh import (
    jitted_map_rows,
    map_rows_on_host,
    own_mesh,
    own_size,
    pad_rows,
    vmap_rows,
)
from diffclust.parallel.processes import allgather_rows, broadcast_one_to_all, row_counts
from diffclust.types import Image


class PrincipalDirections(eqx.Module):
    """Principal directions of normalised features, leading first.

    Attributes:
        mean: Mean of the normalised features.
        scale: What every feature is divided by, after the square root where there is one.
        basis: Directions as columns, orthonormal, the entry of largest magnitude positive. Beyond
            the data's rank they are zero, and so is every sample's coordinate: any other choice
            would measure rounding.
        eigenvalues: Variances along them, descending.
        normalisation: What was done to the features.

    References:
        Villar-Corrales and Morgenshtern, PSSC, Sec. 3.2.
    """

    mean: Features
    scale: Features
    basis: Float[Array, "features directions"]
    eigenvalues: Float[Array, " directions"]
    normalisation: Normalisation = eqx.field(static=True, default="none")

    def __call__(self, features: Features) -> Float[Array, " directions"]:
        """The coordinates of one sample.

        Args:
            features: Features as they come, not normalised.

        Returns:
            One number for each direction, zero at the data's mean.
        """
        centred = rooted(features, self.normalisation) / self.scale - self.mean
        return product(centred, self.basis)

    def complement(self, n: int = 2, dimensions: int | None = None) -> "OrthogonalComplement":
        """The projection without the leading directions.

        Args:
            n: How many are removed; the paper's 2.
            dimensions: How many of those that follow are kept at most; None keeps all.

        Returns:
            The projection.

        Raises:
            ValueError: If nothing would be left.
        """
        return OrthogonalComplement(self, n, dimensions)


class OrthogonalComplement(eqx.Module):
    """The coordinates along all principal directions but the n leading ones (Eq. 4).

    Attributes:
        directions: The principal directions.
        n: How many leading ones are removed.
        dimensions: How many of those that follow are kept at most; None keeps all.

    References:
        Villar-Corrales and Morgenshtern, PSSC, Eq. 4; they keep 1,000 - n.
    """

    directions: PrincipalDirections
    n: int = eqx.field(static=True, default=2)
    dimensions: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        """Refuses to remove everything."""
        _kept(self.directions.basis.shape[1], self.n, self.dimensions)

    def __call__(self, features: Features) -> Float[Array, " kept"]:
        """The coordinates of one sample.

        Args:
            features: Features as they come, not normalised.

        Returns:
            One number for each direction that is kept.
        """
        return drop_leading(self.directions(features), self.n, self.dimensions)


def _kept(available: int, n: int, dimensions: int | None) -> slice:
    if not 0 <= n < available:
        raise ValueError(
            f"n is {n}, but there are {available} principal directions; remove at least 0 and "
            f"fewer than {available}"
        )
    if dimensions is not None and dimensions < 1:
        raise ValueError(f"dimensions must be at least 1, or None for all; got {dimensions}")
    return slice(n, None if dimensions is None else n + dimensions)


def drop_leading(projection: Any, n: int, dimensions: int | None = None) -> Any:
    """Coordinates without the leading ones: projections for several n are slices of one.

    Args:
        projection: Coordinates along principal directions, leading first, on the last axis.
        n: How many are removed.
        dimensions: How many of those that follow are kept at most; None keeps all.

    Returns:
        A view of the array.

    Raises:
        ValueError: If nothing would be left.
    """
    return projection[..., _kept(projection.shape[-1], n, dimensions)]


def fit_principal_directions(
    features: Any,
    *,
    num_directions: int | None = None,
    normalisation: Normalisation = "root",
    path_size: int = 1,
    weight: Float[np.ndarray, " n"] | None = None,
    chunk_size: int | None = None,
    mesh: Mesh | None = None,
) -> PrincipalDirections:
    """Principal directions of features that may not fit into memory, in one pass over them.

    Dividing features by numbers divides their covariances by products of these, so the scalings
    need no pass of their own.

    Args:
        features: A matrix `(n, features)`, or an iterable of such matrices, read once.
        num_directions: How many leading directions are wanted; None for all.
        normalisation: `"none"` takes the features as they are, as the paper says; `"largest"`
            divides each path by its largest Euclidean norm over the samples, as the authors' code
            does; `"root"` takes sign(x) √|x|, which evens out scattering coefficients, whose
            deviation grows with their mean; `"standardise"` divides each feature by its standard
            deviation. A path or feature without extent is left as it is.
        path_size: For `"largest"`: how many consecutive features make a path.
        weight: Weights of the samples, at least 0 and positive somewhere, in mean and covariance;
            None for ones. A largest norm is that of any sample of positive weight.
        chunk_size: Samples a chunk; chosen from the number of features where it is not given.
        mesh: Devices that share every chunk, or None for one. Of several processes each gives its
            own samples, and all get the directions of all.

    Returns:
        The directions, `min(num_directions, D)` of them.

    Raises:
        ValueError: If an argument is not what it should be.

    References:
        Villar-Corrales and Morgenshtern, PSSC, Sec. 3.2.
    """
    check.one_of(normalisation, get_args(Normalisation), "normalisation")
    if num_directions is not None:
        check.count(num_directions, "num_directions")
    check.count(path_size, "path_size")
    if chunk_size is not None:
        check.count(chunk_size, "chunk_size")
    if weight is not None:
        weight = checked_weight(weight)
        # A process may have zeros alone: whether some are positive, all decide together.
        # Then what is summed is that of so many samples: as many directions can be told apart.
        total, count = allgather_rows(np.asarray([[weight.sum(), (weight > 0).sum()]]), mesh).sum(0)
        if not count:
            raise ValueError("weight must be positive somewhere; all are 0")
        weight = weight * (count / total)
    samples, features = _small_sample(features, mesh)
    if samples is not None:
        weights = None if weight is None else allgather_rows(weight, mesh)
        directions = _directions_by_gram_matrix(
            samples, weights, num_directions, normalisation, path_size
        )
    else:
        moments = feature_moments(
            features,
            normalisation=normalisation,
            path_size=path_size,
            weight=weight,
            chunk_size=chunk_size,
            mesh=mesh,
        )
        directions = directions_of(
            moments, num_directions=num_directions, normalisation=normalisation
        )
    return jax.device_put(broadcast_one_to_all(directions, mesh))


def _small_sample(features: Any, mesh: Mesh | None) -> tuple[np.ndarray | None, Any]:
    """All samples, where there are at most half as many as features; else what came, unread."""
    waiting: list[np.ndarray] = []
    chunks = iter(as_matrices(features))
    for part in chunks:
        waiting.append(checked_features(part, "features", offset=sum(map(len, waiting))))
        if 2 * sum(map(len, waiting)) > waiting[0].shape[1]:
            break
    # Of several processes, any may have too many, or all together.
    seen = sum(row_counts(sum(map(len, waiting)), mesh))
    if not waiting or 2 * seen > waiting[0].shape[1]:
        return None, itertools.chain(waiting, chunks)
    if len({part.shape[1] for part in waiting}) != 1:
        return None, waiting
    return allgather_rows(np.concatenate(waiting), mesh), None


def _directions_by_gram_matrix(
    samples: np.ndarray,
    weight: np.ndarray | None,
    num_directions: int | None,
    normalisation: Normalisation,
    path_size: int,
) -> PrincipalDirections:
    """Principal directions from the Gram matrix of the samples, which are fewer than features.

    Weights are 1 in the mean over samples of positive weight.
    """
    if weight is not None:
        check_length(weight, len(samples))
        samples, weight = samples[weight > 0], weight[weight > 0]
    count, size = samples.shape
    if size % path_size:
        raise ValueError(f"path_size is {path_size}, which does not divide the {size} features")
    values = samples.astype(np.float64)
    if normalisation == "root":
        values = np.sign(values) * np.sqrt(np.abs(values))
    mean = np.average(values, axis=0, weights=weight)
    centred = values - mean
    variance = np.average(centred**2, axis=0, weights=weight)
    centred *= _varies(variance, mean, samples.dtype)
    largest = (values.reshape(count, -1, path_size) ** 2).sum(axis=2).max(axis=0)
    scale = _scale(largest, variance, normalisation)
    centred /= scale
    if weight is not None:
        centred *= np.sqrt(weight)[:, None]
    wanted = size if num_directions is None else min(num_directions, size)
    eigenvalues, vectors = leading_eigenvectors(centred @ centred.T / count, count)
    eigenvalues, vectors = eigenvalues[:wanted], vectors[:, :wanted]
    length = np.sqrt(np.where(eigenvalues > 0, eigenvalues * count, 1.0))
    basis = centred.T @ vectors / length
    missing = wanted - len(eigenvalues)
    eigenvalues = np.pad(eigenvalues, (0, missing))
    basis = np.pad(basis, ((0, 0), (0, missing)))
    return _directions(eigenvalues, basis, mean, scale, float(count), samples.dtype, normalisation)


def directions_of(
    moments: Moments, *, num_directions: int | None = None, normalisation: Normalisation = "none"
) -> PrincipalDirections:
    """Principal directions from moments that are known, on the host in double precision.

    Args:
        moments: Moments of the features (of their roots, for `"root"`).
        num_directions: How many leading directions are wanted; None for all.
        normalisation: See `fit_principal_directions`.

    Returns:
        The directions.

    Raises:
        ValueError: If the normalisation is unknown.
    """
    check.one_of(normalisation, get_args(Normalisation), "normalisation")
    dtype = np.dtype(moments.mean.dtype)
    count = float(moments.count)
    mean = np.asarray(moments.mean, np.float64)
    covariance = np.asarray(moments.scatter, np.float64) / max(count, 1.0)
    _check_range(covariance, dtype)
    variance = np.diagonal(covariance).copy()
    varies = _varies(variance, mean, dtype)
    covariance *= varies[:, None] & varies[None, :]
    scale = _scale(np.asarray(moments.largest, np.float64), variance * varies, normalisation)
    covariance /= scale[:, None] * scale[None, :]
    size = len(mean)
    wanted = size if num_directions is None else min(num_directions, size)
    eigenvalues, basis = leading_eigenvectors(covariance, wanted)
    return _directions(eigenvalues, basis, mean, scale, count, dtype, normalisation)


def _directions(
    eigenvalues: np.ndarray,
    basis: np.ndarray,
    mean: np.ndarray,
    scale: np.ndarray,
    count: float,
    dtype: Any,
    normalisation: Normalisation,
) -> PrincipalDirections:
    """Directions in the dtype of the data, without those that only rounding spans."""
    _check_range(eigenvalues, dtype)
    # n samples span n - 1 directions about their mean.
    least = 10 * np.finfo(dtype).eps * max(float(eigenvalues[0]), 0.0)
    inside = (eigenvalues > least) & (np.arange(len(eigenvalues)) < count - 1)
    basis = np.where(inside[None], flip_signs(basis), 0.0)
    arrays = (mean / scale, scale, basis, np.where(inside, eigenvalues, 0.0))
    fields = jax.device_put(tuple(np.asarray(array, dtype) for array in arrays))
    return PrincipalDirections(*fields, normalisation=normalisation)


def _check_range(squares: np.ndarray, dtype: Any) -> None:
    if not np.abs(squares).max() <= np.finfo(dtype).max:
        raise ValueError(
            f"the squares of the features exceed the range of {np.dtype(dtype)}; divide the "
            "features by a common number"
        )


def _varies(variance: np.ndarray, mean: np.ndarray, dtype: Any) -> np.ndarray:
    """Marks features that are not constant: a constant one has a deviation of rounding."""
    return np.sqrt(variance) > 8 * np.finfo(dtype).eps * np.abs(mean)


def _scale(
    largest: np.ndarray, variance: np.ndarray, normalisation: Normalisation
) -> Float[np.ndarray, " features"]:
    """The positive divisor of every feature."""
    scale = np.ones(len(variance))
    if normalisation == "largest":
        scale = np.repeat(np.sqrt(largest), len(variance) // len(largest))
    elif normalisation == "standardise":
        scale = np.sqrt(variance)
    return np.where(scale > 0, scale, 1.0)


def apply_to_each(
    function: Callable[[Array], Array], samples: Shaped[np.ndarray, "n ..."], mesh: Mesh | None
) -> Shaped[Array | np.ndarray, "n ..."]:
    """A function of one sample, of each of a chunk.

    Args:
        function: What is applied; one object for every call, as each is compiled anew.
        samples: A chunk of samples.
        mesh: Devices of this process that share it, or None for one.

    Returns:
        An array that may still be computed, or, from several devices, one on the host.
    """
    if mesh is None:
        return jitted_map_rows(vmap_rows, function, jax.device_put(samples), None)
    return map_rows_on_host(vmap_rows, function, samples, mesh)


def project_features(
    projection: PrincipalDirections | OrthogonalComplement,
    features: Any,
    *,
    chunk_size: int | None = None,
    mesh: Mesh | None = None,
) -> Float[np.ndarray, "n directions"]:
    """Projects many samples, chunk by chunk.

    Args:
        projection: What is applied to each sample.
        features: A matrix `(n, features)`, or an iterable of such matrices, read once.
        chunk_size: Samples a chunk; chosen from the number of features where it is not given.
        mesh: Devices that share every chunk, or None for one. Of several processes each gives its
            own samples, and all get the coordinates of all.

    Returns:
        The coordinates of all samples, on the host.

    Raises:
        ValueError: If an argument is not what it should be.
    """
    parts, own = [], own_mesh(mesh)
    fitted = projection if isinstance(projection, PrincipalDirections) else projection.directions
    for batch, weight in equal_chunks(features, size=chunk_size):
        if batch.shape[1] != len(fitted.mean):
            raise ValueError(
                f"features must have shape (n, {len(fitted.mean)}), as those of which the "
                f"directions were computed; got (n, {batch.shape[1]})"
            )
        parts.append(np.asarray(apply_to_each(projection, batch, own))[weight > 0])
    return allgather_rows(np.concatenate(parts), mesh)


def principal_angles(
    first: Float[Array, "features m"], second: Float[Array, "features k"]
) -> Float[Array, " angles"]:
    """Principal angles between the spans of two matrices' columns.

    What Algorithm 1 finds greedily are the singular values of a product of orthonormal bases.
    A cosine says little about a small angle, so those come from sines.

    Args:
        first: Linearly independent columns.
        second: Linearly independent columns.

    Returns:
        `min(m, k)` angles in [0, π/2] radians, ascending.

    References:
        Villar-Corrales and Morgenshtern, PSSC, Algorithm 1; Björck and Golub (1973), Numerical
        methods for computing angles between linear subspaces, Eqs. 12 and 13.
    """
    if first.shape[1] < second.shape[1]:
        first, second = second, first
    wide, _ = jnp.linalg.qr(first)
    narrow, _ = jnp.linalg.qr(second)
    products = product(wide.T, narrow)
    cosines = jnp.linalg.svd(products, compute_uv=False)
    outside = narrow - product(wide, products)
    sines = jnp.linalg.svd(outside, compute_uv=False)[::-1]
    small = jnp.arcsin(jnp.clip(sines, 0.0, 1.0))
    return jnp.where(cosines**2 >= 0.5, small, jnp.arccos(jnp.clip(cosines, 0.0, 1.0)))


FeatureMap = Callable[[Image], Array]
"""Turns one image into a vector."""

Report = Callable[[str, int, int], None]
"""Called with the name of a stage, images done and images in all."""

_MOST_STORED = 2 * 2**30
"""Bytes of features that are kept; beyond that they are computed twice."""


_CPU_CHUNK, _DEVICE_CHUNK = 64, 1024
"""Images a chunk: of more, a scattering transform falls out of a CPU's cache."""


class OnCanvas(eqx.Module):
    """A feature map of images laid in the middle of a larger, blank canvas.

    Attributes:
        feature_map: Applied to the canvas.
        height: Rows of the canvas.
        width: Columns of the canvas.
        enlargement: How many times larger images are made before that, by linear interpolation.
        local_contrast: Whether the local contrast of images is taken first.

    References:
        Villar-Corrales and Morgenshtern, PSSC, Sec. 4.3: images zero-padded to 32×32.
    """

    feature_map: FeatureMap
    height: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    enlargement: int = eqx.field(static=True, default=1)
    local_contrast: bool = eqx.field(static=True, default=False)

    def __call__(self, image: Image) -> Float[Array, " features"]:
        """The features of one image.

        Args:
            image: An image that is no larger than the canvas when it is enlarged.

        Returns:
            What the feature map makes of the canvas.
        """
        if self.local_contrast:
            image = local_contrast(image)
        if self.enlargement > 1:
            rows, columns = (self.enlargement * side for side in image.shape[:2])
            image = jax.image.resize(image, (rows, columns, image.shape[2]), "linear")
        above, left = (self.height - image.shape[0]) // 2, (self.width - image.shape[1]) // 2
        below = self.height - image.shape[0] - above
        right = self.width - image.shape[1] - left
        return self.feature_map(jnp.pad(image, ((above, below), (left, right), (0, 0))))


def features_of(
    feature_map: FeatureMap,
    images: Float[np.ndarray, "n height width channels"],
    *,
    chunk_size: int | None = None,
    mesh: Mesh | None = None,
    report: Callable[[int, int], None] | None = None,
) -> Iterator[Float[np.ndarray, "m features"]]:
    """The features of many images, chunk by chunk.

    Args:
        feature_map: Applied to each image.
        images: The images.
        chunk_size: Images a chunk, and a device; chosen for the machine where it is not given.
        mesh: Devices that share every chunk, or None for one; of several processes, those of this
            one are taken.
        report: Called with images done and in all after every chunk, or None.

    Yields:
        The features of each chunk, on the host.
    """
    if chunk_size is None:
        chunk_size = samples_within(1, cpu=_CPU_CHUNK, device=_DEVICE_CHUNK)
    own = own_mesh(mesh)
    size = min(chunk_size * own_size(own), len(images))

    def compute(start: int) -> Array | np.ndarray:
        return apply_to_each(feature_map, pad_rows(images[start : start + size], size), own)

    starts = range(0, len(images), size)
    for start, features in chunks_in_flight(compute, starts, own, report):
        # A copy: kept as they are, blocks of several threads would leave holes in memory.
        yield np.asarray(features)[: len(images) - start].copy()


def project_images(
    feature_map: FeatureMap,
    directions: PrincipalDirections,
    images: Float[np.ndarray, "n height width channels"],
    *,
    chunk_size: int | None = None,
    mesh: Mesh | None = None,
    report: Report | None = None,
) -> Float[np.ndarray, "n directions"]:
    """Coordinates of images along principal directions that are known.

    Args:
        feature_map: Applied to each image.
        directions: Directions of its features.
        images: The images.
        chunk_size: Images a chunk, and a device; chosen for the machine where it is not given.
        mesh: Devices that share every chunk, or None for one. Of several processes each gives its
            own images, and all get what is found of all.
        report: Called after every chunk, or None.

    Returns:
        The coordinates.
    """
    progress = None if report is None else functools.partial(report, "features")
    features = features_of(feature_map, images, chunk_size=chunk_size, mesh=mesh, report=progress)
    return project_features(directions, features, mesh=mesh)


def fit_projection(
    feature_map: FeatureMap,
    images: Float[np.ndarray, "n height width channels"],
    *,
    num_directions: int,
    normalisation: Normalisation = "root",
    path_size: int = 1,
    weight: Float[np.ndarray, " n"] | None = None,
    chunk_size: int | None = None,
    mesh: Mesh | None = None,
    report: Report | None = None,
) -> tuple[PrincipalDirections, Float[np.ndarray, "n directions"]]:
    """Principal directions of images' features, and the images' coordinates along them.

    Features are kept where they fit into 2 GB, and computed a second time where they do not.

    Args:
        feature_map: Applied to each image.
        images: The images.
        num_directions: How many leading directions are wanted.
        normalisation: See `fit_principal_directions`.
        path_size: See `fit_principal_directions`.
        weight: Weights of the images, or None for ones; they have a say in the directions only.
        chunk_size: Images a chunk, and a device; chosen for the machine where it is not given.
        mesh: Devices that share every chunk, or None for one. Of several processes each gives its
            own images, and all get what is found of all.
        report: Called after every chunk, or None.

    Returns:
        The directions, and one row of coordinates for each image.
    """
    kept: list[np.ndarray] = []
    progress = None if report is None else functools.partial(report, "features")

    def chunks() -> Iterator[np.ndarray]:
        settings = {"chunk_size": chunk_size, "mesh": mesh, "report": progress}
        return features_of(feature_map, images, **settings)

    def first_chunks() -> Iterator[np.ndarray]:
        for part in chunks():
            if len(images) * part[0].nbytes <= _MOST_STORED:
                kept.append(part)
            yield part

    directions = fit_principal_directions(
        first_chunks(),
        num_directions=num_directions,
        normalisation=normalisation,
        path_size=path_size,
        weight=weight,
        mesh=mesh,
    )
    if report is not None:
        report("directions", 1, 1)
    return directions, project_features(directions, kept or chunks(), mesh=mesh)
