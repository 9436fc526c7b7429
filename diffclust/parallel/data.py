"""Samples, and the devices, processes and chunks that share them.

`Data` is what a fit is given: samples, weights, devices. Its `level`s are the same samples prepared
(coarser, normalised) and cut into equal chunks, so that memory is bounded and nothing compiles
twice.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PyTree

from diffclust.image_source import ImageSource, checksum
from diffclust.parallel.chunks import (
    Batch,
    Chunks,
    chunk_layout,
    cut,
    sample_struct,
    share_out,
    step_on_devices,
)
from diffclust.parallel.mesh import (
    Distributed,
    check_mesh,
    data_mesh,
    own_mesh,
    own_size,
    ready_on_cpu,
    replicate,
    sharded,
)
from diffclust.parallel.processes import (
    allgather_objects,
    own_rows,
    own_share,
    row_counts,
    take_rows,
)


class PerSample(eqx.Module):
    """The part of a fit's state that holds a row for every sample.

    Attributes:
        rows: While a fit goes on, a tuple with the rows of each chunk, on the devices. In a
            snapshot, arrays with the rows of all samples in their order, without padding.
    """

    rows: PyTree


class HostRows(eqx.Module):
    """An array on the host that grows by chunks of rows.

    Attributes:
        parts: The chunks so far; in a snapshot one array.
    """

    parts: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        """Rows so far."""
        return sum(map(len, self.parts))

    @property
    def joined(self) -> np.ndarray:
        """All rows so far as one array."""
        return np.concatenate(self.parts)


def _is_rows(node: Any) -> bool:
    return isinstance(node, PerSample | HostRows)


@dataclasses.dataclass(frozen=True)
class Description:
    """A description of samples that is known without reading them.

    Attributes:
        sample: Shape and dtype of one sample, as `jax.ShapeDtypeStruct`s.
        num_samples: How many samples there are, of all processes.
        largest_share: Samples of one device at most.
        streamed: Whether they are read as they are needed.
        num_devices: How many devices share them, of all processes.
    """

    sample: PyTree
    num_samples: int
    largest_share: int
    streamed: bool
    num_devices: int = 1

    @property
    def dtype(self) -> np.dtype:
        """Floating dtype of weights, energies and params."""
        return np.dtype(jnp.result_type(*(leaf.dtype for leaf in jax.tree.leaves(self.sample))))


@eqx.filter_jit
def _indexed_step(
    step: Callable,
    state: PyTree,
    memory: PyTree,
    batch: Batch,
    index: Array,
    others: tuple,
    mesh: Mesh | None,
) -> Any:
    past = jax.tree.map(lambda leaf: leaf[index], memory)
    state, present = sharded(step, mesh)(state, batch, past, *others)
    # All devices have the memory of all samples, tens of bytes each: any may be asked next.
    present = replicate(present, mesh)
    return state, jax.tree.map(lambda old, new: old.at[index].set(new), memory, present)


@eqx.filter_jit
def rows_of(tree: PyTree, index: Int[Array, " m"]) -> PyTree:
    """Takes some rows of arrays on the device.

    Args:
        tree: Arrays with a common leading axis.
        index: Which rows.

    Returns:
        Arrays of these rows.
    """
    return jax.tree.map(lambda leaf: leaf[index], tree)


@eqx.filter_jit
def with_rows(tree: PyTree, index: Int[Array, " m"], rows: PyTree) -> PyTree:
    """Arrays on the device with some rows replaced.

    Args:
        tree: Arrays with a common leading axis.
        index: Which rows.
        rows: What takes their place.

    Returns:
        The new arrays.
    """
    return jax.tree.map(lambda old, new: old.at[index].set(new), tree, rows)


@dataclasses.dataclass(frozen=True, eq=False)
class Data(Distributed):
    """Samples with their weights, and the devices and processes that share them.

    Attributes:
        samples: A tree of NumPy arrays with a common leading axis, or an `ImageSource`: those of
            this process.
        weight: Their weights, or None for ones.
        chunk_size: Samples a chunk, and a device; None where no chunks are asked for.
        mesh: The devices, or None for one. A mesh of one axis of another name or type is replaced
            by the `data_mesh` of its devices.

    Raises:
        ValueError: If samples cannot be shared out along the mesh; see `check_mesh`.
    """

    samples: PyTree
    weight: np.ndarray | None = None
    chunk_size: int | None = None
    mesh: Mesh | None = None
    _levels: dict[Hashable, tuple[Callable, Chunks]] = dataclasses.field(
        default_factory=dict, init=False
    )

    def __post_init__(self) -> None:
        """Refuses a mesh along which samples cannot be shared out."""
        check_mesh(self.mesh)
        if self.mesh is not None:
            object.__setattr__(self, "mesh", data_mesh(self.mesh))

    @functools.cached_property
    def counts(self) -> tuple[int, ...]:
        """The number of samples of each process."""
        return row_counts(jax.tree.leaves(self.samples)[0].shape[0], self.mesh)

    @property
    def num_samples(self) -> int:
        """The number of samples of all processes."""
        return sum(self.counts)

    @property
    def own(self) -> slice:
        """The indices of this process's samples among all."""
        return own_rows(self.counts)

    @property
    def dtype(self) -> np.dtype:
        """Floating dtype of weights, energies and params."""
        return self.description.dtype

    @property
    def streamed(self) -> bool:
        """Whether samples are read as they are needed."""
        return any(isinstance(leaf, ImageSource) for leaf in jax.tree.leaves(self.samples))

    def checksum(self, rows: PyTree = None) -> int:
        """Computes the CRC-32 of rows of all processes, one after the other; all must ask.

        Args:
            rows: Arrays of this process's rows; None for its samples.

        Returns:
            The checksum, the same however many processes share the rows.
        """
        value = 0
        for leaf in jax.tree.leaves(self.samples if rows is None else rows):
            for number in range(len(self.counts)):
                is_next, own = len(self.counts) == 1 or number == jax.process_index(), 0
                with self.raise_everywhere():
                    own = checksum(leaf, value) if is_next else own
                value = own if len(self.counts) == 1 else allgather_objects(own)[number]
        return value

    @property
    def description(self) -> Description:
        """Describes the samples without reading them."""
        each = -(-max(self.counts) // own_size(self.mesh))
        devices = 1 if self.mesh is None else self.mesh.size
        sample = sample_struct(self.samples)
        return Description(sample, self.num_samples, each, self.streamed, devices)

    @property
    def all_samples(self) -> PyTree:
        """The samples of all processes, on the host of each; all processes must ask."""
        return self.allgather(self.samples)

    @functools.cached_property
    def all_weights(self) -> Float[np.ndarray, " n"]:
        """Weights of the samples of all processes."""
        ones = np.ones(self.own.stop - self.own.start, self.dtype)
        return self.allgather(ones if self.weight is None else self.weight)

    @property
    def num_weighed(self) -> int:
        """How many samples of all processes weigh something; all processes must ask."""
        return len(self._weighed)

    @property
    def _weighed(self) -> Int[np.ndarray, " m"]:
        """The indices of these among the samples of all processes."""
        weight = np.ones(self.own.stop - self.own.start) if self.weight is None else self.weight
        return np.flatnonzero(self.allgather(np.asarray(weight) > 0))

    def evenly_spaced(self, most: int) -> Int[np.ndarray, " m"]:
        """Some samples that stand for all, the same ones however many processes share them.

        Args:
            most: How many of all processes, at most.

        Returns:
            The indices of this process's among its own; all processes must ask.
        """
        own, some = self.own, self._weighed
        chosen = some[np.linspace(0, len(some) - 1, min(len(some), most)).astype(np.int64)]
        return chosen[(chosen >= own.start) & (chosen < own.stop)] - own.start

    def weights_in(self, groups: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Weights of the samples of all processes for the means of groups.

        Args:
            groups: The group of each sample.

        Returns:
            The weights; ones in groups in which no sample weighs anything.
        """
        weight = self.all_weights
        return np.where(np.bincount(groups, weight)[groups] > 0, weight, 1.0)

    @property
    def relative_weights(self) -> Float[np.ndarray, " n"] | None:
        """The weights of all samples divided by their mean; None where all are one."""
        return None if self.weight is None else self.all_weights / self.all_weights.mean()

    def level(self, key: Hashable, prepare: Callable[[PyTree], PyTree]) -> Chunks:
        """The samples, prepared and cut into chunks; kept for each key as last prepared.

        Args:
            key: Names what is prepared, such as how many times coarser the samples become.
            prepare: Applied to each sample.

        Returns:
            The chunks.
        """
        if key not in self._levels or not eqx.tree_equal(self._levels[key][0], prepare):
            assert self.chunk_size is not None
            chunks = cut(
                self.samples, self.weight, size=self.chunk_size, normalise=prepare, mesh=self.mesh
            )
            self._levels[key] = prepare, chunks
        return self._levels[key][1]

    @functools.cached_property
    def resident(self) -> Batch | None:
        """All samples on the one device; None where devices share them or they are streamed."""
        if self.mesh is not None or self.streamed:
            return None
        # Outside of compiled programs `jnp.asarray` compiles one for each shape.
        weight = self.all_weights.astype(self.dtype)
        return Batch(*jax.device_put((self.samples, weight), may_alias=False))

    def take(self, index: Int[np.ndarray, " m"]) -> Batch:
        """Takes some of the samples, shared out among the devices.

        Args:
            index: Which ones; as many for each device, and for each process its own, in the order
                of the processes.

        Returns:
            The batch; a sample of a process with more of them than others weighs more, as it is
            drawn less often.
        """
        index, own, counts = index[own_share(index.size, self.mesh)], self.own, self.counts
        is_even = max(counts) - min(counts) <= 1
        scale = 1.0 if is_even else (own.stop - own.start) * len(counts) / self.num_samples
        return self._batch(self._rows(index - own.start), index, self.shard, scale)

    def _batch(
        self, samples: PyTree, index: np.ndarray, place: Callable, scale: float = 1.0
    ) -> Batch:
        batch = (samples, (scale * self.all_weights[index]).astype(self.dtype))
        return Batch(*(jax.device_put(batch) if self.mesh is None else place(batch)))

    def step(
        self, step: Callable, state: PyTree, memory: PyTree, index: Int[np.ndarray, " m"], *others
    ) -> Any:
        """A solver's pure step on some of the samples.

        Args:
            step: `step(state, batch, memory, *others, axis_name) -> state, memory`.
            state: The state.
            memory: What is remembered of all samples, the same on all devices, or None.
            index: Which samples; of several processes as many for each, in the order of these.
            *others: Further arguments, the same on all devices.

        Returns:
            The new state, and the memory of all samples.
        """
        if self.resident is None:
            places = self.replicate(index)
            given = (step, state, memory, self.take(index), places, others, self.mesh)
            return ready_on_cpu(_indexed_step(*given), self.mesh)
        # Apart, so that the program that takes long to compile serves any number of samples.
        places = jax.device_put(index)
        batch, past = rows_of((self.resident, memory), places)
        state, present = step_on_devices(step, state, batch, past, others, None)
        return state, None if memory is None else with_rows(memory, places, present)

    def some(self, index: Int[np.ndarray, " m"]) -> Batch:
        """Takes some of the samples, all of them on every device.

        Args:
            index: Which ones.

        Returns:
            The batch.
        """
        if self.resident is None:
            return self._batch(self.gather(index), index, self.replicate)
        return rows_of(self.resident, jax.device_put(index))

    def _rows(self, own: np.ndarray) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[own], self.samples)

    def gather(self, index: Int[np.ndarray, " m"]) -> PyTree:
        """Gathers some of the samples of all processes on the host of each; all processes must ask.

        Args:
            index: Which ones.

        Returns:
            Arrays with a leading axis.
        """
        return take_rows(self._rows, index, self.counts, self.mesh)

    def local(self, index: Int[np.ndarray, " m"], chunk_size: int) -> "Data":
        """Takes some of this process's samples, for work that needs no exchange.

        Args:
            index: Which of its own.
            chunk_size: Samples a chunk, and a device.

        Returns:
            Data of this process and its devices alone, without weights.
        """
        return Data(self._rows(index), None, chunk_size, own_mesh(self.mesh))

    def subset(self, index: Int[np.ndarray, " m"], weight: Float[np.ndarray, " m"]) -> "Data":
        """Takes some of the samples, shared out evenly; all processes must ask.

        Args:
            index: Which ones; at least one.
            weight: Their weights.

        Returns:
            Data of as many samples; where there are more processes than samples, of a few copies
            more, which weigh nothing.
        """
        return Data(*share_out(self.gather, index, weight, self.mesh), self.chunk_size, self.mesh)

    def canonical(self, state: PyTree) -> PyTree:
        """A fit's state as a snapshot holds it, which other chunks or devices can go on from.

        Args:
            state: A tree, some nodes of which are `PerSample` or `HostRows`; all processes must
                ask.

        Returns:
            The tree with all rows in the order of the samples.
        """

        def canonical(node: Any) -> Any:
            if isinstance(node, HostRows):
                return HostRows((node.joined,))
            if isinstance(node, PerSample):
                return PerSample(self._layout.collect(node.rows))
            return node

        return jax.tree.map(canonical, state, is_leaf=_is_rows)

    def placed(self, state: PyTree) -> PyTree:
        """The inverse of `canonical`: rows in chunks, and all else on every device.

        Args:
            state: A canonical state.

        Returns:
            The state of a fit that goes on.
        """

        def placed(node: Any) -> Any:
            if isinstance(node, PerSample):
                return PerSample(self._layout.scatter(node.rows))
            return self.replicate(node) if isinstance(node, jax.Array) else node

        return jax.tree.map(placed, state, is_leaf=_is_rows)

    @functools.cached_property
    def _layout(self) -> Chunks:
        """The layout of rows on the devices: all levels are cut alike."""
        assert self.chunk_size is not None
        return chunk_layout(self.counts, self.chunk_size, self.mesh)
