"""One gradient step on some of the samples, which lie on the device or are brought there."""

import equinox as eqx
import jax
from jax.sharding import Mesh
from jaxtyping import Array, Int, PyTree

from diffclust.parallel import replicate, sharded
from diffclust.solvers.base import Batch, Memory
from diffclust.solvers.gradient import GradientEM, GradientState
from diffclust.types import Scalar


@eqx.filter_jit
def sharded_step(
    solver: GradientEM,
    state: GradientState,
    memory: Memory | None,
    batch: Batch,
    index: Int[Array, " batch"],
    rate: Scalar,
    mesh: Mesh | None,
) -> tuple[GradientState, Memory | None]:
    """A step on a batch that was brought to the devices.

    Args:
        solver: The solver.
        state: Its state.
        memory: The memory of all samples, on all devices, or None.
        batch: The batch.
        index: Which samples these are.
        rate: The learning rate.
        mesh: Devices that share the batch, or None for one.

    Returns:
        The new state and memory.
    """
    past = jax.tree.map(lambda leaf: leaf[index], memory)
    state, present = sharded(solver.step, mesh)(state, batch, past, rate)
    # All devices have the memory of all samples, tens of bytes each: any may be asked next.
    present = replicate(present, mesh)
    return state, jax.tree.map(lambda old, new: old.at[index].set(new), memory, present)


def resident_step(
    solver: GradientEM,
    state: GradientState,
    memory: Memory | None,
    data: Batch,
    index: Int[Array, " batch"],
    rate: Scalar,
) -> tuple[GradientState, Memory | None]:
    """A step on some of the samples, all of which are on the device.

    Args:
        solver: The solver.
        state: Its state.
        memory: The memory of all samples, or None.
        data: All samples.
        index: Which of them make the batch.
        rate: The learning rate.

    Returns:
        The new state and memory.
    """
    # Apart, so that the program that takes long to compile serves any number of samples.
    batch, past = rows_of((data, memory), index)
    state, present = _step(solver, state, batch, past, rate)
    return state, None if memory is None else _with_rows(memory, index, present)


@eqx.filter_jit
def _step(
    solver: GradientEM, state: GradientState, batch: Batch, past: Memory | None, rate: Scalar
) -> tuple[GradientState, Memory | None]:
    return solver.step(state, batch, past, rate)


@eqx.filter_jit
def rows_of(tree: PyTree, index: Int[Array, " m"]) -> PyTree:
    """Some rows of arrays on the device.

    Args:
        tree: Arrays with a common leading axis.
        index: Which rows.

    Returns:
        Arrays of these rows.
    """
    return jax.tree.map(lambda leaf: leaf[index], tree)


@eqx.filter_jit
def _with_rows(tree: PyTree, index: Int[Array, " m"], rows: PyTree) -> PyTree:
    return jax.tree.map(lambda old, new: old.at[index].set(new), tree, rows)
