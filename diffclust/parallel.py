"""Several devices: samples shared out among them, all that is learned the same on each.

Take `shard_batch`, `replicate` and `sharded` to run a solver's pure steps yourself over a mesh; the
models' `fit(..., mesh=data_mesh())` does it for you.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

AXIS = "data"
"""Name of the axis along which samples are shared out."""

_ROWS, _EVERYWHERE = PartitionSpec(AXIS), PartitionSpec()


def data_mesh(
    devices: Sequence[jax.Device] | None = None,  # pyright: ignore[reportInvalidTypeForm]
) -> Mesh:
    """Devices in a row, which share the samples.

    Args:
        devices: Which ones; all there are where they are not given.

    Returns:
        A mesh with the one axis `"data"`, along which XLA finds the shardings by itself.

    Raises:
        ValueError: If there are none, or one is there twice.
    """
    chosen = jax.devices() if devices is None else list(devices)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"devices must be one or more, each of them once; got {chosen}")
    return Mesh(np.asarray(chosen), (AXIS,), axis_types=(AxisType.Auto,))


def check_mesh(mesh: Mesh | None) -> None:
    """Refuses a mesh along which samples cannot be shared out.

    Args:
        mesh: A mesh, or None for none.

    Raises:
        ValueError: If it has other axes than `"data"`, or axes that are not automatic.
    """
    if mesh is None:
        return
    if mesh.axis_names != (AXIS,) or mesh.axis_types != (AxisType.Auto,):
        raise ValueError(
            f"mesh must have the one axis {AXIS!r}, of type Auto; got {mesh.axis_names} of types "
            f"{mesh.axis_types}. diffclust.parallel.data_mesh(devices) makes one"
        )


def share(count: int, mesh: Mesh | None) -> int:
    """How many rows a device has, padding included.

    Args:
        count: How many rows there are.
        mesh: Devices that share them, or None for one.

    Returns:
        The most that any has: all have as many.
    """
    return count if mesh is None else -(-count // mesh.size)


def replicate(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """The same arrays on every device.

    Args:
        tree: Any tree; what is no array stays as it is.
        mesh: The devices, or None to change nothing.

    Returns:
        The tree.
    """
    return tree if mesh is None else _placed(tree, NamedSharding(mesh, _EVERYWHERE))


def shard_rows(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Rows shared out among devices, in order and evenly.

    Args:
        tree: Arrays with a common leading axis.
        mesh: The devices, or None to change nothing.

    Returns:
        The tree.

    Raises:
        ValueError: If the devices cannot have as many rows each.
    """
    if mesh is None:
        return tree
    for leaf in jax.tree.leaves(tree):
        if leaf.shape[0] % mesh.size:
            raise ValueError(
                f"{leaf.shape[0]} rows cannot be shared evenly by {mesh.size} devices; pad them "
                f"to {mesh.size * share(leaf.shape[0], mesh)}, as shard_batch does"
            )
    return _placed(tree, NamedSharding(mesh, _ROWS))


def _placed(tree: PyTree, sharding: NamedSharding) -> PyTree:
    arrays, static = eqx.partition(tree, eqx.is_array_like)
    return eqx.combine(jax.device_put(arrays, sharding), static)


def shard_batch(batch: PyTree, mesh: Mesh) -> PyTree:
    """A batch shared out among devices, padded so that each has as many samples.

    The padding is copies of the first sample, of weight zero: a blank one would have no direction
    to descend in. Every sum over samples is weighted, so that it adds exactly nothing.

    Args:
        batch: A `solvers.Batch`, or any such tree of rows with `weight`.
        mesh: The devices.

    Returns:
        The batch; its memory must be made for as many samples as it then has.
    """
    count = jax.tree.leaves(batch)[0].shape[0]
    padding = mesh.size * share(count, mesh) - count
    if padding:

        def pad(leaf: Any) -> np.ndarray:
            part = np.asarray(leaf)
            return np.concatenate([part, np.repeat(part[:1], padding, axis=0)])

        padded: Any = jax.tree.map(pad, batch)
        padded.weight[count:] = 0
        batch = padded
    return shard_rows(batch, mesh)


def gathered(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """What was the same on every device, on the default device alone.

    Args:
        tree: Any tree of arrays.
        mesh: The devices, or None to change nothing.

    Returns:
        The tree.
    """
    return tree if mesh is None else jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), tree)


def settled(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """A step's result, waited for where several steps at once could lock each other out.

    Devices that are parts of one CPU draw on one pool of threads. With many steps queued, those of
    a later one may hold the threads that an earlier one waits for, and XLA ends the process after
    40 seconds. GPUs take turns, and are not waited for.

    Args:
        tree: What a step over the mesh returned.
        mesh: The devices, or None for no waiting.

    Returns:
        The tree.
    """
    if mesh is not None and mesh.devices.flat[0].platform == "cpu":
        jax.block_until_ready(tree)
    return tree


def sharded(step: Callable, mesh: Mesh | None) -> Callable:
    """A solver's pure step, run by every device on its own samples.

    The step adds its sums over the devices itself, in one `psum`, and every device then goes on
    with the same state.

    Args:
        step: `step(state, batch, memory, *others, axis_name, **knobs) -> state, memory`: that of
            `Lloyd` or `GradientEM`, or one of your own.
        mesh: The devices, or None for the step as it is.

    Returns:
        `step(state, batch, memory, *others, **knobs) -> state, memory`, to be jitted. Batch and
        memory have as many rows for each device; state and others are the same on all.
    """
    if mesh is None:
        return step
    # The arrays of a solver may be tracers: they go in as what they are, not in a closure.
    arrays, static = eqx.partition(step, eqx.is_array)

    def run(state: PyTree, batch: PyTree, memory: PyTree, *others: Any, **knobs: Any) -> PyTree:
        def local(arrays: PyTree, state: PyTree, batch: PyTree, memory: PyTree, others: PyTree):
            whole = eqx.combine(arrays, static)
            return whole(state, batch, memory, *others, axis_name=AXIS, **knobs)

        specs = (_EVERYWHERE, _EVERYWHERE, _ROWS, _ROWS, _EVERYWHERE)
        mapped = _mapped(local, mesh, specs, (_EVERYWHERE, _ROWS))
        return mapped(arrays, state, batch, memory, others)

    return run


def rowwise(function: Callable, mesh: Mesh | None) -> Callable:
    """A function of rows, run by every device on its own; the devices do not talk.

    Args:
        function: `function(everywhere, rows) -> rows`.
        mesh: The devices, or None for the function as it is.

    Returns:
        The same function, to be jitted, of arrays that are on all devices and rows that are shared
        out evenly.
    """
    if mesh is None:
        return function

    def run(everywhere: PyTree, rows: PyTree) -> PyTree:
        arrays, static = eqx.partition(everywhere, eqx.is_array)

        def local(arrays: PyTree, rows: PyTree) -> PyTree:
            return function(eqx.combine(arrays, static), rows)

        return _mapped(local, mesh, (_EVERYWHERE, _ROWS), _ROWS)(arrays, rows)

    return run


def _mapped(function: Callable, mesh: Mesh, takes: PyTree, gives: PyTree) -> Callable:
    # With the check, a gradient by what is on all devices would be summed over them twice.
    return jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives, check_vma=False)


def check_batch_size(batch_size: int, mesh: Mesh | None) -> None:
    """Refuses a batch that devices cannot share evenly.

    Args:
        batch_size: Samples a step.
        mesh: The devices, or None for one.

    Raises:
        ValueError: With the nearest sizes that would do.
    """
    if mesh is None or batch_size % mesh.size == 0:
        return
    above = mesh.size * math.ceil(batch_size / mesh.size)
    below = above - mesh.size
    either = f"{below} or {above}" if below else str(above)
    raise ValueError(
        f"a batch of {batch_size} cannot be shared evenly by {mesh.size} devices; set batch_size "
        f"to {either}, or give a mesh of fewer devices"
    )
