"""The interface of transforms, and the identity."""

import abc
from collections.abc import Callable
from typing import ClassVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust import _validation as check
from diffclust._sharding import varying_like, with_auto_axes
from diffclust.sampling import Boundary, bilinear_sample, pixel_grid
from diffclust.types import Image, Images, Params, Points, Sample

Grid = Float[Array, "points params"]
"""Params of a transform, one vector per row."""

_LEAST_AREA = 1e-3
"""If a map shrinks areas below this, or folds, its slopes say nothing about its inverse."""

Correlation = Callable[[Grid, Image, Images], Float[Array, "points others"]]
"""The inner products of an image, moved by each of the params, with other images."""


def at_least_single(dtype: jnp.dtype) -> jnp.dtype:
    """The precision of coordinates: half precision does not tell the pixels of an image apart.

    Args:
        dtype: The precision of what is moved.

    Returns:
        The same, or single precision in place of less.
    """
    is_less = not jnp.issubdtype(dtype, jnp.floating) or jnp.finfo(dtype).bits < 32
    return jnp.dtype(jnp.float32) if is_less else dtype


class AbstractTransform(eqx.Module):
    """A family of maps of one image, indexed by a flat parameter vector; zero is the identity.

    A transform of series is bound to their length and number of channels instead of height and
    width.

    Attributes:
        norms_correlate: Whether the squared norm of a moved image equals the inner product of its
            moved square with ones, up to the accuracy of `bind_correlation`. Between pixels, which
            are read bilinearly, the norm is smaller.
        spatial: The transform as a coordinate map; None if it is not one.
        affine_embedding: Columns that span the affine maps, for the coarse stage of an alignment,
            in the order of `Affine`'s params. By default None, for a family without a linear
            subspace of affine maps.
    """

    norms_correlate: ClassVar[bool] = False
    spatial: ClassVar["AbstractSpatialTransform | None"] = None
    affine_embedding: ClassVar[Float[Array, "params 6"] | None] = None

    @property
    @abc.abstractmethod
    def num_params(self) -> int:
        """Length of the parameter vector."""

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        """Names of the terms that `deformation` measures; by default one, the transform's name."""
        return (type(self).__name__.lower(),)

    @abc.abstractmethod
    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        """Precomputes everything that depends only on the image's size.

        Args:
            height: Rows of the images to come.
            width: Columns of the images to come.

        Returns:
            A function of params and image, to be called inside loops and under `vmap`.
        """

    def bind_variance(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        """Moves an image of pixel variances in the way that the image of means is moved.

        A Gaussian prototype needs this. Changes that make no sense for a variance, such as a colour
        shift, leave it unchanged. At zero params variances do not change; they never become
        negative, and doubling the variance doubles the result.

        Args:
            height: Rows of the images to come.
            width: Columns of the images to come.

        Returns:
            A function of params and variances, to be called inside loops and under `vmap`.

        Raises:
            NotImplementedError: By default.

        References:
            Monnier et al., DTI clustering, Section 3.2, T* in Equation 5.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not say how it moves variances; define bind_variance"
        )

    def undo(self, params: Params, image: Image) -> Image:
        """Moves the pixels of an image back; by default the image stays as it is.

        Only positions are undone: intensities are those of the image.

        Args:
            params: Parameters of shape `(num_params,)`.
            image: A transformed image, or an image drawn in its place.

        Returns:
            The image at the positions it had before the transform.
        """
        return image

    def bind_correlation(self, height: int, width: int) -> Correlation | None:
        """Computes inner products of moved images with others, faster than one by one.

        Args:
            height: Rows of the images to come.
            width: Columns of the images to come.

        Returns:
            A function of params, an image and other images; by default None, if there is no faster
            way.
        """

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """Sizes of the deformation's terms: non-negative, quadratic, zero at the identity.

        Args:
            params: Parameters of shape `(num_params,)`.

        Returns:
            One number per term, in the order of `deformation_terms`; by default the sum of squares.
        """
        return jnp.sum(params**2)[None]

    def __call__(self, params: Params, image: Sample) -> Sample:
        """Transforms one image.

        Args:
            params: Parameters of shape `(num_params,)`; zero returns the image unchanged.
            image: Image of shape `(height, width, channels)`, or series `(length, channels)`.

        Returns:
            The transformed image, of the same shape.

        Raises:
            ValueError: If there are more or fewer params than the transform has, or the image has
                another number of axes.
        """
        if image.ndim < 2:
            raise ValueError(f"a sample must have channels as its last axis; got {image.shape}")
        if params.shape != (self.num_params,):
            raise ValueError(
                f"{type(self).__name__} has {self.num_params} params, not {params.shape}"
            )
        return self.bind(image.shape[0], image.shape[1])(params, image)


class AbstractSpatialTransform(AbstractTransform):
    """A transform of coordinates: (T x)(u) = x(warp(params, u)).

    Maps compose in reverse order, and the image's content moves by the inverse map.

    Attributes:
        boundary: What lies outside the image: `"zero"`, `"edge"` or `"reflect"`.
    """

    boundary: eqx.AbstractVar[Boundary]

    def __check_init__(self):
        """Refuses an unknown boundary."""
        check.one_of(self.boundary, get_args(Boundary), "boundary")

    @property
    def spatial(self) -> "AbstractSpatialTransform":
        """The transform itself."""
        return self

    @abc.abstractmethod
    def bind_map(self, points: Points) -> Callable[[Params], Points]:
        """Precomputes everything that depends only on the points.

        Args:
            points: Points of shape `(2, ...)` in [-1, 1]².

        Returns:
            The coordinate map at these points as a function of params.
        """

    def warp(self, params: Params, points: Points) -> Points:
        """The coordinate map.

        Args:
            params: Parameters of shape `(num_params,)`.
            points: Points of shape `(2, ...)` in [-1, 1]².

        Returns:
            The point of the source image that each point reads, of the same shape.
        """
        return self.bind_map(points)(params)

    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        """Binds the coordinate map to the pixel grid."""
        grid = pixel_grid(height, width)
        coordinates = self.bind_map(grid)

        def apply(params: Params, image: Image) -> Image:
            # The grid is in JAX's default precision, which may be double where images are single.
            dtype = jnp.promote_types(params.dtype, image.dtype)
            held = at_least_single(dtype)
            moved = coordinates(params.astype(grid.dtype)).astype(held)
            return bilinear_sample(image.astype(held), moved, boundary=self.boundary).astype(dtype)

        return apply

    def bind_variance(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        """Resamples variances in the same way as images."""
        return self.bind(height, width)

    def jacobian_determinant(self, params: Params, points: Points) -> Float[Array, "*grid"]:
        """Local change of area, det ∂warp/∂u, at each point.

        Args:
            params: Parameters of shape `(num_params,)`.
            points: Points of shape `(2, ...)`.

        Returns:
            The determinant, of the points' trailing shape; 1 at the identity.
        """
        (_, dx), (_, dy) = self._along(params, points, 0), self._along(params, points, 1)
        return dx[0] * dy[1] - dx[1] * dy[0]

    def _along(self, params: Params, points: Points, axis: int) -> tuple[Points, Points]:
        """The coordinate map at the points, and its derivative along x (axis 0) or y (axis 1)."""
        direction = jnp.zeros_like(points).at[axis].set(1.0)
        return jax.jvp(lambda at: self.warp(params, at), (points,), (direction,))

    @with_auto_axes
    def inverse_warp(self, params: Params, points: Points, *, num_steps: int = 8) -> Points:
        """Finds the points from which the coordinate map leads to given points, by Newton's method.

        Args:
            params: Parameters of shape `(num_params,)`.
            points: Points of shape `(2, ...)`.
            num_steps: Number of steps, each of at most 4 along x and along y. An affine map needs
                one such step, unless it shrinks areas a thousand times or more, which is not
                undone.

        Returns:
            Points u with `warp(params, u) = points`, of the same shape; if the map folds, one of
            several, or none.
        """

        def closer(u: Points, _: None) -> tuple[Points, None]:
            (value, dx), dy = self._along(params, u, 0), self._along(params, u, 1)[1]
            x, y = points - value
            area = dx[0] * dy[1] - dx[1] * dy[0]
            area = jnp.where(jnp.abs(area) > _LEAST_AREA, area, 1.0)
            step = jnp.stack([(dy[1] * x - dy[0] * y) / area, (dx[0] * y - dx[1] * x) / area])
            return u + step.clip(-4.0, 4.0), None

        start = varying_like(points, params)
        return jax.lax.scan(closer, start, None, length=num_steps)[0]

    def undo(self, params: Params, image: Image) -> Image:
        """Moves an image back by the inverse of the coordinate map.

        Args:
            params: Parameters of shape `(num_params,)`.
            image: A transformed image, or an image drawn in its place.

        Returns:
            The image before the transform, except for what was lost by resampling or left the
            canvas.
        """
        held = at_least_single(image.dtype)
        grid = pixel_grid(*image.shape[:2], dtype=held)
        back = self.inverse_warp(params.astype(held), grid)
        moved = bilinear_sample(image.astype(held), back, boundary=self.boundary)
        return moved.astype(image.dtype)


class Identity(AbstractSpatialTransform):
    """The identity, with an empty parameter vector; it makes K-means a special case."""

    boundary: Boundary = eqx.field(static=True, default="zero")

    @property
    def num_params(self) -> int:
        return 0

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        """No terms."""
        return ()

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """An empty vector."""
        return jnp.zeros((0,), dtype=params.dtype)

    def bind_map(self, points: Points) -> Callable[[Params], Points]:
        """Returns the points themselves."""
        return lambda params: points
