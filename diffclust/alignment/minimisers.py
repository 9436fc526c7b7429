"""Minimisers of a function of one flat vector, designed to run in parallel under `vmap`."""

import abc
import contextlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from diffclust._renamed import renamed_keywords
from diffclust._sharding import varying_like
from diffclust.types import Params, Scalar

Function = Callable[[Params], Scalar]
Preconditioner = Float[Array, "params params"] | None
"""An approximate inverse Hessian, or None."""


class AbstractMinimiser(eqx.Module):
    """Runs a fixed number of steps and never returns a worse point than it was given."""

    @abc.abstractmethod
    def minimise(
        self, function: Function, start: Params, preconditioner: Preconditioner, *, steps: int
    ) -> tuple[Params, Scalar]:
        """Minimises a differentiable function.

        Args:
            function: The function to minimise.
            start: Where to start.
            preconditioner: An approximate inverse Hessian, or None.
            steps: Number of evaluations of the function after the first one, each except the last
                with its gradient.

        Returns:
            The best point seen, and the function's value there.
        """


class _State(eqx.Module):
    point: Params
    value: Scalar
    gradient: Params
    moves: Float[Array, "history params"]
    changes: Float[Array, "history params"]
    curvature: Float[Array, " history"]
    length: Scalar


def _two_loops(state: _State, precondition: Callable[[Params], Params]) -> Params:
    """The L-BFGS direction; a zero curvature marks an empty slot in the history."""
    history = state.curvature.shape[0]
    inverse = jnp.where(
        state.curvature > 0, 1.0 / jnp.where(state.curvature > 0, state.curvature, 1.0), 0.0
    )
    direction = state.gradient
    weights = []
    for i in range(history):
        weight = inverse[i] * jnp.dot(state.moves[i], direction)
        direction = direction - weight * state.changes[i]
        weights.append(weight)
    direction = precondition(direction)
    for i in reversed(range(history)):
        weight = inverse[i] * jnp.dot(state.changes[i], direction)
        direction = direction + (weights[i] - weight) * state.moves[i]
    return direction


def _better(point: Params, value: Scalar, best: Params, least: Scalar) -> tuple[Params, Scalar]:
    """The better of the last point and the best one so far; NaN if no value was a number."""
    better = (value < least) | jnp.isinf(least)
    return jnp.where(better, point, best), jnp.where(better, value, least)


class PreconditionedLBFGS(AbstractMinimiser):
    """Limited-memory BFGS around a fixed preconditioner, with one evaluation per step.

    A step that does not decrease the function is rejected and the next one is shorter, so values
    never rise. There is no inner line search: under `vmap` all runs would wait for the slowest.

    Attributes:
        history: Number of past moves that correct the preconditioner.
        shrink: Factor by which a rejection shortens the step.

    References:
        Nocedal and Wright (2006), Numerical optimization, Algorithm 7.4; the preconditioner takes
        the place of inverse compositional Lucas-Kanade's constant Hessian (Baker and Matthews,
        2004).
    """

    history: int = eqx.field(static=True, default=3, kw_only=True)
    shrink: float = eqx.field(static=True, default=0.4, kw_only=True)

    def minimise(
        self, function: Function, start: Params, preconditioner: Preconditioner, *, steps: int
    ) -> tuple[Params, Scalar]:
        if steps == 0 or not start.size:
            return start, function(start)
        evaluate = jax.value_and_grad(function)
        memory = jnp.zeros((self.history, start.shape[0]), dtype=start.dtype)
        unknown, length = (jnp.full((), value, dtype=start.dtype) for value in (jnp.inf, 1.0))
        # The first step stays where it is and is accepted.
        initial = _State(
            start, unknown, jnp.zeros_like(start), memory, memory, memory[:, 0], length
        )

        def precondition(vector: Params) -> Params:
            return vector if preconditioner is None else preconditioner @ vector

        def step(state: _State, _: None) -> tuple[_State, None]:
            move = -state.length * _two_loops(state, precondition)
            value, gradient = evaluate(state.point + move)
            better = value < state.value
            change = gradient - state.gradient
            curvature = jnp.dot(move, change)
            # Below rounding, whatever the function's unit.
            slope = jnp.dot(move, state.gradient)
            useful = better & (curvature > -jnp.finfo(start.dtype).eps * slope)

            def push(history: Array, newest: Array) -> Array:
                return jnp.where(useful, jnp.concatenate([newest[None], history[:-1]]), history)

            return (
                _State(
                    jnp.where(better, state.point + move, state.point),
                    jnp.where(better, value, state.value),
                    jnp.where(better, gradient, state.gradient),
                    push(state.moves, move),
                    push(state.changes, change),
                    push(state.curvature, curvature),
                    jnp.where(
                        better, jnp.minimum(1.0, 2.0 * state.length), self.shrink * state.length
                    ),
                ),
                None,
            )

        before, _ = jax.lax.scan(step, varying_like(initial, start), None, length=steps)
        # Nothing follows the last step, so its gradient is not needed.
        point = before.point - before.length * _two_loops(before, precondition)
        return _better(point, function(point), before.point, before.value)


@renamed_keywords(optimiser="optimizer")
class OptaxMinimiser(AbstractMinimiser):
    """Any optax optimiser; as in the papers: `OptaxMinimiser(optax.adam(1e-2))`.

    Attributes:
        optimizer: A complete optimiser, with its learning rate or line search; it ignores the
            preconditioner.
    """

    optimizer: optax.GradientTransformation = eqx.field(static=True)

    def __check_init__(self):
        """Refuses an optimiser that ascends."""

        def first_update(start: Array) -> Array:
            return self.optimizer.update(start + 1, self.optimizer.init(start), start)[0]

        # A line search lacks its arguments here, but always descends.
        with contextlib.suppress(TypeError), jax.ensure_compile_time_eval():
            with jax.numpy_dtype_promotion("standard"):
                update = jax.jit(first_update)(jnp.zeros((1,)))
            if np.asarray(update)[0] > 0:
                raise ValueError(
                    "the optimizer climbs: its updates, which are added, point along the gradient; "
                    "give a complete optimiser, optax.adam(1e-2), not optax.scale_by_adam()"
                )

    def minimise(
        self, function: Function, start: Params, preconditioner: Preconditioner, *, steps: int
    ) -> tuple[Params, Scalar]:
        # The best point of the path is returned.
        evaluate = jax.value_and_grad(function)
        update = optax.with_extra_args_support(self.optimizer).update

        def step(carry: tuple, _: None) -> tuple[tuple, None]:
            point, state, best, least = carry
            value, gradient = evaluate(point)
            better = value < least  # never for NaN, which `minimum` would keep for good
            best = jnp.where(better, point, best)
            least = jnp.where(better, value, least)
            known = {"value": value, "grad": gradient, "value_fn": function}
            # Optax mixes weak and strong types, which strict promotion would reject.
            with jax.numpy_dtype_promotion("standard"):
                updates, state = update(gradient, state, point, **known)
            return (point + updates, state, best, least), None

        least = jnp.full((), jnp.inf, dtype=start.dtype)
        carry = (start, self.optimizer.init(start), start, least)
        (point, _, best, least), _ = jax.lax.scan(
            step, varying_like(carry, start), None, length=steps
        )
        return _better(point, function(point), best, least)


class OptimistixMinimiser(AbstractMinimiser):
    """Any optimistix minimiser, which must be installed: `OptimistixMinimiser(BFGS(...))`.

    It stops by its own tolerance or after `steps`; under `vmap` all runs wait for the slowest.

    Attributes:
        solver: An `optimistix.AbstractMinimiser`; it ignores the preconditioner.
    """

    solver: Any

    def minimise(
        self, function: Function, start: Params, preconditioner: Preconditioner, *, steps: int
    ) -> tuple[Params, Scalar]:
        # Returns the end point, or the start if that is better.
        import optimistix

        given = (lambda point, _: function(point), self.solver, start)
        with jax.numpy_dtype_promotion("standard"):
            minimiser = optimistix.minimise(*given, max_steps=max(steps, 1), throw=False).value
        return _better(minimiser, function(minimiser), start, function(start))
