"""The rotation that Procrustes fits turn on, and the weights of landmarks."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust.types import Scalar

product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
sum_of_products = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def landmark_weights(
    weight: Float[Array, " landmarks"] | None, like: Float[Array, "landmarks dims"]
) -> Float[Array, " landmarks"]:
    """Weights as given, or ones.

    Args:
        weight: Weight of each landmark, or None.
        like: A configuration, for its number of landmarks and type.

    Returns:
        One weight for each landmark.

    Raises:
        ValueError: If there is another number of weights than of landmarks.
    """
    if weight is None:
        return jnp.ones_like(like[:, 0])
    if weight.shape != like.shape[:1]:
        raise ValueError(
            f"weight must have shape {like.shape[:1]}, one for each landmark; got {weight.shape}"
        )
    return weight.astype(like.dtype)


def best_rotation(cross: Float[Array, "dims dims"], reflection: bool) -> Float[Array, "dims dims"]:
    """The rotation R with the largest tr(Rᵀ C).

    Args:
        cross: C, the sum of wₖ yₖ xₖᵀ over the landmarks of two centred configurations.
        reflection: Whether R may be a reflection.

    Returns:
        R, for which R xₖ is closest to yₖ; its gradient is finite, and exact where R is unique.

    References:
        Umeyama (1991), Least-squares estimation of transformation parameters between two point
        patterns, Eqs. 39 to 43.
    """
    if cross.shape[0] != 2:
        return _polar(cross, reflection)
    # In the plane a rotation is a complex number of modulus 1, and needs no decomposition.
    (a, b), (c, d) = cross
    cosine, sine, gain = _direction(a + d, c - b)
    rotation = jnp.stack([cosine, -sine, sine, cosine]).reshape(2, 2)
    if not reflection:
        return rotation
    cosine, sine, mirrored_gain = _direction(a - d, b + c)
    mirrored = jnp.stack([cosine, sine, sine, -cosine]).reshape(2, 2)
    return jnp.where(mirrored_gain > gain, mirrored, rotation)


def _direction(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """(x, y) / |(x, y)| and the norm; (1, 0) and 0 at the origin, with gradient 0."""
    # Scaled first: products of four coordinates leave the range of float32 early. The direction
    # does not depend on the scale, so that its gradient needs none of it.
    largest = jax.lax.stop_gradient(jnp.maximum(jnp.abs(x), jnp.abs(y)))
    # NaN is not at the origin, and has to come out again.
    at_origin = largest == 0.0
    scale = jnp.where(at_origin, 1.0, largest)
    x, y = jnp.where(at_origin, 1.0, x / scale), jnp.where(at_origin, 0.0, y / scale)
    norm = jnp.sqrt(x**2 + y**2)
    return x / norm, y / norm, jnp.where(at_origin, 0.0, norm * scale)


def _signed_values(
    cross: Float[Array, "dims dims"], reflection: bool
) -> tuple[Float[Array, "dims dims"], Float[Array, " dims"], Float[Array, "dims dims"]]:
    """The best rotation R, and C = R Vᵀ diag(values) V as values and V."""
    left, values, right = jnp.linalg.svd(cross)
    if not reflection:
        mirrored = jnp.linalg.det(product(left, right)) < 0.0
        signs = jnp.ones_like(values).at[-1].set(jnp.where(mirrored, -1.0, 1.0))
        left, values = left * signs[None], values * signs
    return product(left, right), values, right


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _polar(cross: Float[Array, "dims dims"], reflection: bool) -> Float[Array, "dims dims"]:
    """The orthogonal factor of C, made a rotation where reflections are not allowed."""
    return _signed_values(cross, reflection)[0]


@_polar.defjvp
def _polar_jvp(
    reflection: bool,
    primals: tuple[Float[Array, "dims dims"]],
    tangents: tuple[Float[Array, "dims dims"]],
) -> tuple[Float[Array, "dims dims"], Float[Array, "dims dims"]]:
    """The derivative of R alone, from C = R P with P symmetric: Ω P + P Ω = Rᵀ dC - dCᵀ R.

    That of the singular vectors has poles where singular values meet, though R has none there.
    """
    rotation, values, right = _signed_values(primals[0], reflection)
    turned = product(rotation.T, tangents[0])
    skew = product(product(right, turned - turned.T), right.T)
    sums = values[:, None] + values[None, :]
    unique = jnp.abs(sums) > jnp.finfo(values.dtype).eps * values[0]
    spin = jnp.where(unique, skew / jnp.where(unique, sums, 1.0), 0.0)
    return rotation, product(rotation, product(product(right.T, spin), right))
