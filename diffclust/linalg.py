"""Functions of symmetric matrices, and square roots, whose gradients stay finite where they meet.

Derivatives of eigenvectors blow up where two eigenvalues agree; those of a smooth function of the
matrix do not. What is here has the derivative of the function.

References:
    Higham, Functions of Matrices (2008), Theorem 3.11 (Daleckii and Krein).
"""

import contextlib
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from diffclust.types import Scalar

Symmetric = Float[Array, "dims dims"]


def product(*factors: Float[Array, "..."]) -> Float[Array, "..."]:
    """A product of matrices in full precision on every device, from left to right.

    Args:
        *factors: Matrices; the last may be a vector.

    Returns:
        Their product.
    """
    return reduce(partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST), factors)


einsum = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
"""Sums of products by Einstein's convention, in full precision on every device."""


def first_minimum(values: Float[Array, " n"]) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """The index of the least value, and the value; of several the first, or the first NaN.

    What `argmin` finds, by plain reductions, which XLA vectorises on the CPU.

    Args:
        values: At least one number.

    Returns:
        The index and the value, NaN where there is one.
    """
    count = values.shape[0]
    index = jnp.arange(count, dtype=jnp.int32)
    least = jnp.min(values)
    first = jnp.min(jnp.where(values <= least, index, count))
    # A reduction may lose a NaN.
    missing = jnp.min(jnp.where(jnp.isnan(values), index, count))
    is_missing = missing < count
    best = jnp.where(is_missing, missing, jnp.minimum(first, count - 1))
    return best, jnp.where(is_missing, jnp.nan, least)


def safe_sqrt(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """√x, with gradient zero, not infinite, where x ≤ 0; the value there is zero. NaN stays.

    Zero is the subgradient of a distance at its minimum, so that a sum of distances can be
    minimised where some of them vanish.

    Args:
        x: Numbers, non-negative up to rounding.

    Returns:
        Their square roots.
    """
    positive = x > 0
    missing = jnp.where(jnp.isnan(x), x, jnp.zeros_like(x))
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), missing)


def safe_norm(x: Float[Array, "..."]) -> Scalar:
    """The Euclidean norm of all entries, with gradient zero at the origin.

    Args:
        x: Any array; its squares must not overflow.

    Returns:
        The norm.
    """
    return safe_sqrt(jnp.sum(x**2))


@jax.custom_jvp
def symmetric_eigen(matrix: Symmetric) -> tuple[Float[Array, " dims"], Symmetric]:
    """Eigenvalues, ascending, and eigenvectors in columns.

    Between eigenvectors whose eigenvalues agree to rounding the derivative is left out, as any
    basis of their plane is as good: right for whatever does not depend on that basis.

    Args:
        matrix: A symmetric matrix.

    Returns:
        Eigenvalues and eigenvectors.
    """
    values, vectors = jnp.linalg.eigh(matrix, symmetrize_input=False)
    return values, vectors


@symmetric_eigen.defjvp
def _symmetric_eigen_jvp(primals: tuple, tangents: tuple) -> tuple:
    values, vectors = symmetric_eigen(*primals)
    turned = product(vectors.T, tangents[0], vectors)
    gaps = values[None, :] - values[:, None]
    largest = jnp.max(jnp.abs(values))
    apart = jnp.abs(gaps) > 8 * jnp.finfo(values.dtype).eps * largest
    rates = jnp.where(apart, 1.0 / jnp.where(apart, gaps, 1.0), 0.0)
    return (values, vectors), (jnp.diagonal(turned), product(vectors, rates * turned))


@jax.custom_jvp
def symmetric_sqrt(matrix: Symmetric) -> Symmetric:
    """The symmetric square root; eigenvalues below zero count as zero.

    Args:
        matrix: A symmetric, positive semi-definite matrix. Differentiable, any number of times,
            where it has at most one vanishing eigenvalue; elsewhere the infinite part of the
            derivative is left out.

    Returns:
        The positive semi-definite S with S² = matrix.
    """
    values, vectors = symmetric_eigen(matrix)
    return product(vectors * safe_sqrt(values)[None, :], vectors.T)


@symmetric_sqrt.defjvp
def _symmetric_sqrt_jvp(primals: tuple, tangents: tuple) -> tuple:
    root = symmetric_sqrt(*primals)
    return root, lyapunov(root, tangents[0])


def lyapunov(matrix: Symmetric, right: Float[Array, "dims dims"]) -> Float[Array, "dims dims"]:
    """Solves MX + XM = right, with all derivatives.

    Args:
        matrix: M, symmetric.
        right: The right side.

    Returns:
        X, zero between eigenvectors whose eigenvalues add up to zero, where nothing determines it.
    """

    def both_sides(x: Array) -> Array:
        return product(matrix, x) + product(x, matrix)

    def solve(_: Callable[[Array], Array], given: Array) -> Array:
        values, vectors = symmetric_eigen(jax.lax.stop_gradient(matrix))
        sums = values[:, None] + values[None, :]
        unique = jnp.abs(sums) > 4 * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values))
        rates = jnp.where(unique, 1.0 / jnp.where(unique, sums, 1.0), 0.0)
        return product(vectors, rates * product(vectors.T, given, vectors), vectors.T)

    return jax.lax.custom_linear_solve(both_sides, right, solve, symmetric=True)


def symmetric_maximum(matrix: Symmetric, bound: Scalar | float) -> Symmetric:
    """The symmetric matrix whose eigenvalues are no less than a bound, nearest to the given one.

    Args:
        matrix: A symmetric matrix.
        bound: The least eigenvalue.

    Returns:
        Its eigenvectors with their eigenvalues, or the bound where they are less.
    """
    least = bound * jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    return least + _positive_part(matrix - least)


@jax.custom_jvp
def _positive_part(matrix: Symmetric) -> Symmetric:
    values, vectors = symmetric_eigen(matrix)
    return product(vectors * jax.nn.relu(values)[None, :], vectors.T)


@_positive_part.defjvp
def _positive_part_jvp(primals: tuple, tangents: tuple) -> tuple:
    values, vectors = symmetric_eigen(*primals)
    # Entry ij is weighed by the slope of the positive part from λᵢ to λⱼ.
    a, b = values[:, None], values[None, :]
    gap, change = a - b, jnp.maximum(a, 0.0) - jnp.maximum(b, 0.0)
    apart = jnp.abs(gap) > 8 * jnp.finfo(a.dtype).eps * jnp.maximum(jnp.abs(a), jnp.abs(b))
    slope = jnp.where(apart, change / jnp.where(apart, gap, 1.0), jnp.where(a > 0, 1.0, 0.0))
    inner = slope * product(vectors.T, tangents[0], vectors)
    result = product(vectors * jax.nn.relu(values)[None, :], vectors.T)
    return result, product(vectors, inner, vectors.T)


@jax.custom_jvp
def symmetric_exp(matrix: Symmetric) -> Symmetric:
    """The exponential of a symmetric matrix, with all its derivatives.

    Args:
        matrix: A symmetric matrix.

    Returns:
        Its exponential, symmetric and positive definite.
    """
    values, vectors = symmetric_eigen(matrix)
    return product(vectors * jnp.exp(values)[None, :], vectors.T)


@symmetric_exp.defjvp
def _symmetric_exp_jvp(primals: tuple, tangents: tuple) -> tuple:
    # Padé approximants need no eigenvectors.
    return symmetric_exp(*primals), jax.jvp(jax.scipy.linalg.expm, primals, tangents)[1]


@jax.custom_jvp
def symmetric_log1p(matrix: Symmetric) -> Symmetric:
    """The logarithm of I + E for a symmetric matrix E, precise where E is small.

    Args:
        matrix: E, whose eigenvalues are greater than -1.

    Returns:
        A symmetric matrix, with all its derivatives.
    """
    values, vectors = symmetric_eigen(matrix)
    return product(vectors * jnp.log1p(values)[None, :], vectors.T)


@symmetric_log1p.defjvp
def _symmetric_log1p_jvp(primals: tuple, tangents: tuple) -> tuple:
    values, vectors = symmetric_eigen(*primals)
    logarithm = symmetric_log1p(*primals)

    def change(rate: Array) -> Array:
        return jax.jvp(jax.scipy.linalg.expm, (logarithm,), (rate,))[1]

    def solve(_: Callable[[Array], Array], moved: Array) -> Array:
        ratio = (values[:, None] - values[None, :]) / (1.0 + values[None, :])
        small = jnp.abs(ratio) < 1e-3
        series = 1.0 - ratio * (0.5 - ratio * (1.0 / 3.0 - 0.25 * ratio))
        safe = jnp.where(small, 1.0, ratio)
        slope = jnp.where(small, series, jnp.log1p(safe) / safe) / (1.0 + values[None, :])
        return product(vectors, slope * product(vectors.T, moved, vectors), vectors.T)

    # What the exponential says of it has all derivatives; divided differences solve it.
    (tangent,) = tangents
    return logarithm, jax.lax.custom_linear_solve(change, tangent, solve, symmetric=True)


def whiten(factor: Symmetric, matrix: Symmetric) -> Symmetric:
    """L⁻¹ S L⁻ᵀ, symmetrised: a covariance S seen where L Lᵀ is the identity.

    Args:
        factor: L, lower triangular and invertible.
        matrix: S, symmetric.

    Returns:
        A symmetric matrix.
    """
    solve = partial(jax.scipy.linalg.solve_triangular, factor, lower=True)
    white = solve(solve(matrix).mT)
    return 0.5 * (white + white.mT)


_ONE_THREAD = 2000
"""Rows of a matrix below which several threads save some hundredths of a second at most."""


def one_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """Has NumPy's and SciPy's linear algebra use one thread, as long as it lasts.

    Threads of OpenBLAS wait for each other in busy loops, which takes long where other programs
    have the cores (`experiments.benchmarks.blas_threads`); on free cores more threads gain little
    below thousands of rows.

    Returns:
        A context manager. Libraries that are first loaded in it are not limited.
    """
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")


def leading_eigenvectors(
    matrix: Float[np.ndarray, "n n"], wanted: int
) -> tuple[Float[np.ndarray, " wanted"], Float[np.ndarray, "n wanted"]]:
    """The largest eigenvalues of a symmetric matrix, and their vectors, on the host.

    Args:
        matrix: The matrix; its lower triangle is read.
        wanted: How many.

    Returns:
        Eigenvalues, descending, and vectors of unit length in columns.
    """
    from scipy.linalg import eigh

    count = len(matrix)
    # Some of many: quicker than all of them, and than Lanczos.
    subset = None if wanted == count else (count - wanted, count - 1)
    with one_blas_thread() if count < _ONE_THREAD else contextlib.nullcontext():
        values, vectors = eigh(matrix, subset_by_index=subset)
    return values[::-1], vectors[:, ::-1]


def flip_signs(vectors: Float[np.ndarray, "n vectors"]) -> Float[np.ndarray, "n vectors"]:
    """Columns with the sign that makes their entry of largest magnitude positive.

    Args:
        vectors: Any matrix, on the host.

    Returns:
        The columns, some of them negated.
    """
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return vectors * np.where(largest < 0, -1.0, 1.0)
