"""Several processes: starting them, and their exchange about the samples they share.

Each process reads its own share of the samples: processes have consecutive runs of the source, in
the order of their numbers, and results are in the order of the source. The exchange is JAX's own;
it carries bytes (pickled arrays, between the processes of one job), so that nothing is rounded.
"""

import contextlib
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int, PyTree

from diffclust import _validation as check


class ProcessError(ValueError):
    """An error of another process, which all processes then raise."""


def start_processes(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    timeout: int = 100,
) -> None:
    """Makes this process one of several that fit together; to be called before JAX computes.

    Args:
        coordinator: Host and port on which process 0 can be reached, such as `"10.0.0.1:1234"`;
            None for what the scheduler says (SLURM, Open MPI, Kubernetes, cloud TPUs).
        num_processes: How many processes there are; None likewise.
        process_id: The number of this one, from 0; None likewise.
        timeout: Seconds after which the others end where one is not heard of; also how long they
            wait for each other at the start.

    Raises:
        ValueError: If the numbers do not fit each other, JAX is in use already, or the others
            cannot be found.

    References:
        `jax.distributed.initialize`, which does the work.
    """
    given = (coordinator, num_processes, process_id)
    if given.count(None) not in (0, 3):
        raise ValueError(
            "coordinator, num_processes and process_id go together; give all three or none of them"
        )
    if num_processes is not None:
        check.positive(num_processes, "num_processes")
        if process_id not in range(num_processes):
            raise ValueError(
                f"process_id must be from 0 to {num_processes - 1} of {num_processes} processes; "
                f"got {process_id}"
            )
    check.positive(timeout, "timeout (in seconds)")
    # Read when a CPU is first asked for; GPUs bring their own.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # It would take SIGTERM for itself, and leave the process running.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=timeout,
            shutdown_timeout_seconds=timeout,
        )
        # Devices are found by all processes together: here, lest one waits for another later.
        jax.devices()
    except (RuntimeError, ValueError) as error:
        # JAX's own words name arguments that are not ours.
        if coordinator is None and "should be defined" in str(error):
            raise ValueError(
                "no scheduler that JAX knows has started this process; give coordinator, "
                "num_processes and process_id"
            ) from error
        reason = check.reason_of(error)[:300]
        raise ValueError(f"the processes cannot be started together: {reason}") from error


def num_processes(mesh: Mesh | None) -> int:
    """The number of processes that share a mesh.

    Args:
        mesh: Devices, or None for one.

    Returns:
        One where all devices are this process's.
    """
    return 1 if mesh is None else len({device.process_index for device in mesh.devices.flat})


def spans(mesh: Mesh | None) -> bool:
    """Whether several processes share a mesh, each with its own share of the samples.

    Args:
        mesh: Devices, or None for one.

    Returns:
        False for one process, however many devices it has.
    """
    return num_processes(mesh) > 1


def allgather_bytes(data: bytes) -> list[bytes]:
    """The bytes that every process passes; all must call it.

    Args:
        data: Bytes of this process.

    Returns:
        The bytes of every process, in the order of their numbers.
    """
    from jax.experimental.multihost_utils import process_allgather

    length = np.frombuffer(np.int64(len(data)).tobytes(), np.uint8)
    lengths = [int(row.view(np.int64)[0]) for row in np.asarray(process_allgather(length))]
    # Few different sizes, since each is compiled for, and little that is sent in vain.
    largest = max(*lengths, 64)
    step = 2 ** max(0, largest.bit_length() - 4)
    padded = np.zeros(step * -(-largest // step), np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    rows = np.asarray(process_allgather(padded))
    return [row[:size].tobytes() for row, size in zip(rows, lengths, strict=True)]


def allgather_objects(value: Any) -> list[Any]:
    """The values that every process passes; all must call it.

    Args:
        value: What can be pickled.

    Returns:
        The value of every process, in the order of their numbers.
    """
    return [pickle.loads(part) for part in allgather_bytes(pickle.dumps(value))]


def allgather_rows(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """The rows of all processes, in the order of the source.

    Args:
        tree: Arrays of this process's rows, on the host or a single device.
        mesh: The devices; where one process has them all, nothing is changed.

    Returns:
        Arrays of NumPy's, the same in every process.
    """
    if not spans(mesh):
        return tree
    return jax.tree.map(lambda rows: np.concatenate(allgather_objects(np.asarray(rows))), tree)


def broadcast_one_to_all(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Arrays as process 0 has them: different machines may round differently.

    Args:
        tree: Arrays of the same shapes in every process.
        mesh: The devices; where one process has them all, nothing is changed.

    Returns:
        Arrays of NumPy's, the same in every process.
    """
    if not spans(mesh):
        return tree
    leaves, structure = jax.tree.flatten(tree)
    arrays = [np.asarray(leaf) for leaf in leaves] if jax.process_index() == 0 else []
    return jax.tree.unflatten(structure, allgather_objects(arrays)[0])


def saving_alone() -> Any:
    """Orbax's settings for a process that saves and reads without the others."""
    import orbax.checkpoint as ocp

    if jax.process_count() == 1:
        return ocp.options.MultiprocessingOptions()
    own = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"process{own}"
    )


def row_counts(count: int, mesh: Mesh | None) -> tuple[int, ...]:
    """The number of rows of every process.

    Args:
        count: How many this one has.
        mesh: The devices.

    Returns:
        One number for each process.
    """
    if not spans(mesh):
        return (count,)
    counts = tuple(allgather_objects(count))
    if not all(counts):
        raise ProcessError(
            f"process {counts.index(0)} has no samples; start fewer processes or give more samples"
        )
    return counts


def own_rows(counts: Sequence[int]) -> slice:
    """The rows of all that are this process's.

    Args:
        counts: How many every process has, as `row_counts` tells.

    Returns:
        A run of consecutive rows.
    """
    number = jax.process_index() if len(counts) > 1 else 0
    start = sum(counts[:number])
    return slice(start, start + counts[number])


def own_share(count: int, mesh: Mesh | None) -> slice:
    """The part of some rows, held by all processes, that this one works on.

    Args:
        count: How many rows there are.
        mesh: The devices.

    Returns:
        A run of consecutive rows; all of them where one process has all devices.
    """
    number = num_processes(mesh)
    here = jax.process_index() if number > 1 else 0
    return slice(count * here // number, count * (here + 1) // number)


def take_rows(
    take: Callable[[Int[np.ndarray, " m"]], PyTree],
    index: Int[np.ndarray, " m"],
    counts: Sequence[int],
    mesh: Mesh | None,
) -> PyTree:
    """Gives some of the rows of all processes to every one of them.

    Args:
        take: Gives this process's rows, as arrays of NumPy's, from indices among its own.
        index: Indices among those of all processes.
        counts: How many every process has.
        mesh: The devices.

    Returns:
        The rows, in the order of the indices.
    """
    if not spans(mesh):
        return take(index)
    owner = np.searchsorted(np.cumsum(counts), index, side="right")
    mine = index[owner == jax.process_index()] - own_rows(counts).start
    order = np.argsort(np.argsort(owner, kind="stable"), kind="stable")
    return jax.tree.map(lambda rows: rows[order], allgather_rows(take(mine), mesh))


@contextlib.contextmanager
def raise_everywhere(mesh: Mesh | None) -> Iterator[None]:
    """A block whose error in one process is an error in all, rather than a wait for ever.

    Args:
        mesh: The devices; where one process has them all, nothing is changed.

    Yields:
        Nothing.

    Raises:
        ProcessError: If another process raised something in the block.
    """
    if not spans(mesh):
        yield
        return
    raised: Exception | None = None
    try:
        yield
    except Exception as error:
        raised = error
    messages = allgather_objects("" if raised is None else str(raised) or type(raised).__name__)
    if raised is not None:
        raise raised
    for number, message in enumerate(messages):
        if message:
            raise ProcessError(f"process {number}: {message}")
