"""What every model of images offers."""

import abc
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from diffclust import _validation
from diffclust.energies import TransformedDistance, TransformedPrototype
from diffclust.image_source import Images, blanked
from diffclust.masks import check_mask_size, mask_weights
from diffclust.models.base import AbstractModel, Result
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers import Outcome
from diffclust.transforms import AbstractTransform, ThinPlateSpline


class AbstractImageModel(AbstractModel):
    """A clustering of images."""

    mask: eqx.AbstractVar[str | None]

    @abc.abstractmethod
    def energy(self, channels: int = 1) -> TransformedDistance | TransformedPrototype:
        """What a sample costs beside its cluster's prototype, and how one is moved onto the other.

        Args:
            channels: Channels of the images.
        """

    @abc.abstractmethod
    def coarsening(self, height: int, width: int) -> int:
        """How many times coarser the images of the restarts are.

        Args:
            height: Rows of the images.
            width: Columns of the images.

        Returns:
            A whole number; 1 for the images as they are.
        """

    @abc.abstractmethod
    def check(self, images: Images) -> None:
        """Refuses images that the model cannot cluster.

        Args:
            images: Images that are finite and of the right rank.

        Raises:
            ValueError: With what is wrong and what would do.
        """

    def validated(self, images: Any) -> Images:
        """Checks images, blanks what the mask hides, and asks `check`."""
        array = _validation.images_or_source(images)
        check_mask_size(self.mask, *array.shape[1:3])
        if self.mask is not None:
            array = blanked(array, mask_weights(self.mask) == 0.0)
        self.check(array)
        return array

    def aligned(self, outcome: Outcome, images: Images, params: np.ndarray) -> np.ndarray:
        """Moves images by their params."""
        energy, size = self.energy(images.shape[3]), outcome.chunk_size
        if not isinstance(energy, TransformedDistance):
            raise ValueError(
                f"{self.method} moves prototypes, not images; see "
                "diffclust.models.warped_prototypes"
            )
        parts = [
            np.asarray(
                _align(energy, jnp.asarray(params[i : i + size]), jnp.asarray(images[i : i + size]))
            )
            for i in range(0, len(images), size)
        ]
        return np.concatenate(parts)


def check_landmarks(transforms: Iterable[AbstractTransform], images: Images) -> None:
    """Refuses images with fewer pixels a side than a spline among the transforms has landmarks.

    Args:
        transforms: The transforms.
        images: The images.

    Raises:
        ValueError: With both numbers.
    """
    for transform in transforms:
        if isinstance(transform, ThinPlateSpline):
            _validation.landmarks_fit(transform.landmarks, *images.shape[1:3])


def of_images(result: Result) -> AbstractImageModel:
    """The model of a result, which must be one of images.

    Args:
        result: A fitted model.

    Returns:
        The model.

    Raises:
        ValueError: If it clusters something else.
    """
    if not isinstance(result.model, AbstractImageModel):
        raise ValueError(f"{result.model.method} does not cluster images")
    return result.model


def blank_clusters(
    model: AbstractImageModel, sample_shape: tuple[int, ...], dtype: jnp.dtype
) -> Learned:
    """The tree of a model that learns images and penalty weights alone.

    Args:
        model: The model.
        sample_shape: Height, width and channels of the images.
        dtype: Floating dtype.

    Returns:
        A tree of zeros.
    """
    count, terms = model.num_clusters, model.energy(sample_shape[2]).num_penalties
    return Learned(
        Clusters(jnp.zeros((count, *sample_shape), dtype), jnp.zeros((count, terms), dtype))
    )


@eqx.filter_jit
def _align(energy: TransformedDistance, params: Array, images: Array) -> Array:
    return jax.vmap(energy.aligned)(params, images)
