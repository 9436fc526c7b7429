"""Feature maps applied to many images, and their projection onto principal directions."""

import functools
from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from diffclust.features.orthogonal_complement import (
    Normalisation,
    PrincipalDirections,
    apply_to_each,
    fit_principal_directions,
    project_features,
)
from diffclust.parallel.in_flight import in_flight, num_workers
from diffclust.parallel.mesh import own_mesh, own_size
from diffclust.types import Image

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

    References:
        Villar-Corrales and Morgenshtern, PSSC, Sec. 4.3: images zero-padded to 32×32.
    """

    feature_map: FeatureMap
    height: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    enlargement: int = eqx.field(static=True, default=1)

    def __call__(self, image: Image) -> Float[Array, " features"]:
        """The features of one image.

        Args:
            image: An image that is no larger than the canvas when it is enlarged.

        Returns:
            What the feature map makes of the canvas.
        """
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
        chunk_size = _CPU_CHUNK if jax.default_backend() == "cpu" else _DEVICE_CHUNK
    own = own_mesh(mesh)
    size = min(chunk_size * own_size(own), len(images))

    def compute(start: int) -> Array | np.ndarray:
        part = images[start : start + size]
        padded = np.concatenate([part, np.repeat(part[:1], size - len(part), axis=0)])
        return apply_to_each(feature_map, padded, own)

    starts = range(0, len(images), size)
    computed = in_flight(compute, starts, workers=num_workers(own))
    for start, features in zip(starts, computed, strict=True):
        stop = min(start + size, len(images))
        # A copy: kept as they are, blocks of several threads would leave holes in memory.
        yield np.asarray(features)[: stop - start].copy()
        if report is not None:
            report(stop, len(images))


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
    progress = _stage_report(report)
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

    def chunks(store: bool) -> Iterator[np.ndarray]:
        progress = _stage_report(report)
        for part in features_of(
            feature_map, images, chunk_size=chunk_size, mesh=mesh, report=progress
        ):
            if store:
                kept.append(part)
            yield part

    shape = eqx.filter_eval_shape(feature_map, jnp.asarray(images[0]))
    store = len(images) * shape.size * shape.dtype.itemsize <= _MOST_STORED
    directions = fit_principal_directions(
        chunks(store),
        num_directions=num_directions,
        normalisation=normalisation,
        path_size=path_size,
        weight=weight,
        mesh=mesh,
    )
    if report is not None:
        report("directions", 1, 1)
    return directions, project_features(directions, kept if store else chunks(False), mesh=mesh)


def _stage_report(report: Report | None) -> Callable[[int, int], None] | None:
    return None if report is None else functools.partial(report, "features")
