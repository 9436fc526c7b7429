"""Fréchet means of Gaussians, which minimise the weighted sum of squared distances.

Each function takes a tree of Gaussians with one leading axis and non-negative weights, and runs a
fixed number of steps, so that it can be jitted, mapped and differentiated (`fisher_rao_mean` can be
differentiated only in one and two dimensions). Covariances are not checked here: `check_gaussians`
of `diffclust.distances` does so, and gives the index of one that is not positive definite.

A Gaussian in one dimension, N(μ, s²), is the point (μ/2√K, s) of the hyperbolic half-plane, where K
is the weight of the variance in the metric (½ for Fisher and Rao); distances in the half-plane are
those of the Gaussians divided by 2√K.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust._sharding import varying_like, with_auto_axes
from diffclust._validation import positive
from diffclust.distances.fisher_rao import fisher_rao_exp, fisher_rao_log
from diffclust.distances.gaussian import AnyGaussian, DiagonalGaussian, Gaussian
from diffclust.distances.wasserstein import transport
from diffclust.linalg import product, safe_sqrt

HalfPlanePoint = tuple[Array, Array]
"""Positions x and heights s > 0, as arrays that broadcast against each other."""


def log_map(start: HalfPlanePoint, end: HalfPlanePoint) -> tuple[Array, Array, Array]:
    """The initial velocity of the geodesic that reaches another point at time one.

    Args:
        start: The start.
        end: The end.

    Returns:
        The horizontal and vertical velocity, in a frame in which the start is (0, 1), and its
        length, which is the distance.
    """
    # In the frame of the start, as in the Poincaré disc, whose centre is (0, 1).
    x, s = (end[0] - start[0]) / start[1], end[1] / start[1]
    u, v = 2.0 * x, x**2 + (s - 1.0) * (s + 1.0)
    sine = safe_sqrt(u**2 + v**2)
    away = sine > 0
    length = jnp.arcsinh(sine / (2.0 * s))
    rate = jnp.where(away, length / jnp.where(away, sine, 1.0), 0.5 / s)
    return rate * u, rate * v, length


def exp_map(start: HalfPlanePoint, across: Array, upwards: Array) -> HalfPlanePoint:
    """The point at time one of the geodesic with the given velocity.

    Args:
        start: The start.
        across: Horizontal velocity, as returned by `log_map`.
        upwards: Vertical velocity.

    Returns:
        A point.
    """
    length = safe_sqrt(across**2 + upwards**2)
    moving = length > 0
    sinhc = jnp.where(moving, jnp.sinh(length) / jnp.where(moving, length, 1.0), 1.0)
    height = 1.0 / (jnp.cosh(length) - sinhc * upwards)
    return start[0] + start[1] * sinhc * across * height, start[1] * height


def hessian_bound(length: Array) -> Array:
    """An upper bound on the Hessian of half a squared distance: length · coth length.

    Args:
        length: Distances.

    Returns:
        Numbers of at least 1; a step towards the mean that is divided by their mean never
        overshoots.
    """
    large = length > 1e-3
    return jnp.where(large, length / jnp.tanh(jnp.where(large, length, 1.0)), 1.0)


Weights = Float[Array, " n"]
G = TypeVar("G", bound=AnyGaussian)


@with_auto_axes
def wasserstein_mean(
    gaussians: AnyGaussian, weights: Weights | None = None, *, num_steps: int = 30
) -> AnyGaussian:
    """The barycentre under the 2-Wasserstein distance.

    Its mean is the mean of the means. For diagonal covariances, deviations are averaged in closed
    form; others are iterated, S ← T S T with T the mean of the maps from S to each.

    Args:
        gaussians: Gaussians with a leading axis and positive definite covariances.
        weights: A non-negative weight for each, not all zero, or None for equal ones.
        num_steps: Steps of the iteration; ten are enough for covariances of similar size.

    Returns:
        One Gaussian.

    Raises:
        ValueError: If there is no leading axis, or the weights do not match it, are negative or
            all zero.

    References:
        Álvarez-Esteban et al., A fixed-point approach to barycenters in Wasserstein space (2016),
        Eq. 6.
    """
    gaussians, weights = _normalised(gaussians, weights)
    mean = _average(weights, gaussians.mean)
    if isinstance(gaussians, DiagonalGaussian):
        return DiagonalGaussian(mean, _average(weights, safe_sqrt(gaussians.variance)) ** 2)
    covariances = 0.5 * (gaussians.covariance + gaussians.covariance.mT)

    def step(covariance: Array, _: None) -> tuple[Array, None]:
        maps = jax.vmap(transport, in_axes=(None, 0))(covariance, covariances)
        move = _average(weights, maps)
        moved = product(move, covariance, move)
        return 0.5 * (moved + moved.T), None

    start = varying_like(_average(weights, covariances), weights)
    covariance, _ = jax.lax.scan(step, start, None, length=num_steps)
    return Gaussian(mean, covariance)


@with_auto_axes
def fisher_rao_mean(
    gaussians: Gaussian, weights: Weights | None = None, *, scale: float = 0.5, num_steps: int = 50
) -> Gaussian:
    """The Fréchet mean under the exact Fisher–Rao distance, by Riemannian gradient descent.

    A step is the mean of the logarithms, shortened if curvature would make it too long.

    Args:
        gaussians: Gaussians with a leading axis.
        weights: A non-negative weight for each, not all zero, or None for equal ones.
        scale: Weight K of the covariance part of the metric.
        num_steps: Steps of the descent.

    Returns:
        One Gaussian.

    Raises:
        ValueError: If there is no leading axis, the weights do not match it, are negative or all
            zero, or the scale is not positive.

    References:
        Afsari et al., On the convergence of gradient descent for finding the Riemannian center of
        mass (2013).
    """
    gaussians, weights = _normalised(gaussians, weights)

    def logarithm(p: Gaussian, q: Gaussian) -> Gaussian:
        return fisher_rao_log(p, q, scale=scale)

    def step(p: Gaussian, _: None) -> tuple[Gaussian, None]:
        tangents = jax.vmap(logarithm, in_axes=(None, 0))(p, gaussians)
        lengths = jax.vmap(lambda tangent: _length(p, tangent, scale))(tangents)
        # A step that is certain to descend: the curvature is never below -1 / 2K.
        stride = 1.0 / product(weights, hessian_bound(lengths / (2.0 * scale) ** 0.5))
        move = jax.tree.map(lambda leaf: stride * _average(weights, leaf), tangents)
        return fisher_rao_exp(p, move, scale=scale), None

    start = Gaussian(_average(weights, gaussians.mean), _average(weights, gaussians.covariance))
    start = varying_like(start, weights, gaussians)
    return jax.lax.scan(step, start, None, length=num_steps)[0]


@with_auto_axes
def diagonal_fisher_rao_mean(
    gaussians: DiagonalGaussian,
    weights: Weights | None = None,
    *,
    scale: float = 0.5,
    num_steps: int = 50,
) -> DiagonalGaussian:
    """The Fréchet mean under `diagonal_fisher_rao`: that of a hyperbolic plane for each axis.

    Computed by gradient descent in each, with geodesics in closed form.

    Args:
        gaussians: Gaussians with a leading axis and positive variances.
        weights: A non-negative weight for each, not all zero, or None for equal ones.
        scale: Weight K of the covariance part of the metric.
        num_steps: Steps of the descent.

    Returns:
        One Gaussian.

    Raises:
        ValueError: If there is no leading axis, the weights do not match it, are negative or all
            zero, or the scale is not positive.

    References:
        Shape K-means, Eq. 7, for the distance; Afsari et al. (2013).
    """
    positive(scale, "scale", least=0, strictly=True)
    gaussians, weights = _normalised(gaussians, weights)
    unit = 2.0 * scale**0.5
    means, deviations = gaussians.mean / unit, jnp.sqrt(gaussians.variance)

    def descend(x: Array, s: Array) -> tuple[Array, Array]:
        def step(at: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            across, upwards, lengths = log_map(at, (x, s))
            stride = 1.0 / product(weights, hessian_bound(lengths))
            move = stride * product(weights, across), stride * product(weights, upwards)
            return exp_map(at, *move), None

        start = (product(weights, x), jnp.exp(product(weights, jnp.log(s))))
        start = varying_like(start, weights)
        return jax.lax.scan(step, start, None, length=num_steps)[0]

    flat = (len(weights), -1)
    x, s = jax.vmap(descend, in_axes=(1, 1))(means.reshape(flat), deviations.reshape(flat))
    shape = gaussians.mean.shape[1:]
    return DiagonalGaussian(unit * x.reshape(shape), s.reshape(shape) ** 2)


def _length(p: Gaussian, tangent: Gaussian, scale: float) -> Array:
    """The length of a tangent at p."""
    inverse = jnp.linalg.inv(p.covariance)
    growth = product(inverse, tangent.covariance)
    squared = scale * jnp.trace(product(growth, growth))
    return safe_sqrt(squared + jnp.vdot(tangent.mean, product(inverse, tangent.mean)))


def _average(weights: Weights, values: Array) -> Array:
    return jnp.tensordot(weights, values, axes=1, precision=jax.lax.Precision.HIGHEST)


def _normalised(gaussians: G, weights: Weights | None) -> tuple[G, Weights]:
    """Gaussians of floating numbers, and weights that add up to one."""
    shape = gaussians.mean.shape
    if not shape or (isinstance(gaussians, Gaussian) and len(shape) != 2):
        raise ValueError(f"several Gaussians with one leading axis are averaged, not {shape}")
    gaussians = jax.tree.map(_floating, gaussians)
    if weights is None:
        return gaussians, jnp.full(shape[:1], 1.0 / shape[0], dtype=gaussians.mean.dtype)
    if weights.shape != shape[:1]:
        raise ValueError(f"{shape[0]} Gaussians take as many weights, not {weights.shape}")
    positive(weights, "weights", least=0)
    total = jnp.sum(weights)
    positive(total, "the sum of weights", least=0, strictly=True)
    return gaussians, weights / total


def _floating(array: Array) -> Array:
    """The array, in floating numbers where it holds whole ones, which have no means."""
    is_floating = jnp.issubdtype(array.dtype, jnp.floating)
    return array if is_floating else array.astype(jnp.result_type(float))
