"""Frames: what is removed from images before they are clustered, and how it is restored."""

import functools
from collections.abc import Callable
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from diffclust import _validation
from diffclust.image_source import Images, ImageSource, mapped
from diffclust.linalg import product
from diffclust.masks import as_mask, check_mask_size, mask_weights
from diffclust.parallel.chunks import largest_read
from diffclust.parallel.mesh import jitted_map_rows, vmap_rows
from diffclust.registration.colours import (
    Ink,
    choose_ink,
    colour,
    figure,
    ground,
    ink_votes,
    without_ground,
)
from diffclust.registration.images import PHOTO_RADIUS, place, upright
from diffclust.sampling import Boundary, bilinear_sample, pixel_grid
from diffclust.transforms import AbstractSequence, Affine, Colour, Compose
from diffclust.types import Image, Params

Place = Literal["none", "place", "upright"]
"""What is removed: nothing; place and size; slant, size and place."""

Registered = Float[Array, "rows columns framed"]
"""A registered image, which may have fewer channels and another size."""

_COPIES = 8
"""Arrays of an image's size that are in memory while it is registered."""

MOST_ASKED = 2048
"""Number of evenly spaced images that represent a whole set."""


class Frame(eqx.Module):
    """A registration of single images: the background and colours, then slant, size and place.

    A frame is a pure function of one image. Its params are those of three transforms, concatenated:
    `Colour(channels, gradient=True)` removes the background, `Colour(channels, full=True)` makes
    the object bright, and `Affine` moves it. Values below the background are clipped between the
    last two.

    Attributes:
        place: What is removed from the geometry.
        ink: What counts as the object; with `"colour"` a registered image is grey.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for uniform weights.
            Hidden pixels become background, and all pixels of a registered image count.
        least_side: Images whose shorter side has fewer pixels are resampled to this many: otherwise
            an object that is made smaller would lose its detail.
        most_side: Images whose shorter side has more pixels are resampled to this many, whatever
            `least_side` is; None for no limit.
    """

    place: Place = eqx.field(static=True, default="upright")
    ink: Ink = eqx.field(static=True, default="none")
    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)
    least_side: int = eqx.field(static=True, default=1, kw_only=True)
    most_side: int | None = eqx.field(static=True, default=None, kw_only=True)

    def __check_init__(self):
        """Refuses words that are not known, and sizes that are none."""
        _validation.one_of(self.place, get_args(Place), "place")
        _validation.one_of(self.ink, get_args(Ink), "ink")
        for name in ("least_side", "most_side"):
            if (side := getattr(self, name)) is not None:
                _validation.count(side, name)

    @property
    def is_identity(self) -> bool:
        """Whether nothing is removed; images may still be resized."""
        return self.place == "none" and self.ink in ("none", "keep")

    @property
    def _boundary(self) -> Boundary:
        """The values outside an image: its background, if that is kept."""
        return "edge" if self.ink == "keep" else "zero"

    def transform(self, channels: int) -> AbstractSequence:
        """The transforms to which the params belong, one after another.

        Args:
            channels: Channels of the images.

        Returns:
            The composition. Unlike the frame it clips nothing and keeps the number of channels.
        """
        return Compose((Colour(channels, gradient=True), Colour(channels, full=True), Affine()))

    def shape(self, sample_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of registered images.

        Args:
            sample_shape: Height, width and channels of images.

        Returns:
            The same shape, but with one channel if colours are removed, and in another size if
            `least_side` or `most_side` requires it.
        """
        height, width, channels = sample_shape
        side = max(self.least_side, min(height, width))
        side = side if self.most_side is None else min(side, self.most_side)
        factor = side / min(height, width)
        channels = 1 if self.ink == "colour" else channels
        return round(factor * height), round(factor * width), channels

    def find(self, image: Image) -> Params:
        """Finds the params of an image's registration.

        Args:
            image: The image.

        Returns:
            Params of `transform`.
        """
        transform = self.transform(image.shape[2])
        shift, mix, move = transform.split(jnp.zeros((transform.num_params,), image.dtype))
        if self.ink not in ("none", "keep"):
            shift = ground(image, ink=self.ink, mask=self.mask)
            foreground = without_ground(image, shift, mask=self.mask)
            mix = colour(foreground, self.ink, mask=self.mask)
            if self.ink in ("dark", "light"):
                # With only the opposite kind of object, nothing would be left.
                opposite = "light" if self.ink == "dark" else "dark"
                other = colour(foreground, opposite, mask=self.mask)
                mix = jnp.where(jnp.any(self._inked(shift, mix, image) > 0), mix, other)
        if self.place != "none":
            register = {"place": place, "upright": upright}[self.place]
            if self.ink == "keep":
                # Specks of the background may lie anywhere.
                contrast = figure(image, mask=self.mask)
                move = register(contrast, mask=self.mask, radius=PHOTO_RADIUS, whole=False)
            else:
                move = register(self._inked(shift, mix, image), mask=self.mask)
        return jnp.concatenate([shift, mix, move])

    def apply(self, params: Params, image: Image) -> Registered:
        """Removes from an image what was found.

        Args:
            params: Params of `transform`.
            image: The image.

        Returns:
            The registered image, of the shape given by `shape`.
        """
        shift, mix, move = self.transform(image.shape[2]).split(params)
        inked, shape = self._inked(shift, mix, image), self.shape(image.shape)
        stays = self.place == "none" and shape[:2] == inked.shape[:2]
        if stays:
            return inked
        # In images that are several times larger, nothing is missed between two pixels.
        times = min(inked.shape[0] // shape[0], inked.shape[1] // shape[1])
        return _read(move, inked, shape, self._boundary, max(1, times))

    def __call__(self, image: Image) -> Registered:
        """Registers an image.

        Args:
            image: The image.

        Returns:
            The registered image.
        """
        return self.apply(self.find(image), image)

    def restore(
        self, params: Params, registered: Registered, sample_shape: tuple[int, ...]
    ) -> Image:
        """Draws a registered image or a prototype at an image's original place and in its colours.

        Args:
            params: What was removed from the image.
            registered: The registered image to draw.
            sample_shape: Height, width and channels of the image.

        Returns:
            An image on the original canvas, on the original background.
        """
        channels = sample_shape[2]
        shift, mix, move = self.transform(channels).split(params)
        drawn = _read(Affine().inverse(move), registered, sample_shape, self._boundary)
        drawn = jnp.broadcast_to(drawn, tuple(sample_shape))
        if self.ink in ("none", "keep"):
            return drawn
        matrix = mix[: channels**2].reshape(channels, channels) + jnp.eye(channels, dtype=mix.dtype)
        back = product(drawn - mix[None, None, channels**2 :], jnp.linalg.pinv(matrix).T)
        # The background's params are only shifts, which their negatives undo.
        return Colour(channels, gradient=True)(-shift, jnp.where(drawn > 0.0, back, 0.0))

    def registered(self, images: Images) -> Images:
        """Registers many images in batches; streamed images are registered as they are read.

        Args:
            images: Images, in memory or not.

        Returns:
            Registered images of the same kind.

        Raises:
            ValueError: If images have another shape or are not finite.
        """
        images = _floating(images)
        shape = self.shape(images.shape[1:])
        if self.is_identity and self.mask is None and shape == images.shape[1:]:
            return images
        return mapped(images, functools.partial(_each, self), shape)

    def params_of(self, images: Images) -> Float[np.ndarray, "n params"]:
        """Finds the params of many images, as `find` does for one.

        Args:
            images: Images, in memory or not.

        Returns:
            Params of `transform` for each.

        Raises:
            ValueError: If images have another shape or are not finite.
        """
        return _each(self.find, images)

    def figures(
        self, params: Float[np.ndarray, "n params"], sample_shape: tuple[int, ...]
    ) -> Float[np.ndarray, "n 4"]:
        """Returns the positions of figures, their sizes and their slants.

        Args:
            params: The params of the images, from `params_of`.
            sample_shape: Height, width and channels of the images.

        Returns:
            For each image, the column and the row of its object's centre, in pixels from the centre
            of the upper left pixel; its size, 1 if it fills as much of the image as of the
            registered one; and its slant, in columns to the right per row down, 0 if slant is not
            removed. Images without an object are in the middle.
        """
        (height, width), move = sample_shape[:2], params[:, -Affine().num_params :]
        size = 1.0 + move[:, 3]
        centre = (1.0 + move[:, 4:6]) * (width, height) / 2.0 - 0.5
        return np.column_stack([centre, size, move[:, 1] / size * width / height])

    def _inked(
        self, shift: Float[Array, " shift"], mix: Float[Array, " mix"], image: Image
    ) -> Registered:
        """A bright object on black; if the background is kept, the visible part of the image."""
        if self.ink in ("none", "keep"):
            if self.mask is None:
                return image
            check_mask_size(self.mask, *image.shape[:2])
            level = jnp.zeros_like(image)
            if self.ink == "keep":
                colours = Colour(image.shape[2], gradient=True)
                level = -colours(ground(image, mask=self.mask), level)
            return jnp.where(mask_weights(self.mask) > 0, image, level)
        foreground = without_ground(image, shift, mask=self.mask)
        bright = jnp.maximum(Colour(image.shape[2], full=True)(mix, foreground), 0.0)
        return bright[..., :1] if self.ink == "colour" else bright


def _read(
    move: Params,
    image: Registered,
    shape: tuple[int, ...],
    boundary: Boundary,
    points_a_side: int = 1,
) -> Float[Array, "height width framed"]:
    """An image under an affine map, with the rows and columns of a given shape.

    A pixel is the mean of `points_a_side` × `points_a_side` points.
    """
    rows, columns, each = *shape[:2], points_a_side
    points = Affine().warp(move, pixel_grid(each * rows, each * columns, image.dtype))
    read = bilinear_sample(image, points, boundary=boundary)
    return read.reshape(rows, each, columns, each, -1).mean(axis=(1, 3))


def ink_of(images: Images, *, mask: Any = None) -> Ink | None:
    """Finds what counts as the object, from the whole set if single images are doubtful.

    Args:
        images: Images, in memory or not, of which at most 2,048 are examined.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for uniform weights.

    Returns:
        The result of `choose_ink`; None if most images have no plain background.

    Raises:
        ValueError: If images have another shape or are not finite.
    """
    images = _floating(images)
    return choose_ink(votes_of(images, mask=mask), images.shape[3])


def votes_of(
    images: Images, *, mask: Any = None, index: Int[np.ndarray, " asked"] | None = None
) -> Float[np.ndarray, "asked votes"]:
    """The votes of a set of images on their objects, for `choose_ink`.

    Args:
        images: Images, in memory or not.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for uniform weights.
        index: Which images are examined; None for at most 2,048, evenly spaced.

    Returns:
        The `ink_votes` of each.
    """
    index = _evenly_spaced(len(images)) if index is None else index
    return _each(eqx.Partial(ink_votes, mask=as_mask(mask)), images, index)


def own_sides(
    images: Images, frame: Frame, *, index: Int[np.ndarray, " asked"] | None = None
) -> Float[np.ndarray, " sides"]:
    """Shorter sides at which a frame would show figures as large as they are in their images.

    Args:
        images: Images, in memory or not.
        frame: Their registration.
        index: Which images are examined; None for at most 2,048, evenly spaced.

    Returns:
        Pixels, not rounded, for each examined image that has an object.
    """
    index = _evenly_spaced(len(images)) if index is None else index
    move = _each(frame.find, images, index)[:, -Affine().num_params :]
    # Both sides of the visible part are equally long as fractions of the image's; images without
    # an object keep their size.
    return (1.0 + move[move[:, 0] != 0.0, 0]) * min(images.shape[1:3])


def _floating(images: Any) -> Images:
    """8- or 16-bit images as intensities in [0, 1], and grey ones with a channel axis."""
    if isinstance(images, ImageSource):
        return images
    _validation.unmasked(images, "images")
    if np.ndim(images) == 4 and np.issubdtype(images.dtype, np.floating):
        _validation.finite_images(images)
        # Sums over the pixels of large images leave the range of half precision.
        return images if images.dtype.itemsize > 2 else images.astype(np.float32)
    return _validation.images(images)


def _evenly_spaced(count: int) -> Int[np.ndarray, " asked"]:
    """Indices of evenly spaced images that represent a set."""
    return np.linspace(0, count - 1, min(count, MOST_ASKED)).astype(np.int64)


def _each(
    function: Callable[[Image], Array], images: Images, index: Int[np.ndarray, " m"] | None = None
) -> np.ndarray:
    """Applies a function of one image to many, in batches."""
    images = _floating(images)
    index = np.arange(len(images)) if index is None else index
    if not len(index):
        like = jax.ShapeDtypeStruct(images.shape[1:], jnp.result_type(float))
        result = jax.eval_shape(function, like)
        return np.zeros((0, *result.shape), result.dtype)
    # In few batch sizes, as each is compiled. XLA rounds batches below 64 differently.
    most = largest_read(_COPIES * int(np.prod(images.shape[1:])))
    size = min(most, max(64, 1 << (len(index) - 1).bit_length()))
    parts = []
    for start in range(0, len(index), size):
        here = index[start : start + size]
        rows = np.asarray(images[np.resize(here, size)])
        mapped_rows = jitted_map_rows(vmap_rows, function, jax.device_put(rows), None)
        parts.append(np.asarray(mapped_rows)[: len(here)])
    return np.concatenate(parts)
