"""The squared Fisher–Rao distance in any dimension, by the logarithm of one matrix.

With p moved to N(0, I), q = N(μ, Σ) is lifted to G = F Fᵀ, F = M diag(C⁻ᵀ, 1, C), C Cᵀ = Σ and

    M = [[I, 0, 0], [μᵀ, 1, 0], [-μμᵀ/2 + W, -μ, I]],

in the group SO(d+1, d) that preserves P = [[0, 0, I], [0, 1, 0], [I, 0, 0]]. The projection to the
Gaussians is a Riemannian submersion, whose fibre is the antisymmetric W: the squared distance is
the minimum of ¼‖log G‖² over W, at which the upper right block of log G vanishes.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from diffclust._sharding import varying_like
from diffclust.distances.gaussian import Gaussian, whitened_by
from diffclust.linalg import product, symmetric_log1p, whiten
from diffclust.types import Scalar

_STEPS = 12
_FRACTIONS = (1 / 64, 1 / 8, 0.5, 2.0, 8.0)


def squared_spatial(p: Gaussian, q: Gaussian) -> Scalar:
    """The squared distance under the metric of Eq. 6; see `squared_fisher_rao`."""
    _, white, mean = whitened_by(p, q)
    root = jnp.linalg.cholesky(white, symmetrize_input=False)
    return _squared_length(_lift(mean, root))


@jax.custom_jvp
def _squared_length(base: Array) -> Scalar:
    """The minimum of ¼‖log F Fᵀ‖² over W."""
    return _squared_norm(_shear(_twist_to(base), base))


@_squared_length.defjvp
def _squared_length_jvp(primals: tuple, tangents: tuple) -> tuple:
    # The length is minimal over W, so W has no first-order effect on it, but it has one on the
    # slope.
    w = _twist_to(*primals)
    factor = _shear(w, *primals)
    return _squared_norm(factor), _slope(factor, _shear(w, *tangents))


def _lift(mean: Array, root: Array) -> Array:
    """F for W = 0."""
    dims, one = mean.shape[0], jnp.ones((1, 1), dtype=mean.dtype)
    eye = jnp.eye(dims, dtype=mean.dtype)
    inverse = jax.scipy.linalg.solve_triangular(root, eye, lower=True)
    row, column = mean[None, :], mean[:, None]
    zeros = jnp.zeros_like(column)
    return jnp.block(
        [
            [inverse.T, zeros, jnp.zeros_like(eye)],
            [product(row, inverse.T), one, zeros.T],
            [-0.5 * product(column, row, inverse.T), -column, root],
        ]
    )


def _generators(dims: int, dtype: jnp.dtype) -> Array:
    """The matrices whose exponentials change one entry of W."""
    rows, columns = np.triu_indices(dims, 1)
    matrices = np.zeros((len(rows), 2 * dims + 1, 2 * dims + 1))
    for n, (i, j) in enumerate(zip(rows, columns, strict=True)):
        matrices[n, dims + 1 + i, j], matrices[n, dims + 1 + j, i] = 1.0, -1.0
    return jnp.asarray(matrices, dtype=dtype)


def _shear(w: Array, base: Array) -> Array:
    """F for the W with these entries above its diagonal."""
    moves = _generators((base.shape[0] - 1) // 2, base.dtype)
    return base + product(jnp.tensordot(w, moves, axes=1, precision="highest"), base)


def _flip(matrix: Array) -> Array:
    """P A P."""
    dims = (matrix.shape[0] - 1) // 2
    order = np.r_[dims + 1 : 2 * dims + 1, dims, :dims]
    return matrix[order][:, order]


def _logarithm(factor: Array) -> tuple[Array, Array, Array]:
    """Log F Fᵀ, its eigenvalues and its eigenvectors.

    Singular values come in pairs s and 1/s, of which only the large ones are precise; the others
    follow.
    """
    dims = (factor.shape[0] - 1) // 2
    vectors, values, _ = jnp.linalg.svd(factor)
    large = 2.0 * jnp.log(values[:dims])
    half = product(vectors[:, :dims] * large[None, :], vectors[:, :dims].T)
    exponents = jnp.concatenate([large, jnp.zeros_like(large[:1]), -large[::-1]])
    return half - _flip(half), exponents, vectors


@jax.custom_jvp
def _log(factor: Array) -> Array:
    """Log F Fᵀ."""
    return _logarithm(factor)[0]


@_log.defjvp
def _log_jvp(primals: tuple, tangents: tuple) -> tuple:
    # Daleckii and Krein's divided differences, using tangents that move F within the group.
    logarithm, exponents, vectors = _logarithm(*primals)
    rate = product(vectors.T, tangents[0], _flip(primals[0].T), vectors)
    turned = _bernoulli(exponents[:, None] - exponents[None, :]) * rate
    return logarithm, product(vectors, turned + turned.T, vectors.T)


def _slope(factor: Array, tangent: Array) -> Scalar:
    """The derivative of ¼‖log F Fᵀ‖² with respect to F."""
    # F⁻¹ = P Fᵀ P.
    return jnp.trace(product(_log(factor), tangent, _flip(factor.T)))


@jax.custom_jvp
def _squared_norm(factor: Array) -> Scalar:
    """¼‖log F Fᵀ‖²."""
    values = jnp.linalg.svd(factor, compute_uv=False)
    return 2.0 * jnp.sum(jnp.log(values[: (factor.shape[0] - 1) // 2]) ** 2)


@_squared_norm.defjvp
def _squared_norm_jvp(primals: tuple, tangents: tuple) -> tuple:
    return _squared_norm(*primals), _slope(*primals, *tangents)


@jax.custom_jvp
def _twist_to(base: Array) -> Array:
    """The entries of W above its diagonal for the geodesic, by Newton's method."""
    moves = _generators((base.shape[0] - 1) // 2, base.dtype)

    def length(w: Array) -> Scalar:
        return _squared_norm(_shear(w, base))

    def step(_: Array, w: Array) -> Array:
        logarithm, exponents, vectors = _logarithm(_shear(w, base))
        weights = _bernoulli(exponents[:, None] - exponents[None, :])
        turned = jax.vmap(lambda move: product(vectors.T, move, vectors))(moves)
        slope = jnp.einsum("ab,nba->n", logarithm, moves, precision="highest")
        # The second derivative is the sum of a positive semi-definite matrix and an indefinite one.
        definite = jnp.einsum("nab,ab,mab->nm", turned, weights, turned, precision="highest")
        indefinite = jnp.einsum("nba,ab,mab->nm", turned, weights, turned, precision="highest")
        newton = jnp.linalg.solve(definite + indefinite, slope)
        cautious = jnp.linalg.solve(definite, slope)
        # Far from the minimum Newton's step may lead upwards; the best point of all is taken.
        fractions = jnp.asarray(_FRACTIONS, w.dtype)[:, None]
        tried = jnp.concatenate(
            [
                (w - newton)[None],
                w[None],
                w[None] - fractions * newton[None],
                w[None] - fractions * cautious[None],
            ]
        )
        lengths = jax.vmap(length)(tried)
        # Lengths agree up to rounding long before w does; then Newton's step is the precise one.
        slack = 1.0 + 100 * jnp.finfo(w.dtype).eps
        return tried[jnp.where(lengths[0] <= slack * lengths[1], 0, jnp.nanargmin(lengths))]

    start = varying_like(jnp.zeros_like(moves[:, 0, 0]), base)
    return jax.lax.fori_loop(0, _STEPS, step, start)


@_twist_to.defjvp
def _twist_to_jvp(primals: tuple, tangents: tuple) -> tuple:
    (base,), (tangent,) = primals, tangents
    moves = _generators((base.shape[0] - 1) // 2, base.dtype)

    def slope(w: Array, base: Array) -> Array:
        return jnp.einsum("ab,nba->n", _log(_shear(w, base)), moves, precision="highest")

    # The slope stays zero while the base moves.
    w = _twist_to(base)
    moved = jax.jvp(lambda at: slope(w, at), (base,), (tangent,))[1]
    return w, -jnp.linalg.solve(jax.jacfwd(slope)(w, base), moved)


def _bernoulli(gap: Array) -> Array:
    """X / (eˣ - 1), one at zero."""
    small = jnp.abs(gap) < 1e-4
    away = jnp.where(small, 1.0, gap)
    return jnp.where(small, 1.0 - 0.5 * gap, away / jnp.expm1(away))


def squared_same_mean(p: Gaussian, q: Gaussian) -> Scalar:
    """½ Σ ln² λ of the eigenvalues of Σ_p⁻¹Σ_q."""
    factor = jnp.linalg.cholesky(p.covariance, symmetrize_input=False)
    change = whiten(factor, q.covariance - p.covariance)
    return _squared_log_norm(0.5 * (change + change.mT))


@jax.custom_jvp
def _squared_log_norm(change: Array) -> Scalar:
    """½‖log(I + E)‖²."""
    return 0.5 * jnp.sum(jnp.log1p(jnp.linalg.eigvalsh(change, symmetrize_input=False)) ** 2)


@_squared_log_norm.defjvp
def _squared_log_norm_jvp(primals: tuple, tangents: tuple) -> tuple:
    (change,) = primals
    slope = jnp.linalg.solve(
        jnp.eye(len(change), dtype=change.dtype) + change, symmetric_log1p(change)
    )
    return _squared_log_norm(primals[0]), jnp.sum(slope * tangents[0])
