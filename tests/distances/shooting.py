"""The Fisher–Rao distance by shooting: Eqs. 8 and 9 integrated with diffrax, an independent check.

The unknown is the velocity at N(0, I), to which the first Gaussian is moved. The covariance is
carried as its Cholesky factor, and so stays positive definite.
"""

from functools import partial

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares


def _field(t, state, args):
    """Rates of μ, of L with Σ = LLᵀ, of μ̇ (Eq. 8) and of Σ̇ (Eq. 9)."""
    _, factor, mean_rate, covariance_rate = state
    solve = partial(jax.scipy.linalg.solve_triangular, factor, lower=True)
    white = solve(solve(covariance_rate).T)
    factor_rate = factor @ (jnp.tril(white, -1) + 0.5 * jnp.diag(jnp.diagonal(white)))
    precise_rate = jax.scipy.linalg.cho_solve((factor, True), covariance_rate)
    mean_bend = precise_rate.T @ mean_rate
    covariance_bend = covariance_rate @ precise_rate - jnp.outer(mean_rate, mean_rate)
    return mean_rate, factor_rate, mean_bend, covariance_bend


def _unpack(velocity, dims):
    rows, columns = np.triu_indices(dims)
    half = jnp.zeros((dims, dims)).at[rows, columns].set(velocity[dims:])
    return velocity[:dims], half + jnp.triu(half, 1).T


def _shoot(velocity, dims):
    mean_rate, covariance_rate = _unpack(velocity, dims)
    start = (jnp.zeros(dims), jnp.eye(dims), mean_rate, covariance_rate)
    end = diffrax.diffeqsolve(
        diffrax.ODETerm(_field),
        diffrax.Dopri8(),
        0.0,
        1.0,
        0.01,
        start,
        stepsize_controller=diffrax.PIDController(rtol=1e-11, atol=1e-12),
        max_steps=2000,
        adjoint=diffrax.ForwardMode(),
    ).ys
    return jnp.concatenate([end[0][0], (end[1][0] @ end[1][0].T)[np.triu_indices(dims)]])


_jacobian = jax.jit(jax.jacfwd(_shoot), static_argnums=1)
_shoot = jax.jit(_shoot, static_argnums=1)


def shooting_distance(p, q, steps=2):
    """The distance of two Gaussians, reached through `steps` targets ever further away."""
    factor = np.linalg.cholesky(np.asarray(p.covariance))
    inverse = np.linalg.inv(factor)
    mean = inverse @ np.asarray(q.mean - p.mean)
    covariance = inverse @ np.asarray(q.covariance) @ inverse.T
    dims = len(mean)
    corner = np.triu_indices(dims)
    velocity = np.zeros(dims + len(corner[0]))
    for share in np.linspace(0.0, 1.0, steps + 1)[1:]:
        between = (1 - share) * np.eye(dims) + share * covariance
        target = np.concatenate([share * mean, between[corner]])
        result = least_squares(
            lambda v, target=target: np.asarray(_shoot(v, dims)) - target,
            velocity,
            jac=lambda v: np.asarray(_jacobian(v, dims)),
            xtol=1e-14,
            ftol=1e-14,
            gtol=1e-14,
        )
        velocity = result.x
    assert np.abs(result.fun).max() < 1e-7, "the shot misses"
    mean_rate, covariance_rate = (np.asarray(x) for x in _unpack(velocity, dims))
    return float(np.sqrt(mean_rate @ mean_rate + 0.5 * np.sum(covariance_rate**2)))
