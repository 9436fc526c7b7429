"""Several devices: samples shared out among them, all that is learned the same on each.

Take `shard_batch`, `replicate` and `sharded` to run a solver's pure steps yourself over a mesh; the
models' `fit(..., mesh=data_mesh())` does it for you. Where the devices are those of several
processes (`start_processes`), rows are those that this process has.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from diffclust.parallel import processes
from diffclust.parallel.exported import exported_jit
from diffclust.parallel.processes import num_processes, row_counts, spans

F = TypeVar("F", bound=Callable[..., Any])

AXIS = "data"
"""Name of the axis along which samples are shared out."""

_ROWS, _EVERYWHERE = PartitionSpec(AXIS), PartitionSpec()


def data_mesh(
    devices: Sequence[jax.Device] | Mesh | None = None,  # pyright: ignore[reportInvalidTypeForm]
) -> Mesh:
    """A mesh of devices that share the samples.

    Args:
        devices: Which ones, or another mesh of theirs; all there are, of all processes, where they
            are not given.

    Returns:
        A mesh with the one axis `"data"`, along which XLA finds the shardings by itself; the
        devices of a process beside each other.

    Raises:
        ValueError: If there are none, or one is there twice.
    """
    if isinstance(devices, Mesh):
        devices = [*devices.devices.flat]
    chosen = jax.devices() if devices is None else list(devices)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"devices must be one or more, each of them once; got {chosen}")
    chosen.sort(key=lambda device: device.process_index)
    return Mesh(np.asarray(chosen), (AXIS,), axis_types=(AxisType.Auto,))


def in_own_mesh(method: F) -> F:
    """Leaves a surrounding mesh with explicit axes for that of the argument `mesh`.

    Inside `jax.set_mesh` of such a mesh JAX refuses most operations on arrays that are shared out
    along another one.

    Args:
        method: A method whose `mesh` can be given by its name alone.

    Returns:
        The same method.
    """

    @functools.wraps(method)
    def wrapped(*args: Any, mesh: Mesh | None = None, **kwargs: Any) -> Any:
        check_mesh(mesh)
        is_inside = mesh is not None and jax.sharding.get_abstract_mesh().explicit_axes
        with jax.set_mesh(data_mesh(mesh)) if is_inside else contextlib.nullcontext():
            return method(*args, mesh=mesh, **kwargs)

    return cast(F, wrapped)


def check_mesh(mesh: Mesh | None) -> None:
    """Refuses a mesh along which samples cannot be shared out.

    Args:
        mesh: A mesh, or None for none.

    Raises:
        ValueError: If it has several axes, or is neither of this process's devices nor of as many
            of every process.
    """
    if mesh is None:
        return
    if len(mesh.axis_names) != 1:
        raise ValueError(
            f"mesh must have one axis, along which samples are shared out; got {mesh.axis_names}. "
            "diffclust.parallel.data_mesh(devices) makes one"
        )
    owners = sorted(device.process_index for device in mesh.devices.flat)
    if set(owners) == {jax.process_index()}:
        return
    each = mesh.size // jax.process_count()
    if owners != [number for number in range(jax.process_count()) for _ in range(each)]:
        raise ValueError(
            f"mesh must hold as many devices of each of the {jax.process_count()} processes, or "
            f"this process's alone; got those of processes {owners}. data_mesh() takes all"
        )


def own_size(mesh: Mesh | None) -> int:
    """The number of a mesh's devices that are this process's.

    Args:
        mesh: Devices, or None for one.

    Returns:
        All of them, where there is one process.
    """
    return 1 if mesh is None else mesh.size // num_processes(mesh)


def own_mesh(mesh: Mesh | None) -> Mesh | None:
    """The part of a mesh that is this process's, for work that needs no exchange.

    Args:
        mesh: Devices, or None for one.

    Returns:
        The mesh itself, where there is one process.
    """
    return data_mesh(mesh.local_devices) if mesh is not None and spans(mesh) else mesh


def share(count: int, mesh: Mesh | None) -> int:
    """The number of rows of a device, padding included; to be called by all processes.

    Args:
        count: How many rows this process has: all there are, where it is the only one.
        mesh: Devices that share them, or None for one.

    Returns:
        The most that any has: all have as many.
    """
    return -(-max(row_counts(count, mesh)) // own_size(mesh))


def replicate(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Puts the same arrays on every device.

    Args:
        tree: Any tree; what is no array stays as it is.
        mesh: The devices, or None to change nothing.

    Returns:
        The tree.
    """
    return tree if mesh is None else _placed(tree, mesh, _EVERYWHERE)


def shard_rows(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Rows shared out among devices, in order and evenly.

    Args:
        tree: Arrays with a common leading axis: rows of this process, or arrays that are shared
            out already.
        mesh: The devices, or None to change nothing.

    Returns:
        The tree.

    Raises:
        ValueError: If the devices cannot have as many rows each.
    """
    if mesh is None:
        return tree
    devices = own_size(mesh)
    for leaf in jax.tree.leaves(tree):
        if leaf.shape[0] % devices:
            raise ValueError(
                f"{leaf.shape[0]} rows cannot be shared evenly by {devices} devices; pad them "
                f"to {devices * -(-leaf.shape[0] // devices)}, as shard_batch does"
            )
    return _placed(tree, mesh, _ROWS)


def _placed(tree: PyTree, mesh: Mesh, spec: PartitionSpec) -> PyTree:
    sharding = NamedSharding(mesh, spec)
    arrays, static = eqx.partition(tree, eqx.is_array_like)
    if not spans(mesh):
        return eqx.combine(jax.device_put(arrays, sharding), static)

    def place(leaf: Any) -> jax.Array:
        if isinstance(leaf, Tracer) or _is_placed(leaf):
            return jax.device_put(leaf, sharding)
        if not isinstance(leaf, np.ndarray):
            leaf = np.asarray(jnp.asarray(leaf))
        return jax.make_array_from_process_local_data(sharding, leaf)

    return eqx.combine(jax.tree.map(place, arrays), static)


def _is_placed(leaf: Any) -> bool:
    """Whether several processes have an array already."""
    return isinstance(leaf, jax.Array) and not leaf.is_fully_addressable


def own_part(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """The rows of this process, on the host, of arrays that are shared out.

    Args:
        tree: Arrays that `shard_rows` or a step over the mesh gave.
        mesh: The devices, or None for one.

    Returns:
        Arrays of NumPy's; all rows, where there is one process.
    """
    shared = spans(mesh)
    return jax.tree.map(
        lambda leaf: _own_pieces(leaf) if shared and _is_placed(leaf) else np.asarray(leaf), tree
    )


def _own_pieces(leaf: Any) -> np.ndarray:
    # An array without elements has a sharding like any other, but its rows have no places.
    pieces = sorted(leaf.addressable_shards, key=lambda piece: piece.index[0].start or 0)
    return np.concatenate([np.asarray(piece.data) for piece in pieces])


class Distributed:
    """Placing arrays on the devices that share samples, and the exchange of their processes.

    With one process, or one device, the methods return what they are given.
    """

    mesh: Mesh | None

    @property
    def is_distributed(self) -> bool:
        """Whether several processes share the samples."""
        return spans(self.mesh)

    def replicate(self, tree: PyTree) -> PyTree:
        """Puts the same arrays on every device."""
        return replicate(tree, self.mesh)

    def unreplicate(self, tree: PyTree) -> PyTree:
        """Moves what was the same on every device to the default device alone."""
        return unreplicated(tree, self.mesh)

    def shard(self, rows: PyTree) -> PyTree:
        """Rows of this process shared out among its devices; see `shard_rows`."""
        return shard_rows(rows, self.mesh)

    def unshard(self, rows: PyTree) -> PyTree:
        """The rows of this process, on the host, of arrays that are shared out."""
        return own_part(rows, self.mesh)

    def allgather(self, rows: PyTree) -> PyTree:
        """The rows of all processes, in the order of the samples; all processes must ask."""
        return processes.allgather_rows(rows, self.mesh)

    def broadcast(self, tree: PyTree) -> PyTree:
        """Arrays as process 0 has them; all processes must ask."""
        return processes.broadcast_one_to_all(tree, self.mesh)

    def raise_everywhere(self) -> AbstractContextManager[None]:
        """A block whose error in one process is an error in all."""
        return processes.raise_everywhere(self.mesh)


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
    wanted = own_size(mesh) * share(count, mesh)
    if wanted > count:
        batch = pad_rows(jax.tree.map(np.asarray, batch), wanted)
        batch.weight[count:] = 0
    return shard_rows(batch, mesh)


def pad_rows(tree: PyTree, count: int) -> PyTree:
    """Pads rows with copies of the first: a blank sample would have no gradient.

    Args:
        tree: Arrays of NumPy's with a common leading axis, of at least one row.
        count: How many rows are wanted, no fewer than there are.

    Returns:
        Arrays of so many rows; the same arrays where none are missing.
    """
    return jax.tree.map(lambda rows: _padded(rows, count), tree)


def _padded(rows: np.ndarray, count: int) -> np.ndarray:
    missing = count - len(rows)
    return np.concatenate([rows, np.repeat(rows[:1], missing, axis=0)]) if missing else rows


def unreplicated(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Moves what was the same on every device to the default device alone.

    Args:
        tree: Any tree of arrays.
        mesh: The devices, or None to change nothing.

    Returns:
        The tree.
    """
    return tree if mesh is None else jax.tree.map(lambda leaf: jax.device_put(np.array(leaf)), tree)


def ready_on_cpu(tree: PyTree, mesh: Mesh | None) -> PyTree:
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


def map_rows(function: Callable, mesh: Mesh | None) -> Callable:
    """Runs a function of rows on every device, each on its own rows, without communication.

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


@exported_jit
def jitted_map_rows(
    function: Callable, everywhere: PyTree, rows: PyTree, mesh: Mesh | None
) -> PyTree:
    """A function of rows, compiled, and run by every device on its own.

    Args:
        function: `function(everywhere, rows) -> rows`, one object for every call, as each is
            compiled anew.
        everywhere: What is the same on all devices.
        rows: Rows on the devices, shared out evenly.
        mesh: The devices, or None for one.

    Returns:
        What it gives, on the devices.
    """
    return map_rows(function, mesh)(everywhere, rows)


def vmap_rows(function: Callable[[PyTree], PyTree], rows: PyTree) -> PyTree:
    """A function of one row, of each of them; `jitted_map_rows` maps it.

    Args:
        function: What is applied to one row.
        rows: Arrays with a leading axis.

    Returns:
        One row each.
    """
    return jax.vmap(function)(rows)


def map_in_chunks(function: Callable[..., PyTree], chunk_size: int, *rows: Any) -> Any:
    """Applies a compiled function to each row, chunk by chunk.

    Args:
        function: Of one row of each of the arrays.
        chunk_size: Rows that are on the device at once.
        *rows: Trees of arrays with a common leading axis, or images that are read as they are
            needed.

    Returns:
        Arrays of NumPy's, one row each.
    """
    first = rows[0]
    count = len(first) if hasattr(first, "shape") else len(jax.tree.leaves(first)[0])
    # Padded to few sizes, for each of which it is compiled.
    size = chunk_size if 4 * count >= chunk_size else 1 << (count - 1).bit_length()

    def mapped(start: int) -> PyTree:
        part = jax.tree.map(lambda leaf: np.asarray(leaf[start : start + size]), rows)
        given = jax.device_put(pad_rows(part, size))
        end = min(size, count - start)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[:end], _map_chunk(function, given))

    parts = [mapped(start) for start in range(0, count, size)]
    return jax.tree.map(lambda *part: np.concatenate(part), *parts)


@eqx.filter_jit
def _map_chunk(function: Callable[..., PyTree], rows: tuple[PyTree, ...]) -> PyTree:
    return jax.vmap(function)(*rows)


def map_rows_on_host(function: Callable, everywhere: PyTree, rows: PyTree, mesh: Mesh) -> PyTree:
    """A function of rows, on the host and back, over the devices of this process.

    Args:
        function: `function(everywhere, rows) -> rows`, one object for every call, as each is
            compiled anew.
        everywhere: What is the same on all devices.
        rows: Arrays of NumPy's with a common leading axis, of any length.
        mesh: Devices of this process.

    Returns:
        Arrays of NumPy's with as many rows.
    """
    count = jax.tree.leaves(rows)[0].shape[0]
    placed = shard_rows(pad_rows(rows, count + -count % mesh.size), mesh)
    result = ready_on_cpu(jitted_map_rows(function, everywhere, placed, mesh), mesh)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:count], result)


def _mapped(function: Callable, mesh: Mesh, takes: tuple, gives: PyTree) -> Callable:
    """`function` by every device, its arrays shared out as `takes` and `gives` say."""

    def run(*given: PyTree) -> PyTree:
        # JAX 0.11 ends the process where an array without elements goes in and out again.
        kept, empty = eqx.partition(given, lambda leaf: np.size(leaf) > 0)

        def local(*kept: PyTree) -> PyTree:
            own = (_own_empty(tree, spec, mesh) for tree, spec in zip(empty, takes, strict=True))
            return function(*eqx.combine(kept, tuple(own)))

        # With the check, a gradient by what is on all devices would be summed over them twice.
        mapped = jax.shard_map(local, mesh=mesh, in_specs=takes, out_specs=gives, check_vma=False)
        return mapped(*kept)

    return run


def _own_empty(tree: PyTree, spec: PartitionSpec, mesh: Mesh) -> PyTree:
    """What a device has of arrays without elements."""
    devices = mesh.size if spec == _ROWS else 1

    def own(leaf: Array) -> Array:
        rows, *rest = leaf.shape
        return jnp.zeros((rows // devices, *rest), leaf.dtype)

    return jax.tree.map(own, tree)


def check_batch_size(batch_size: int, mesh: Mesh | None, *, most: int | None = None) -> None:
    """Refuses a batch that devices cannot share evenly.

    Args:
        batch_size: Samples a step.
        mesh: The devices, or None for one.
        most: How many samples there are, where that is known.

    Raises:
        ValueError: With the nearest sizes that would do.
    """
    if mesh is None or batch_size % mesh.size == 0:
        return
    above = mesh.size * math.ceil(batch_size / mesh.size)
    below = above - mesh.size
    sizes = [size for size in (below, above) if 0 < size <= (most or above)]
    remedy = f"set batch_size to {' or '.join(map(str, sizes))}, or give" if sizes else "give"
    raise ValueError(
        f"a batch of {batch_size} cannot be shared evenly by {mesh.size} devices; {remedy} a mesh "
        "of fewer devices"
    )
