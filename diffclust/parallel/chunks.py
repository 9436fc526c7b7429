"""Samples cut into equal chunks, so that memory is bounded and nothing compiles twice."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Num, PyTree

from diffclust.image_source import ImageSource
from diffclust.parallel.exported import exported_jit
from diffclust.parallel.in_flight import thread_settings
from diffclust.parallel.mesh import (
    Distributed,
    jitted_map_rows,
    own_mesh,
    own_size,
    pad_rows,
    ready_on_cpu,
    shard_rows,
    sharded,
    vmap_rows,
)
from diffclust.parallel.processes import (
    allgather_rows,
    num_processes,
    own_rows,
    own_share,
    row_counts,
    take_rows,
)

_CPU_BUDGET = 48 * 2**20
_DEVICE_BUDGET = 2 * 2**30
_SMALL_CHUNK = 4096


def samples_within(
    each: int, *, cpu: int = _CPU_BUDGET, device: int = _DEVICE_BUDGET, most: int = 65536
) -> int:
    """The number of samples within a budget of memory, or of other work.

    Args:
        each: What one sample takes, in the unit of the budgets.
        cpu: The budget of a CPU; 48 MiB by default, which its cache holds.
        device: The budget of any other device.
        most: The largest answer.

    Returns:
        At least 16.
    """
    budget = cpu if jax.default_backend() == "cpu" else device
    return max(16, min(most, budget // each))


def default_chunk_size(
    sample: PyTree, num_samples: int, copies: int, *, streamed: bool = False
) -> int:
    """A chunk whose working memory fits the cache of a CPU, or a share of a device's memory.

    Args:
        sample: One sample, for its shape only.
        num_samples: Number of samples there are.
        copies: Arrays of a sample's size that are alive in a step, for each sample.
        streamed: Whether samples are read chunk by chunk, and a few chunks are all there is in
            memory.

    Returns:
        A multiple of 16, at most 65,536, such that the last chunk is nearly full. Of at most 4,096
        it is one of few numbers: where data sets are small and differ a little in size, compiling
        anew would take longer than an eighth more samples.
    """
    pixels = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(sample))
    most = samples_within(max(1, pixels * 4 * copies))
    if streamed:
        most = min(most, largest_read(pixels))
    chunks = -(-num_samples // most)
    size = 16 * -(-num_samples // (16 * chunks))
    if size > _SMALL_CHUNK:
        return size
    # Eight steps to the next power of two.
    step = max(16, 2 ** ((size - 1).bit_length() - 4))
    return max(size, min(step * -(-size // step), most - most % 16))


def limited_chunk_size(chunk_size: int, num_samples: int) -> int:
    """A chunk size without more padding than samples.

    Args:
        chunk_size: What was asked for.
        num_samples: Number of samples there are.

    Returns:
        `chunk_size`, but at most the least power of two that is neither below `num_samples` nor
        below 16.
    """
    return min(chunk_size, max(16, 1 << (num_samples - 1).bit_length()))


def largest_read(pixels: int) -> int:
    """Samples that are read at once at most, where all of them are larger than memory.

    Args:
        pixels: Numbers that a sample is made of.

    Returns:
        At least 16.
    """
    return samples_within(12 * max(1, pixels))


class Batch(eqx.Module):
    """Samples and their weights; a weight of zero marks padding.

    Attributes:
        samples: A tree with a leading axis.
        weight: Weights of the samples; a compiled fit takes counts, too.
    """

    samples: PyTree
    weight: Num[Array, " n"]

    def __check_init__(self):
        """Refuses weights that would only broadcast."""
        sizes = {leaf.shape[:1] for leaf in jax.tree.leaves(self.samples)}
        if sizes - {self.weight.shape}:
            [size] = min(sizes - {self.weight.shape})
            raise ValueError(f"{size} samples have {size} weights, not {self.weight.shape}")


@dataclasses.dataclass(frozen=True, eq=False)
class StreamedBatches:
    """The chunks of samples that are read again in every pass; two or three of them are alive.

    Attributes:
        samples: What can be indexed by slices and by arrays along a common leading axis.
        weights: Weights of the samples, and zeros up to a whole number of chunks.
        size: Samples a chunk.
        normalise: Applied to each sample, or None.
        mesh: Devices that share every chunk, or None for one.
    """

    samples: PyTree
    weights: Float[np.ndarray, " padded"]
    size: int
    normalise: Callable[[PyTree], PyTree] | None
    mesh: Mesh | None

    def __len__(self) -> int:
        """The number of chunks."""
        return len(self.weights) // self.size

    def __getitem__(self, index: int) -> Batch:
        """Reads a chunk.

        Args:
            index: Number of the chunk.

        Returns:
            The batch.
        """
        number = range(len(self))[index]
        return self._batch(number, self._rows(number))

    def __iter__(self) -> Iterator[Batch]:
        """Reads all chunks in turn, each while the one before is worked on.

        Yields:
            The next chunk.
        """
        settings = thread_settings()

        def read(number: int) -> PyTree:
            with settings():
                return self._rows(number)

        with ThreadPoolExecutor(1, "read-ahead") as reader:
            ahead = reader.submit(read, 0)
            for number in range(len(self)):
                rows = ahead.result()
                if number + 1 < len(self):
                    ahead = reader.submit(read, number + 1)
                batch = self._batch(number, rows)
                del rows
                yield batch
                del batch

    def gather(self, index: Int[np.ndarray, " m"]) -> PyTree:
        """Samples in the order of their indices, as they are in the chunks.

        Args:
            index: Indices of samples.

        Returns:
            The samples as host arrays with a leading axis.
        """

        def host(part: np.ndarray) -> PyTree:
            # Padded to a whole chunk, for which everything is compiled already.
            rows = self._read(part if len(part) else np.zeros(1, int))
            # It concerns this process, which must not wait for the others.
            weight = np.zeros(self.size, self.weights.dtype)
            batch = self._placed(rows, weight, own_mesh(self.mesh))
            return jax.tree.map(lambda leaf: np.array(leaf)[: len(part)], batch.samples)

        starts = range(0, max(1, len(index)), self.size)
        parts = [host(index[start : start + self.size]) for start in starts]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def _rows(self, number: int) -> PyTree:
        start = number * self.size
        # Another process may have samples for more chunks: where none are left here, any will do.
        start = start if start < len(jax.tree.leaves(self.samples)[0]) else 0
        return self._read(slice(start, start + self.size))

    def _read(self, rows: np.ndarray | slice) -> PyTree:
        part = jax.tree.map(lambda leaf: np.asarray(leaf[rows]), self.samples)
        return pad_rows(part, self.size)

    def _batch(self, number: int, rows: Any) -> Batch:
        weight = self.weights[number * self.size : (number + 1) * self.size]
        return self._placed(rows, weight, self.mesh)

    def _placed(self, rows: PyTree, weight: np.ndarray, mesh: Mesh | None) -> Batch:
        # Outside of compiled programs `jnp.asarray` compiles one for each shape.
        put = partial(jax.device_put, may_alias=False)
        if mesh is not None:
            put = partial(shard_rows, mesh=mesh)
        rows = jax.tree.map(put, rows)
        if self.normalise is not None:
            rows = jitted_map_rows(vmap_rows, self.normalise, rows, mesh)
        return Batch(rows, put(weight))


@dataclasses.dataclass(frozen=True)
class Chunks(Distributed):
    """A data set in equal chunks, the last one padded with samples of weight zero.

    Attributes:
        batches: The chunks.
        weights: Weights of all samples, on the host, zeros for the padding included.
        num_samples: Samples without the padding.
        size: Samples a chunk, of all devices together.
        mesh: Devices that share every chunk, or None for one.
        counts: How many samples each of the processes has that share them; one number for one.
        sample: Shape and dtype of one sample in the chunks, as `jax.ShapeDtypeStruct`s.
    """

    batches: tuple[Batch, ...] | StreamedBatches
    weights: Float[np.ndarray, " padded"]
    num_samples: int
    size: int
    mesh: Mesh | None
    counts: tuple[int, ...]
    sample: PyTree

    @property
    def count(self) -> int:
        """The number of chunks."""
        return self.weights.size // self.size

    @property
    def own_size(self) -> int:
        """Samples a chunk, of the devices of this process."""
        return self.size // num_processes(self.mesh)

    @property
    def dtype(self) -> jnp.dtype:
        """Floating dtype of weights, energies and params."""
        return jnp.dtype(self.weights.dtype)

    def step(
        self, step: Callable, state: PyTree, batch: Batch, memory: PyTree, *others: Any
    ) -> Any:
        """A solver's pure step over one chunk, shared out among the devices.

        Args:
            step: `step(state, batch, memory, *others, axis_name) -> state, memory`.
            state: The state.
            batch: The chunk.
            memory: What is remembered of its samples.
            *others: Further arguments, the same on all devices.

        Returns:
            The new state and memory.
        """
        return ready_on_cpu(
            step_on_devices(step, state, batch, memory, others, self.mesh), self.mesh
        )

    def map(self, function: Callable, everywhere: PyTree, rows: PyTree) -> Any:
        """A function of the rows of one chunk, each device its own.

        Args:
            function: `function(everywhere, rows) -> rows`.
            everywhere: What is the same on all devices.
            rows: Trees with a leading axis of as many rows as a chunk has.

        Returns:
            What it gives, on the devices.
        """
        return ready_on_cpu(jitted_map_rows(function, everywhere, rows, self.mesh), self.mesh)

    def collect(
        self, memory: Sequence[PyTree], part: Callable[[Any], PyTree] = lambda past: past
    ) -> Any:
        """The memory of all samples, on the host, or a part of it; all processes must ask.

        Args:
            memory: Memory of each chunk.
            part: What is wanted of the memory, lest the rest is copied: `lambda m: m.energy[:, 0]`.

        Returns:
            One memory of `num_samples` rows, in the order of the samples; arrays of NumPy's.
        """
        return self.stack(part(self.unshard(past)) for past in memory)

    def stack(self, parts: Iterable[PyTree]) -> Any:
        """Rows of all samples, from those of each chunk; all processes must ask.

        Args:
            parts: Arrays of NumPy's for each chunk, of this process's rows; each is copied before
                the next is asked for.

        Returns:
            Arrays of `num_samples` rows, in the order of the samples.
        """
        own = own_rows(self.counts)
        count, start, whole = own.stop - own.start, 0, None
        for part in parts:
            if whole is None:
                whole = jax.tree.map(lambda x: np.empty((count, *x.shape[1:]), x.dtype), part)
            rows = slice(start, min(start + self.own_size, count))
            jax.tree.map(
                lambda to, x, rows=rows: np.copyto(to[rows], x[: max(0, rows.stop - rows.start)]),
                whole,
                part,
            )
            start += self.own_size
        return self.allgather(whole)

    def rows_of(self, memory: Sequence[PyTree], index: Int[np.ndarray, " m"]) -> Any:
        """The memory of some samples, on the host; all processes must ask.

        Args:
            memory: Memory of each chunk.
            index: Indices into the data set; at least one.

        Returns:
            Their memory, in the order of the indices.
        """
        return take_rows(partial(self._take, memory), np.asarray(index), self.counts, self.mesh)

    def _take(self, chunks: Sequence[PyTree], index: Int[np.ndarray, " m"]) -> PyTree:
        """Rows of this process, on the host, from trees of rows of each chunk."""
        return jax.tree.map(lambda *leaves: self._rows_of(leaves, index), *chunks)

    def _rows_of(self, leaves: tuple[Array, ...], index: Int[np.ndarray, " m"]) -> np.ndarray:
        """Rows of one array, which is in several chunks."""
        chunk, inside = np.divmod(index, self.own_size)
        rows = np.empty((index.size, *leaves[0].shape[1:]), leaves[0].dtype)
        for number in np.unique(chunk):
            here = np.flatnonzero(chunk == number)
            rows[here] = self.unshard(leaves[number])[inside[here]]
        return rows

    def scatter(self, memory: PyTree) -> tuple[PyTree, ...]:
        """The inverse of `collect`: the memory of each chunk.

        Args:
            memory: Memory of `num_samples` rows.

        Returns:
            Memory of each chunk, that of the padding a copy of the first sample's.
        """
        own, size = own_rows(self.counts), self.own_size
        rows = own.start + np.arange(self.count * size)
        rows[own.stop - own.start :] = own.start
        memory = jax.tree.map(np.asarray, memory)
        return tuple(
            self.shard(jax.tree.map(lambda leaf, here=here: jax.device_put(leaf[here]), memory))
            for here in rows.reshape(-1, size)
        )

    def gather(self, index: Int[np.ndarray, " m"]) -> PyTree:
        """Samples in the order of their indices; all processes must ask.

        Done on the host: on the device every new number of samples would be compiled for.

        Args:
            index: Indices into the data set.

        Returns:
            The samples as host arrays with a leading axis.
        """
        index = np.asarray(index)
        if self.is_distributed:
            # There, padding is not at the end.
            index = np.where(index < self.num_samples, index, 0)
        return take_rows(self._gather, index, self.counts, self.mesh)

    def _gather(self, index: Int[np.ndarray, " m"]) -> PyTree:
        if isinstance(self.batches, StreamedBatches):
            return self.batches.gather(index)
        return self._take([batch.samples for batch in self.batches], index)

    def subset(self, index: Int[np.ndarray, " m"], *, size: int) -> "Chunks":
        """Selects some of the samples, and cuts them anew.

        Args:
            index: Indices into the data set; at least one.
            size: Samples a chunk; a few more where devices share it.

        Returns:
            A smaller data set.
        """
        devices = 1 if self.mesh is None else self.mesh.size
        index = np.asarray(index)
        samples, weight = share_out(self.gather, index, self.weights[index], self.mesh)
        return cut(samples, weight, size=-(-size // devices), mesh=self.mesh)


def share_out(
    gather: Callable[[np.ndarray], PyTree], index: np.ndarray, weight: np.ndarray, mesh: Mesh | None
) -> tuple[PyTree, np.ndarray]:
    """This process's share of some samples, as many for each; all processes must ask.

    Args:
        gather: Gives samples of all processes by their indices.
        index: Which samples; at least one.
        weight: Their weights.
        mesh: The devices, or None for one.

    Returns:
        The samples and their weights; where there are more processes than samples, copies that
        weigh nothing in some of them.
    """
    spare = max(0, num_processes(mesh) - index.size)
    index = np.append(index, index[:1].repeat(spare))
    weight = np.append(weight, np.zeros(spare, weight.dtype))
    own = own_share(index.size, mesh)
    return jax.tree.map(lambda leaf: leaf[own], gather(index)), weight[own]


@exported_jit
def step_on_devices(
    step: Callable, state: PyTree, batch: Batch, memory: PyTree, others: tuple, mesh: Mesh | None
) -> Any:
    """A solver's pure step, compiled, on a batch that devices share.

    Args:
        step: `step(state, batch, memory, *others, axis_name) -> state, memory`.
        state: The state.
        batch: The batch.
        memory: What is remembered of its samples.
        others: Further arguments, the same on all devices.
        mesh: The devices, or None for one.

    Returns:
        The new state and memory.
    """
    return sharded(step, mesh)(state, batch, memory, *others)


def _is_identity(function: Callable[[PyTree], PyTree], sample: PyTree) -> bool:
    """Whether a function does nothing: compiled, it would copy, which is not worth the memory."""
    traced = jax.make_jaxpr(function)(sample).jaxpr
    return not traced.eqns and list(traced.outvars) == list(traced.invars)


def sample_struct(samples: PyTree) -> PyTree:
    """Shape and dtype of one of many samples, as JAX holds it.

    Args:
        samples: A tree of arrays with a common leading axis.

    Returns:
        A tree of `jax.ShapeDtypeStruct`s.
    """
    canonical = jax.dtypes.canonicalize_dtype
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], canonical(leaf.dtype)), samples
    )


def chunk_layout(counts: tuple[int, ...], size: int, mesh: Mesh | None) -> Chunks:
    """Chunks without samples, which know where the rows of each sample are.

    Args:
        counts: How many samples each process has.
        size: Samples a chunk, and a device.
        mesh: Devices that share every chunk, or None for one.

    Returns:
        Chunks for `collect`, `scatter` and the like.
    """
    size *= own_size(mesh)
    padded = num_processes(mesh) * size * -(-max(counts) // size)
    weights = np.broadcast_to(np.float32(0), (padded,))
    return Chunks((), weights, sum(counts), num_processes(mesh) * size, mesh, counts, None)


def cut(
    samples: PyTree,
    weight: np.ndarray | None,
    *,
    size: int,
    normalise: Callable[[PyTree], PyTree] | None = None,
    mesh: Mesh | None = None,
) -> Chunks:
    """Cuts samples into chunks.

    Args:
        samples: A tree of arrays with a common leading axis; or an `ImageSource`, of which no more
            than a few chunks are in memory at once. Of several processes, each gives its own.
        weight: Their weights, or None for ones.
        size: Samples a chunk, and a device.
        normalise: Applied to each sample, or None.
        mesh: Devices that share every chunk, or None for one.

    Returns:
        The chunks.
    """
    leaves = jax.tree.leaves(samples)
    count = leaves[0].shape[0]
    dtype = np.dtype(jnp.result_type(*(leaf.dtype for leaf in leaves)))
    layout = chunk_layout(row_counts(count, mesh), size, mesh)
    weights = np.zeros(layout.weights.size, dtype)
    own = np.zeros(weights.size // num_processes(mesh), dtype)
    own[:count] = 1 if weight is None else weight
    sample = sample_struct(samples)
    if normalise is not None and _is_identity(normalise, sample):
        normalise = None
    batches = StreamedBatches(samples, own, layout.own_size, normalise, mesh)
    if not any(isinstance(leaf, ImageSource) for leaf in leaves):
        batches = tuple(batches[number] for number in range(len(batches)))
    weights[: layout.num_samples] = allgather_rows(own[:count], mesh)
    prepared = sample if normalise is None else eqx.filter_eval_shape(normalise, sample)
    return dataclasses.replace(layout, batches=batches, weights=weights, sample=prepared)
