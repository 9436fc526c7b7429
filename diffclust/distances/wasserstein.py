"""The 2-Wasserstein distance of Gaussians: how far mass must move, in the units of the means.

Each function takes one pair, both `Gaussian` or both `DiagonalGaussian`; gradients are zero if the
two agree. Covariances are not checked here: `check_gaussians` of `diffclust.distances` does so, and
gives the index of one that is not positive definite.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array

from diffclust.distances.gaussian import (
    AnyGaussian,
    DiagonalGaussian,
    Gaussian,
    dims_of,
    require_same_shapes,
    symmetrised,
)
from diffclust.linalg import product, safe_norm, safe_sqrt, symmetric_sqrt
from diffclust.types import Scalar


def squared_wasserstein(p: AnyGaussian, q: AnyGaussian) -> Scalar:
    """|μ - μ'|² + tr Σ + tr Σ' - 2 tr √(Σ^½ Σ' Σ^½), without the cancellation of its terms.

    It is invariant under a rigid motion of both. In two dimensions and for diagonal covariances all
    derivatives are right; otherwise the first are, and the second if eigenvalues differ.

    Args:
        p: A Gaussian with positive definite covariance: the gradient is NaN at a singular one in
            three or more dimensions.
        q: Another of the same class and shape, also positive definite.

    Returns:
        The squared distance, in squared units of the means.

    Raises:
        ValueError: If the two shapes do not match.
        TypeError: If one covariance is diagonal by class and the other is not.

    References:
        Shape K-means, Eq. 10, whose first term is printed without its square; Olkin and Pukelsheim,
        The distance between two random vectors with given dispersion matrices (1982).
    """
    return jnp.sum((p.mean - q.mean) ** 2) + _squared_bures(p, q)


def wasserstein(p: AnyGaussian, q: AnyGaussian) -> Scalar:
    """The 2-Wasserstein distance; |μ - μ'| if the covariances agree.

    Args:
        p: A Gaussian with positive definite covariance: the gradient is NaN at a singular one in
            three or more dimensions.
        q: Another of the same class and shape, also positive definite.

    Returns:
        The distance, in units of the means.

    Raises:
        ValueError: If the two shapes do not match.
        TypeError: If one covariance is diagonal by class and the other is not.
    """
    return safe_sqrt(squared_wasserstein(p, q))


def printed_wasserstein(p: AnyGaussian, q: AnyGaussian) -> Scalar:
    """Eq. 10 as printed: |μ - μ'|, not squared, plus the squared distance of the covariances.

    It adds a length to a squared length, so it depends on the unit, and it violates the triangle
    inequality. It agrees with `wasserstein` if the covariances agree. It is kept for comparison
    with the paper's numbers.

    Args:
        p: A Gaussian.
        q: Another of the same class and shape.

    Returns:
        The paper's d_W.

    Raises:
        ValueError: If the two shapes do not match.
        TypeError: If one covariance is diagonal by class and the other is not.

    References:
        Shape K-means, Eq. 10.
    """
    return safe_norm(p.mean - q.mean) + _squared_bures(p, q)


def _squared_bures(p: AnyGaussian, q: AnyGaussian) -> Scalar:
    """The squared distance of the covariances."""
    if isinstance(p, DiagonalGaussian) and isinstance(q, DiagonalGaussian):
        require_same_shapes(p, q)
        return jnp.sum((safe_sqrt(p.variance) - safe_sqrt(q.variance)) ** 2)
    if isinstance(p, Gaussian) and isinstance(q, Gaussian):
        first, second = symmetrised(p).covariance, symmetrised(q).covariance
        return (_planar_bures if dims_of(p, q) == 2 else _bures)(first, second)
    raise TypeError(
        "a Gaussian and a DiagonalGaussian are not compared; make the latter's variances the "
        "diagonal of a covariance"
    )


def _planar_bures(first: Array, second: Array) -> Scalar:
    """[4 (√det - √det')² + 2 |S - S'|²] / (tr + tr' + 2 tr √), S a covariance minus its mean trace.

    From tr √A = √(tr A + 2 √det A) for 2 × 2 matrices: only differences of the inputs cancel.
    """
    # Products of variances stay within single precision at any scale.
    size = jax.lax.stop_gradient(jnp.trace(first) + jnp.trace(second))
    unit = jnp.where(size > 0, jnp.exp2(jnp.round(jnp.log2(jnp.where(size > 0, size, 1.0)))), 1.0)
    (a, b), (_, c) = first / unit
    (d, e), (_, f) = second / unit
    root, other = safe_sqrt(a * c - b**2), safe_sqrt(d * f - e**2)
    moved = (a - d) * (c + f) + (a + d) * (c - f) - 2.0 * (b - e) * (b + e)
    positive = root + other > 0
    # Half the difference of determinants over the mean of roots: exact if they agree.
    shift = jnp.where(positive, 0.5 * moved / jnp.where(positive, root + other, 1.0), 0.0)
    lean = (a - c) - (d - f)
    cross = a * d + 2.0 * b * e + c * f + 2.0 * root * other
    total = a + c + d + f + 2.0 * safe_sqrt(cross)
    numerator = 4.0 * shift**2 + lean**2 + 4.0 * (b - e) ** 2
    return unit * (numerator / jnp.where(total > 0, total, 1.0))


@jax.custom_jvp
def _bures(first: Array, second: Array) -> Scalar:
    """‖Σ^½ - Σ'^½ U‖² for the rotation U that minimises it."""
    root, other = symmetric_sqrt(first), symmetric_sqrt(second)
    left, _, right = jnp.linalg.svd(product(other, root))
    squared = jnp.sum((root - product(other, left, right)) ** 2)
    # Exactly zero, as the distance is the root and would turn rounding into a value and a gradient.
    return jnp.where(jnp.all(first == second), 0.0, squared)


@_bures.defjvp
def _bures_jvp(primals: tuple, tangents: tuple) -> tuple:
    first, second = primals
    rates = [
        jnp.trace(tangent - product(transport(a, b), tangent))
        for a, b, tangent in ((first, second, tangents[0]), (second, first, tangents[1]))
    ]
    return _bures(first, second), rates[0] + rates[1]


def transport(first: Array, second: Array) -> Array:
    """The symmetric T with T Σ T = Σ': the linear part of the optimal transport map.

    Args:
        first: Σ, of shape (dims, dims), positive definite.
        second: Σ', of the same shape.

    Returns:
        T, of shape (dims, dims).

    References:
        Olkin and Pukelsheim (1982).
    """
    factor = jnp.linalg.cholesky(first, symmetrize_input=False)
    middle = symmetric_sqrt(product(factor.T, second, factor))
    solve = partial(jax.scipy.linalg.solve_triangular, factor, lower=True, trans=1)
    return solve(solve(middle).T).T
