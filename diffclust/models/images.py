"""The interface of all image models."""

import abc
import dataclasses
import math
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from diffclust import _validation
from diffclust.energies import AbstractPairEnergy, TransformedDistance, TransformedPrototype
from diffclust.image_source import Images, blanked
from diffclust.masks import as_mask, check_mask_size, mask_weights
from diffclust.models.base import AbstractModel, Result
from diffclust.models.settings import LEAST_CANVAS, Ground, Register, RegistrationSettings
from diffclust.parallel import Data
from diffclust.parallel.chunks import largest_read
from diffclust.parallel.mesh import map_in_chunks
from diffclust.registration import (
    MOST_ASKED,
    Frame,
    Place,
    choose_ink,
    own_sides,
    stray_of_ground,
    votes_of,
)
from diffclust.solvers import Outcome
from diffclust.transforms import (
    AbstractSequence,
    AbstractSpatialTransform,
    AbstractTransform,
    Rotation,
    ThinPlateSpline,
)

_PLACES = {
    "place": "position and size normalised",
    "upright": "position, size and slant normalised",
    "auto": "position and size normalised, and slant in one of two graphs, whose mean is cut",
}
_GROUNDS = {
    "dark": "brighter than a dark background",
    "light": "darker than a light background",
    "colour": "what differs from the colour of the background, made grey",
    "keep": "what differs from a smooth background (background and colours are kept)",
}

_TAKEN_OUT = ("dark", "light", "colour")
"""The kinds of background that can be detected and are then removed."""

_DOUBTFUL = 0.05
"""How far borders may stray from a background that is not doubtful, as a share of the contrast."""

_LEAST_SIDE, _SIDE_STEP = 28, 4
"""Least number of pixels on the shorter side of registered images, and the step it grows by."""


_STEADY, _STEADIER = 0.8, 0.1
"""Stability below which other frames are tried, and the increase required to use one of them."""

_MOST_JUDGED, _MOST_VALUES, _LEAST_JUDGED = 1000, 2**26, 5
"""Most images that frames are tried on, most values in memory, and fewest images per cluster."""

_SIDE_JUDGED, _MOST_REMEMBERED = 128, 8
"""Side to which larger images are averaged down for this, and how many trials are remembered."""

Judge = Callable[..., float]
"""A function of a model, `register`, `ground` and images that returns the stability of clusters."""

_JUDGES: list[Judge] = []

_JUDGED: dict[tuple[Any, ...], dict[str, float]] = {}
"""Results for the most recent images, so that one command tries their frames only once."""


def judges_frames(judge: Judge) -> Judge:
    """Registers a function as the judge of frames; the method that provides it imports this module.

    Args:
        judge: The function.

    Returns:
        The same function.
    """
    _JUDGES[:] = [judge]
    return judge


class AbstractImageModel(AbstractModel, RegistrationSettings):
    """A clustering of images, registered first if that is asked for.

    Attributes:
        mask: Which pixels count, as weights in [0, 1] of shape `(height, width)`; the model sees
            hidden pixels as black. None for all; see `diffclust.masks`.
    """

    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)

    @property
    def auto_register(self) -> Register:
        """What `register="auto"` means on a plain background; `"auto"` for a mean over frames.

        Images that are rotated by any angle have no common slant, so `"place"` is used for them.
        """
        return "upright" if rotation_in(self.energy()) is None else "place"

    @property
    def frame(self) -> Frame:
        """The registration of single images."""
        place = "none" if self.register == "auto" else self.register
        ink = "none" if self.ground == "auto" else self.ground
        if self.register == "none":
            return Frame(place, ink, mask=self.mask)
        # A model with several frames places images in each, and changes their size there.
        side = None if self.register == "auto" else self.canvas
        return Frame(place, ink, mask=self.mask, least_side=side or _LEAST_SIDE, most_side=side)

    @property
    def prototype_frame(self) -> Frame:
        """The frame of the prototypes: the upright one, if there are several."""
        if self.register != "auto":
            return self.frame
        return dataclasses.replace(self, register="upright").frame

    @property
    def registers(self) -> bool:
        """Whether images are registered before they are clustered."""
        return self.register != "none" or not self.frame.is_identity

    @property
    def spatial_transform(self) -> AbstractSpatialTransform | None:
        """The transform of the model's energy."""
        return self.energy().spatial_transform

    def registered_shape(self, shape: tuple[int, ...], /) -> tuple[int, ...]:
        """The shape of registered images."""
        return self.prototype_frame.shape(shape) if len(shape) == 3 else shape

    @property
    def makes_grey(self) -> bool:
        """Whether colours are removed."""
        return self.ground == "colour"

    def describe(self) -> dict[str, str]:
        """Names the registration of the images, if there is one."""
        place = _PLACES.get(self.register, "position and size as they are")
        if self.ground in _GROUNDS and self.registers:
            return {"Registration": f"{place}; the object is {_GROUNDS[self.ground]}"}
        if self.registers:
            return {"Registration": place}
        # What "auto" resolves to.
        words = "none, as the images have no plain background or are more stable without"
        return {"Registration": words} if self.ground == "none" else {}

    @property
    def pixel_mask(self) -> str | None:
        """The pixels that count when images are compared: all, if images were registered."""
        return None if self.registers else self.mask

    def resolved(self, given: Data, /) -> "AbstractImageModel":
        """The model with the frame and the background of its images."""
        model, doubtful = self._found(given)
        if doubtful:
            model = model.reconsidered(given)
        return dataclasses.replace(model, canvas=model._canvas_for(given))

    def tried(self, given: Data, /) -> Mapping[str, float]:
        """How stable clusters are in the frames that are tried, if the background is doubtful."""
        model, doubtful = self._found(given)
        stability = model._stability_of_frames(given) if doubtful else {}
        return {f"stability_{name}": value for name, value in stability.items()}

    def _found(self, given: Data) -> tuple["AbstractImageModel", bool]:
        """The model with the frame that the borders suggest, and whether it is doubtful."""
        register, ground, doubtful = self.register, self.ground, False
        if register == "none":
            # Nothing is searched for. "none" means that a search found no plain background.
            return dataclasses.replace(self, ground="auto") if ground == "none" else self, False
        if ground == "auto":
            array = self._validated_everywhere(given)
            index = given.evenly_spaced(MOST_ASKED)
            votes = given.allgather(votes_of(array, mask=self.mask, index=index))
            ink = choose_ink(votes, array.shape[3])
            ground, plain = ink or "none", ink is not None
            doubtful = register == "auto" and ground in _TAKEN_OUT
            doubtful = doubtful and stray_of_ground(votes) > _DOUBTFUL
            register = register if plain or register != "auto" else "none"
        if register == "auto" and ground == "keep":
            register = "place"
        elif register == "auto":
            register = self.auto_register
        return dataclasses.replace(self, register=register, ground=ground), doubtful

    def _canvas_for(self, given: Data) -> int | None:
        """Pixels on the shorter side of registered images; None if all images keep their size."""
        if self.canvas is not None or self.register == "none":
            return self.canvas
        array, own = self._validated_everywhere(given), np.zeros((0,), np.float32)
        side = min(array.shape[1:3])
        if side > _LEAST_SIDE and self.ground != "keep":
            index = given.evenly_spaced(MOST_ASKED)
            own = own_sides(array, self.prototype_frame, index=index)
        if len(own := given.allgather(own)):
            # The tolerance avoids one more step from rounding, as when images were registered
            # before.
            steps = math.ceil(float(np.median(own)) / _SIDE_STEP - 0.05)
            side = min(side, _SIDE_STEP * steps)
        return max(side, _LEAST_SIDE)

    def matching(self, prototypes: Any, /) -> "AbstractImageModel":
        """The model that registers images to the size of prototypes."""
        if self.register == "none" or self.canvas is not None:
            return self
        shape = getattr(prototypes, "shape", None) or np.shape(prototypes)
        if len(shape) < 3:
            return self
        if min(shape[1:3]) < LEAST_CANVAS:
            raise ValueError(
                f"prototypes of registered images must have at least {LEAST_CANVAS} pixels per "
                f"side; got images of {shape[1]}x{shape[2]}"
            )
        return dataclasses.replace(self, canvas=min(shape[1:3]))

    def _validated_everywhere(self, given: Data) -> Images:
        """Checked images; with several processes, all raise if one does."""
        with given.raise_everywhere():
            return self.validated(given.samples)

    def reconsidered(self, given: Data) -> "AbstractImageModel":
        """The most stable of three: the model itself, placed on its background, or unregistered.

        The three are tried only if PSSC's clusters of at most 1,000 images have a stability below
        0.8 in the frame that was found; another frame must be more stable by 0.1.

        Args:
            given: The images as they were given.

        Returns:
            The model.
        """
        stability = self._stability_of_frames(given)
        if len(stability) < 2:
            return self
        own, kept, unmoved = (stability[name] for name in ("found", "kept", "unregistered"))
        warnings.warn(
            "It is doubtful whether these images have a plain background. The clusters of some of "
            f"them have a stability of {own:.2f} if it is removed, {kept:.2f} if it is kept and "
            f"{unmoved:.2f} without registration; the most stable is taken, the first unless "
            f"another is more stable by {_STEADIER}. --register and --ground choose.",
            stacklevel=2,
        )
        if max(kept, unmoved) < own + _STEADIER:
            return self
        register, ground = ("place", "keep") if kept > unmoved else ("none", "none")
        return dataclasses.replace(self, register=register, ground=ground)

    def stability_when_registered(self, given: Data) -> float | None:
        """The stability of PSSC's clusters of some images in the model's frame.

        Args:
            given: The images as they were given, of which at most 1,000 are clustered.

        Returns:
            The median over five keys, 0 if they cannot be clustered; None if they are too few.
        """
        return self._stability_of_frames(given, others=False).get("found")

    def _stability_of_frames(self, given: Data, *, others: bool = True) -> dict[str, float]:
        """The stability in the frame that was found and, if that is low, in two others.

        It is 0 if the images cannot be clustered in a frame.
        """
        images, factor = _examples(given, self.validated(given.samples), self.mask is None)
        images = given.allgather(images)
        if len(images) < _LEAST_JUDGED * self.num_clusters or not _JUDGES:
            return {}
        register = "upright" if self.register == "auto" else self.register
        found = (register, self.ground, self.canvas, self.num_clusters, self.mask, others)
        about = (*found, _JUDGES[0], images.shape, images.dtype, zlib.crc32(images.tobytes()))
        if about not in _JUDGED:
            canvas = None if self.canvas is None else max(8, self.canvas // factor)
            model = dataclasses.replace(self, canvas=canvas)

            def stability(register: Register, ground: Ground) -> float:
                try:
                    found = _JUDGES[0](model, register, ground, images=images)
                except ValueError:
                    found = 0.0
                return float(given.broadcast(np.float64(found)))

            figures = {"found": stability(register, self.ground)}
            if others and figures["found"] < _STEADY:
                figures["kept"] = stability("place", "keep")
                figures["unregistered"] = stability("none", "none")
            if len(_JUDGED) >= _MOST_REMEMBERED:
                _JUDGED.clear()
            _JUDGED[about] = figures
        return _JUDGED[about]

    @property
    def without_registration(self) -> "AbstractImageModel":
        """The model for images that are already registered."""
        if not self.registers:
            return self
        hidden = {} if self.mask is None else {"mask": None}
        return dataclasses.replace(self, register="none", ground="none", **hidden)

    @abc.abstractmethod
    def energy(self, channels: int = 1) -> TransformedDistance | TransformedPrototype:
        """The energy of a sample and a prototype, with the transform that moves one onto the other.

        Args:
            channels: Channels of the images.
        """

    def check(self, images: Images) -> None:
        """Refuses images that the model cannot cluster; by default it accepts all.

        Args:
            images: Registered images, finite and of the right rank.

        Raises:
            ValueError: If the images are refused; the message says what is wrong and what would
                work.
        """

    def preprocessed(self, images: Images, /) -> Images:
        """Registers images and calls `check`."""
        if self.registers:
            images = self.resolved(Data(images)).frame.registered(images)
        self.check(images)
        return images

    def validated(self, images: Any, /) -> Images:
        """Checks images, and blanks the pixels that the mask hides."""
        array = _validation.images_or_source(images)
        check_mask_size(self.mask, *array.shape[1:3])
        if self.mask is None:
            return array
        return blanked(array, mask_weights(self.mask) == 0.0)

    def in_prototype_frame(self, images: Images, /) -> Images:
        """Images in the upright frame, if there are several."""
        return self.frame_of("upright").registered(images) if self.register == "auto" else images

    def frame_of(self, place: Place) -> Frame:
        """One of several frames, for images whose background was removed.

        Args:
            place: What the frame removes.

        Returns:
            The frame.
        """
        return Frame(place, least_side=self.canvas or 1, most_side=self.canvas)

    def aligned(self, outcome: Outcome, images: Images, params: np.ndarray, /) -> np.ndarray:
        """Moves images onto their prototypes."""
        images = self.in_prototype_frame(images)
        energy = self.energy(images.shape[3])
        if isinstance(energy, TransformedPrototype) and energy.num_params == 0:
            raise ValueError(f"{self.method} moves nothing, so there is nothing to align")
        return map_in_chunks(energy.aligned, outcome.chunk_size, params, images)


def steps_of(energy: AbstractPairEnergy) -> tuple[AbstractTransform, ...]:
    """The transforms of an energy, in order.

    Args:
        energy: An energy.

    Returns:
        The parts of the energy's transform; none if it has no transform.
    """
    if not isinstance(energy, TransformedDistance | TransformedPrototype):
        return ()
    whole = energy.transform
    return whole.transforms if isinstance(whole, AbstractSequence) else (whole,)


def rotation_in(energy: AbstractPairEnergy) -> Rotation | None:
    """The rotation by any angle among the transforms of an energy.

    Args:
        energy: An energy.

    Returns:
        The first one; None if there is none.
    """
    return next((part for part in steps_of(energy) if isinstance(part, Rotation)), None)


def check_transforms(transforms: Iterable[AbstractTransform], images: Images) -> None:
    """Refuses images with fewer pixels per side than a spline has landmarks, or a different aspect.

    Rotations would shear the latter, as rows and columns both go from -1 to 1.

    Args:
        transforms: The transforms.
        images: The images.

    Raises:
        ValueError: If an image does not fit; the message gives both numbers.
    """
    height, width = images.shape[1:3]
    for transform in transforms:
        if isinstance(transform, ThinPlateSpline):
            _validation.landmarks_fit(transform.landmarks, height, width)
        if isinstance(transform, Rotation) and abs(transform.aspect * height - width) > 0.5:
            raise ValueError(
                f"images of {height}x{width} pixels would be sheared by rotations; make them square"
                f" (or give a model of your own Rotation(aspect={width} / {height}))"
            )


def of_images(result: Result) -> AbstractImageModel:
    """The model of a result, which must be a model of images.

    Args:
        result: A fitted model.

    Returns:
        The model.

    Raises:
        ValueError: If the model clusters something else.
    """
    if not isinstance(result.model, AbstractImageModel):
        raise ValueError(f"{result.model.method} does not cluster images")
    return result.model


def unaligned(
    result: Result, params: Any, drawn: Any
) -> Float[np.ndarray, "n height width channels"]:
    """Moves prototypes or aligned images back to where the registered images were before alignment.

    Args:
        result: A fitted model that moves images.
        params: How each image was aligned, as in `Assignment.params`.
        drawn: What is drawn in the place of each image, of the shape of registered images.

    Returns:
        The drawn images under the inverse of each alignment; see `AbstractSpatialTransform.undo`.

    Raises:
        ValueError: If the model does not move images, or the arguments do not match each other.
    """
    transform = of_images(result).spatial_transform
    if result.model.descriptor.moves != "samples" or transform is None:
        raise ValueError(f"{result.model.method} does not move images")
    array = _validation.images(drawn, "drawn")
    moves, expected = np.asarray(params, array.dtype), (len(array), transform.num_params)
    _validation.shaped(moves, expected, "params", "one row for each image")
    return map_in_chunks(transform.undo, result.outcome.chunk_size, moves, array)


def restored(
    result: Result, images: Any, drawn: Any
) -> Float[np.ndarray, "n height width channels"]:
    """Registered or aligned images, or prototypes, at the originals' places and in their colours.

    If prototypes have unit norm, what is drawn is scaled to the norm of each registered image.

    Args:
        result: A fitted model of images.
        images: The images as given.
        drawn: What is drawn in the place of each image, of the shape of registered images.

    Returns:
        Images on the backgrounds of the given ones.

    Raises:
        ValueError: If the images are not of the fitted kind, or what is drawn does not match them.
    """
    model = of_images(result)
    array, others = result.validated(images), _validation.images(drawn, "drawn")
    frame, numbers = model.prototype_frame, math.prod(array.shape[1:])
    # Chunks hold what is clustered, which may be far smaller than the images.
    size = min(result.outcome.chunk_size, largest_read(numbers))
    expected = (len(array), *result.sample_shape)
    _validation.shaped(others, expected, "drawn", "one picture for each image")
    params = frame.params_of(array)
    if model.has_unit_norm:
        registered = map_in_chunks(frame.apply, size, params, array)
        wanted, own = (
            np.sqrt(np.square(x).sum((1, 2, 3), keepdims=True)) for x in (registered, others)
        )
        others = others * (wanted / np.where(own > 0.0, own, 1.0))
    restore = eqx.Partial(frame.restore, sample_shape=array.shape[1:])
    return map_in_chunks(restore, size, params, others)


def _examples(given: Data, images: Images, may_shrink: bool) -> tuple[np.ndarray, int]:
    """Images of this process that represent those of all, averaged over squares.

    Returns:
        The images, and the side of the squares in pixels.
    """
    height, width, channels = images.shape[1:]
    side = max(1, max(height, width) // _SIDE_JUDGED) if may_shrink else 1
    side = min(side, height, width)
    rows, columns = height // side, width // side
    most = max(1, min(_MOST_JUDGED, _MOST_VALUES // (rows * columns * channels)))
    index, at_once = given.evenly_spaced(most), max(1, _MOST_VALUES // (height * width * channels))

    def averaged(chosen: np.ndarray) -> np.ndarray:
        whole = chosen[:, : rows * side, : columns * side]
        squares = whole.reshape(-1, rows, side, columns, side, channels)
        return squares.mean((2, 4)) if side > 1 else chosen

    starts = range(0, max(1, len(index)), at_once)
    parts = [averaged(np.asarray(images[index[start : start + at_once]])) for start in starts]
    return np.concatenate(parts), side
