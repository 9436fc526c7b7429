"""Adam, and from when it counts steps."""

from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

ADAM = optax.scale_by_adam(eps_root=1e-30)
"""One object for all solvers, so that they share what was compiled.

At a second moment of zero, as for the weights of idle units, the root has no derivative; with
`eps_root` it has, and `eps_root` is far below `eps`.
"""


BiasCorrection = Literal["fit", "array"]


def _by_array(adam: optax.GradientTransformation) -> optax.GradientTransformation:
    """Adam, whose steps are counted for every array from its first gradient that is not zero."""
    inner = jax.tree.structure((0, optax.ScaleByAdamState(0, 0, 0)))

    def init(params: PyTree) -> optax.ScaleByAdamState:
        state = adam.init(params)
        return state._replace(count=jax.tree.map(lambda _: state.count, params))

    def update(
        gradient: PyTree, state: optax.ScaleByAdamState, params: PyTree | None = None
    ) -> tuple[PyTree, optax.ScaleByAdamState]:
        del params

        def one(g: Array, *moments: Array) -> tuple[Array, optax.ScaleByAdamState]:
            moved, now = adam.update(g, optax.ScaleByAdamState(*moments))
            begun = (moments[0] > 0) | jnp.any(g != 0.0)
            return moved, now._replace(count=jnp.where(begun, now.count, 0))

        outer, each = jax.tree.structure(gradient), jax.tree.map(one, gradient, *state)
        return jax.tree.transpose(outer, inner, each)

    return optax.GradientTransformation(init, update)


OPTIMIZERS: dict[str, optax.GradientTransformation] = {"fit": ADAM, "array": _by_array(ADAM)}
