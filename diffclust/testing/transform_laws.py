"""What must hold for a transform."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from diffclust.parallel.mesh import map_in_chunks
from diffclust.sampling import bilinear_sample, pixel_grid
from diffclust.testing.drawing import agree, compiled, generator, require, rounding, smooth_image
from diffclust.transforms import AbstractSpatialTransform, AbstractTransform, Affine
from diffclust.types import Key

_BATCH = 8
"""Images that are transformed at once: one size, so that a transform is compiled for it once."""


def check_transform(
    transform: AbstractTransform,
    *,
    key: Key,
    height: int = 8,
    width: int = 9,
    channels: int = 2,
    scale: float = 0.1,
    draw: Callable[[Key], PyTree] | None = None,
) -> None:
    """Checks all that must hold for a transform.

    Zero is the identity; shape and dtype are kept; `bind` agrees with the call, and what is bound
    remembers nothing of earlier calls; jit = eager and vmap = loop; gradients agree with central
    differences wherever those see no kink, and are of use at the identity; the deformation is a
    non-negative quadratic form; variances of images stay variances, unchanged at zero and moved
    linearly. A spatial transform of images is linear in the image and reads it where its map says,
    its Jacobian determinant is that of the map, and its affine embedding holds affine maps.
    `compose` and `inverse` are checked where the transform offers them.

    Gradients are compared closely under `jax.enable_x64`, loosely otherwise.

    Args:
        transform: The transform.
        key: Random key.
        height: Rows of the images.
        width: Columns of the images.
        channels: Channels of the images.
        scale: Standard deviation of the params that are drawn.
        draw: Draws one smooth sample of any kind from a key, for transforms of other samples than
            images: an array, or a tree of arrays, which the transform is called with.

    Raises:
        AssertionError: With the law that is broken.
    """
    case = _drawn(transform, key, (height, width, channels), scale, draw)
    laws: list[Callable[[_Case], None]] = [_zero_is_identity, _batching, _deformation]
    if case.is_spatial:
        laws += [_spatial, _jacobian_determinant, _affine_embedding]
    if transform.num_params:
        laws += [_gradient, _gradient_at_zero]
    if hasattr(transform, "compose"):
        laws.append(_composition)
    if hasattr(transform, "inverse"):
        laws.append(_inverse)
    if draw is None:
        laws.append(_correlation)
        with contextlib.suppress(NotImplementedError):
            transform.bind_variance(height, width)
            laws.append(_variance)
    for law in laws:
        law(case)


class _OfVectors(eqx.Module):
    """A transform of any samples as one of vectors that hold all their entries."""

    transform: AbstractTransform
    unravel: Callable[[Array], PyTree] = eqx.field(static=True)
    sizes: tuple[int, ...] | None = eqx.field(static=True)

    def __call__(self, params: Array, vector: Array) -> Array:
        return ravel_pytree(self.transform(params, self.unravel(vector)))[0]

    def bind(self, *_: int) -> Callable[[Array, Array], Array]:
        if self.sizes is None:
            return self
        bound = self.transform.bind(*self.sizes)
        return lambda params, vector: ravel_pytree(bound(params, self.unravel(vector)))[0]


@dataclasses.dataclass(frozen=True)
class _Case:
    """A transform with params and images to try it on, on the host: nothing else compiles."""

    transform: AbstractTransform
    function: AbstractTransform | _OfVectors
    first: np.ndarray
    second: np.ndarray
    move: np.ndarray
    image: np.ndarray
    other: np.ndarray
    smooth: np.ndarray
    grid: np.ndarray

    @property
    def atol(self) -> float:
        """Bounds what rounding does to intensities: a pixel's place is known to a few ulp."""
        return 64 * rounding(self.image) * max(self.image.shape)

    @property
    def is_precise(self) -> bool:
        return self.image.dtype == np.float64

    def law(self, text: str) -> str:
        return f"{type(self.transform).__name__}: {text}"

    @property
    def is_spatial(self) -> bool:
        return isinstance(self.function, AbstractSpatialTransform)

    @property
    def spatial(self) -> AbstractSpatialTransform:
        return cast("AbstractSpatialTransform", self.transform)

    def moved(self, params: np.ndarray, image: np.ndarray) -> np.ndarray:
        return compiled(self.function, params, image)

    def all_moved(self, params: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Transforms a batch of any size."""
        return map_in_chunks(eqx.Partial(_bound, self.function), _BATCH, params, images)

    def mapped(self, params: np.ndarray, points: np.ndarray) -> np.ndarray:
        return compiled(self.spatial.warp, params, points)

    @property
    def action(self) -> tuple[Callable[[np.ndarray, np.ndarray], np.ndarray], np.ndarray]:
        """What acts, and what it acts on: a map on points, or a transform on an image."""
        return (self.mapped, self.grid) if self.is_spatial else (self.moved, self.image)


def _drawn(
    transform: AbstractTransform,
    key: Key,
    shape: tuple[int, int, int],
    scale: float,
    draw: Callable[[Key], PyTree] | None,
) -> _Case:
    """A case of images; with `draw` one of samples of any kind, as vectors."""
    rng, function, vectors = generator(key), transform, None
    if draw is None:
        smooth = np.asarray(smooth_image(key, *shape, sigma=0.5))
        grid = np.asarray(pixel_grid(*shape[:2]))
    else:
        one, two = (draw(k) for k in jax.random.split(key))
        flat, unravel = ravel_pytree(one)
        smooth, grid = np.asarray(flat), np.zeros((2, 0), flat.dtype)
        vectors = (smooth, np.asarray(ravel_pytree(two)[0]))
        sizes = one.shape[:2] if isinstance(one, Array) else None
        function = _OfVectors(transform, unravel, sizes)
    params = rng.normal(size=(3, transform.num_params)).astype(smooth.dtype)
    direction = params[2] / max(1e-6, float(np.sqrt(np.sum(params[2] ** 2))))
    first, second = np.asarray(scale, smooth.dtype) * params[:2]
    image, other = vectors or rng.uniform(size=(2, *shape)).astype(smooth.dtype)
    return _Case(transform, function, first, second, direction, image, other, smooth, grid)


def _bound(function: AbstractTransform | _OfVectors, params: Array, sample: Array) -> Array:
    return function.bind(*sample.shape[:2])(params, sample)


@eqx.filter_jit
def _variances(transform: AbstractTransform, params: Any, variances: Any) -> Array:
    bound = transform.bind_variance(*variances.shape[1:3])
    return jax.vmap(bound, in_axes=(None, 0))(params, variances)


@eqx.filter_jit
def _jacobians(
    transform: AbstractTransform | _OfVectors, params: Any, image: Any, tint: Any
) -> tuple[Array, Array]:
    """By all params, and along one direction of the image; both by reverse mode."""
    return jax.jacrev(lambda p, t: transform(p, image + t * tint), argnums=(0, 1))(
        params, jnp.zeros((), dtype=image.dtype)
    )


def _zero_is_identity(case: _Case) -> None:
    zero = np.zeros_like(case.first)
    if case.is_spatial:
        law = case.law("zero is the identity map, exactly")
        agree(law, case.mapped(zero, case.grid), case.grid, 0.0)
    agree(case.law("zero is the identity"), case.moved(zero, case.image), case.image, case.atol)


def _batching(case: _Case) -> None:
    pairs = [(case.first, case.image), (case.second, case.other)]
    eager = case.function(jnp.asarray(case.first), jnp.asarray(case.image))
    loop = np.stack([case.moved(params, image) for params, image in pairs])
    agree(case.law("jit = eager"), loop[0], eager, case.atol)
    batched = case.all_moved(*(np.stack(arrays) for arrays in zip(*pairs, strict=True)))
    agree(case.law("vmap = loop, and bind = call"), batched, loop, case.atol)
    bound, image = case.function.bind(*case.image.shape[:2]), jnp.asarray(case.image)
    calls = [bound(jnp.asarray(params), image) for params in (case.first, case.second)]
    alone = [case.moved(params, case.image) for params in (case.first, case.second)]
    law = case.law("what is bound remembers nothing")
    agree(law, np.stack(calls), np.stack(alone), case.atol)


def _variance(case: _Case) -> None:
    given = np.stack([case.image, case.other, 2 * case.image + 3 * case.other])
    still = np.asarray(_variances(case.transform, np.zeros_like(case.first), given))
    agree(case.law("variances are unchanged at zero"), still, given, 5 * case.atol)
    one, two, both = np.asarray(_variances(case.transform, case.first, given))
    least = float(min(np.min(one), np.min(two)))
    require(least >= 0.0, case.law(f"variances do not become negative: {least}"))
    agree(case.law("linear in the variances"), both, 2 * one + 3 * two, 5 * case.atol)


def _deformation(case: _Case) -> None:
    one, two = case.first, case.second

    def size(params: np.ndarray) -> np.ndarray:
        return compiled(case.transform.deformation, params)

    zero, terms = np.zeros_like(one), (len(case.transform.deformation_terms),)
    shape = size(one).shape
    require(shape == terms, case.law(f"deformation has shape {shape}, deformation_terms {terms}"))
    require(bool(np.all(size(one) >= 0)), case.law("the deformation is not negative"))
    agree(case.law("the deformation is zero at zero"), size(zero), np.zeros_like(size(zero)), 0.0)
    # The parallelogram law says that it is a quadratic form.
    both = 2 * (size(one) + size(two))
    atol = 1e3 * rounding(one) * float(np.max(both, initial=1e-3))
    law = case.law("the deformation is quadratic")
    agree(law, size(one + two) + size(one - two), both, atol)
    agree(law, size(3 * one), 9 * size(one), 5 * atol)
    slope = compiled(jax.jacrev(case.transform.deformation), zero)
    agree(case.law("the deformation is flat at zero"), slope, np.zeros_like(slope), 0.0)


def _gradient(case: _Case) -> None:
    """Compares slopes with differences, pixel by pixel, where both sides' differences agree."""
    step, tolerance = (1e-7, 1e-4) if case.is_precise else (1e-3, 0.1)
    jacobians = _jacobians(case.function, case.first, case.image, case.other)
    by_params, by_image = map(np.asarray, jacobians)
    signs = np.asarray([0, 1, -1], case.first.dtype) * step
    still = np.zeros_like(signs)
    ways = {"params": (by_params @ case.move, signs, still), "the image": (by_image, still, signs)}
    for name, (slope, along, tint) in ways.items():
        here, up, down = case.all_moved(
            case.first + along[:, None] * case.move,
            case.image + tint.reshape(-1, *[1] * case.other.ndim) * case.other,
        )
        ahead, behind = (up - here) / step, (here - down) / step
        straight = np.abs(ahead - behind) <= tolerance
        bent = 1.0 - float(np.mean(straight))
        law = f"the gradient of {name} jumps at {bent:.0%} of the pixels (is the sample smooth?)"
        require(bent < 0.5, case.law(law))
        difference = np.where(straight, (ahead + behind) / 2, slope)
        agree(case.law(f"the gradient of {name}"), slope, difference, tolerance)


def _gradient_at_zero(case: _Case) -> None:
    """The identity lies on the pixel lattice, in a kink: the gradient must still lead downhill."""
    zero = np.zeros_like(case.first)
    step = 1e-4 if case.is_precise else 1e-2
    slopes, _ = _jacobians(case.function, zero, case.smooth, case.other)
    slopes = np.moveaxis(np.asarray(slopes), -1, 0)
    require(bool(np.all(np.isfinite(slopes))), case.law("the gradient at zero is finite"))
    steps = step * np.concatenate([np.eye(zero.size), -np.eye(zero.size)]).astype(zero.dtype)
    ends = case.all_moved(steps, np.broadcast_to(case.smooth, (len(steps), *case.smooth.shape)))
    differences = (ends[: zero.size] - ends[zero.size :]) / (2 * step)
    axes = tuple(range(1, slopes.ndim))
    along = np.sum(slopes * differences, axis=axes)
    size = np.sum(differences**2, axis=axes)
    wrong = np.flatnonzero(((along < 0.5 * size) | (along > 2.0 * size)) & (size > 1e-6))
    require(not wrong.size, case.law(f"the gradient at zero is wrong for params {wrong}"))


def _spatial(case: _Case) -> None:
    moved = case.moved(case.first, case.image)
    mixed = case.moved(case.first, 2 * case.image - 3 * case.other)
    combined = 2 * moved - 3 * case.moved(case.first, case.other)
    agree(case.law("linear in the image"), mixed, combined, 5 * case.atol)
    sample = eqx.Partial(bilinear_sample, boundary=case.spatial.boundary)
    read = compiled(sample, case.image, case.mapped(case.first, case.grid))
    agree(case.law("reads the image where the map says"), moved, read, case.atol)


def _jacobian_determinant(case: _Case) -> None:
    law = case.law("the Jacobian determinant is the map's")
    determinant = case.spatial.jacobian_determinant
    at_rest = compiled(determinant, np.zeros_like(case.first), case.grid)
    agree(law, at_rest, np.ones_like(case.grid[0]), 64 * rounding(case.grid))
    step, tolerance = (1e-5, 1e-6) if case.is_precise else (1e-2, 5e-3)

    def along(axis: int) -> np.ndarray:
        shift = np.zeros_like(case.grid)
        shift[axis] = step
        ahead, behind = (case.mapped(case.first, case.grid + s) for s in (shift, -shift))
        return (ahead - behind) / (2 * step)

    (xx, yx), (xy, yy) = along(0), along(1)
    agree(law, compiled(determinant, case.first, case.grid), xx * yy - xy * yx, tolerance)


def _affine_embedding(case: _Case) -> None:
    embedding = case.spatial.affine_embedding
    if embedding is None:
        return
    affine = np.asarray([0.1, -0.2, 0.15, 0.05, 0.3, -0.1], case.grid.dtype)
    embedded = case.mapped(np.asarray(embedding, affine.dtype) @ affine, case.grid)
    expected = compiled(Affine().warp, affine, case.grid)
    law = case.law("the affine embedding holds affine maps")
    agree(law, embedded, expected, 1e3 * rounding(case.grid))


def _composition(case: _Case) -> None:
    law = case.law("compose acts like the first and then the second")
    combine = case.transform.compose  # pyright: ignore[reportAttributeAccessIssue]
    both = np.asarray(combine(jnp.asarray(case.first), jnp.asarray(case.second)))
    # Maps compose in reverse order.
    inner, outer = (case.second, case.first) if case.is_spatial else (case.first, case.second)
    act, start = case.action
    agree(law, act(both, start), act(outer, act(inner, start)), case.atol)


def _inverse(case: _Case) -> None:
    law = case.law("the inverse undoes the transform")
    invert = case.transform.inverse  # pyright: ignore[reportAttributeAccessIssue]
    back = np.asarray(invert(jnp.asarray(case.first)))
    act, start = case.action
    agree(law, act(back, act(case.first, start)), start, case.atol)


def _correlation(case: _Case) -> None:
    correlate = case.transform.bind_correlation(*case.smooth.shape[:2])
    if correlate is None:
        return
    # Moves that are large enough to tell their signs apart.
    grid = np.stack([0.7 * p / max(np.linalg.norm(p), 1e-6) for p in (case.first, case.second)])
    image = np.asarray(smooth_image(jax.random.key(0), *case.smooth.shape, sigma=0.25))
    grid, image = grid.astype(case.smooth.dtype), image.astype(case.smooth.dtype)
    moved = case.all_moved(grid, np.stack([image] * 2))
    got = compiled(correlate, grid, image, moved)
    expected = np.einsum("nhwc,mhwc->nm", moved, moved)
    law = case.law("bind_correlation gives the inner products of the moved image, about")
    agree(law, got, expected, 0.1 * float(np.max(np.abs(expected))))
