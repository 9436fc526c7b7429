"""Arrays whose rows are computed chunk by chunk, several chunks at a time."""

import collections
import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Shaped

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

Chunkwise = Callable[[int], Iterator[Shaped[np.ndarray, "m ..."]]]
"""Yields chunk after chunk of an array's rows, from a given row on."""

_MAX_WORKERS = 32
"""However many cores there are: every worker holds a chunk and what is made of it."""

_THREAD_SETTINGS: Mapping[str, Callable[[Any], contextlib.AbstractContextManager]] = {
    "jax_debug_nans": jax.debug_nans,
    "jax_default_device": jax.default_device,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_enable_x64": jax.enable_x64,
    "jax_numpy_dtype_promotion": jax.numpy_dtype_promotion,
    "jax_numpy_rank_promotion": jax.numpy_rank_promotion,
}
"""What a program may set in a `with` block, and so for one thread alone."""


def all_rows(chunks: Chunkwise) -> Shaped[np.ndarray, "n ..."]:
    """An array from its chunks.

    Args:
        chunks: Yields them.

    Returns:
        All rows.
    """
    return np.concatenate(list(chunks(0)))


def thread_settings() -> Callable[[], contextlib.AbstractContextManager]:
    """The JAX settings of this thread, for another one.

    Returns:
        A function to be called in the other thread, for a `with` block in which they hold.
    """
    values = {name: getattr(jax.config, name) for name in _THREAD_SETTINGS}

    @contextlib.contextmanager
    def settings() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name, value in values.items():
                stack.enter_context(_THREAD_SETTINGS[name](value))
            yield

    return settings


def num_workers(mesh: Mesh | None) -> int:
    """The number of chunks that `in_flight` had best compute at a time.

    Args:
        mesh: The devices that share a chunk, or None for one.

    Returns:
        On one CPU device one more than there are cores to run on, elsewhere 1.
    """
    if mesh is not None or jax.default_backend() != "cpu":
        return 1
    # What this process may use, where the system tells.
    allowed = getattr(os, "sched_getaffinity", None)
    cores = len(allowed(0)) if allowed is not None else os.cpu_count() or 1
    return min(cores + 1, _MAX_WORKERS)


def in_flight(
    compute: Callable[[_Item], _Result], items: Iterable[_Item], *, workers: int
) -> Iterator[_Result]:
    """Applies a function to each item, a few at a time, and yields the results in order.

    A CPU device runs the programs of one thread one after the other, and shares out the large steps
    of a program over the cores, but not the small ones. Several chunks at a time keep all cores
    busy. Other devices are kept busy by one thread that does not wait.

    Args:
        compute: Returns arrays; called from several threads, with the JAX settings of this one.
        items: Its arguments.
        workers: Threads; with 1 there is no other than this one, and the next item is computed
            while what was made of the last is used.

    Yields:
        The results; those of several workers are waited for.
    """
    if workers == 1:
        # Each only after the next one was asked for.
        computed = itertools.chain[Any](map(compute, items), [None])
        for result, _ in itertools.pairwise(computed):
            yield result
        return
    items, settings = iter(items), thread_settings()
    # The first one alone: else every thread would compile the same program.
    for item in itertools.islice(items, 1):
        yield jax.block_until_ready(compute(item))

    def compute_in_thread(item: _Item) -> _Result:
        with settings():
            return jax.block_until_ready(compute(item))

    pool = ThreadPoolExecutor(workers, thread_name_prefix="diffclust")
    waiting: collections.deque[Future[_Result]] = collections.deque()
    try:
        for item in items:
            waiting.append(pool.submit(compute_in_thread, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def chunks_in_flight(
    compute: Callable[[int], _Result],
    starts: range,
    mesh: Mesh | None,
    report: Callable[[int, int], None] | None,
) -> Iterator[tuple[int, _Result]]:
    """Applies a function to each chunk of many rows, a few chunks at a time.

    Args:
        compute: Called with the first row of each chunk, as by `in_flight`.
        starts: The chunks' first rows, up to the number of rows.
        mesh: The devices that share a chunk.
        report: Called after each chunk with the rows done and their number.

    Yields:
        The first row of each chunk, and the result.
    """
    computed = in_flight(compute, starts, workers=num_workers(mesh))
    for start, result in zip(starts, computed, strict=True):
        yield start, result
        if report is not None:
            report(min(start + starts.step, starts.stop), starts.stop)
