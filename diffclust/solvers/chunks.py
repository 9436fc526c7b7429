"""Samples cut into chunks, so that memory is bounded and nothing compiles twice."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PyTree

from diffclust.parallel import rowwise, shard_rows, share
from diffclust.solvers.base import Batch, Memory

_CPU_BUDGET = 48 * 2**20
_DEVICE_BUDGET = 2 * 2**30


def default_chunk_size(sample: PyTree, num_samples: int, copies: int) -> int:
    """A chunk whose working memory fits the cache of a CPU, or a share of a device's memory.

    Args:
        sample: One sample, for its shape only.
        num_samples: Number of samples there are.
        copies: Arrays of a sample's size that are alive in a step, for each sample.

    Returns:
        A multiple of 16, at most 65,536, such that the last chunk is nearly full.
    """
    pixels = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(sample))
    each = max(1, pixels * 4 * copies)
    budget = _CPU_BUDGET if jax.default_backend() == "cpu" else _DEVICE_BUDGET
    most = max(16, min(65536, budget // each))
    chunks = -(-num_samples // most)
    return 16 * -(-num_samples // (16 * chunks))


@dataclasses.dataclass(frozen=True)
class Chunks:
    """A data set in equal chunks, the last one padded with samples of weight zero.

    Attributes:
        batches: The chunks.
        weights: Weights of all samples, on the host, zeros for the padding included.
        num_samples: Samples without the padding.
        size: Samples a chunk, of all devices together.
        mesh: Devices that share every chunk, or None for one.
    """

    batches: Sequence[Batch]
    weights: Float[np.ndarray, " padded"]
    num_samples: int
    size: int
    mesh: Mesh | None = None

    @property
    def count(self) -> int:
        """How many chunks there are."""
        return len(self.batches)

    @property
    def dtype(self) -> jnp.dtype:
        """Floating dtype of weights, energies and params."""
        return jnp.dtype(self.weights.dtype)

    @property
    def blank(self) -> PyTree:
        """A sample of zeros, of the shape and dtype of those in the chunks."""
        samples = self.batches[0].samples
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), samples)

    def collect(self, memory: Sequence[Memory]) -> Memory:
        """The memory of all samples, on the host.

        Args:
            memory: Memory of each chunk.

        Returns:
            One memory of `num_samples` rows, in the order of the samples; arrays of NumPy's.
        """
        count = self.num_samples
        return jax.tree.map(
            lambda *parts: np.concatenate([np.asarray(part) for part in parts])[:count], *memory
        )

    def spread(self, memory: Memory) -> tuple[Memory, ...]:
        """The inverse of `collect`: the memory of each chunk.

        Args:
            memory: Memory of `num_samples` rows.

        Returns:
            Memory of each chunk, that of the padding a copy of the first sample's.
        """
        rows = np.arange(self.count * self.size)
        rows[self.num_samples :] = 0

        def part(number: int) -> Memory:
            here = rows[number * self.size : (number + 1) * self.size]
            return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[here]), memory)

        return tuple(shard_rows(part(number), self.mesh) for number in range(self.count))

    def gather(self, index: Int[np.ndarray, " m"]) -> PyTree:
        """Samples in the order of their indices.

        Done on the host: on the device every new number of samples would be compiled for.

        Args:
            index: Indices into the data set.

        Returns:
            The samples as host arrays with a leading axis.
        """
        index = np.asarray(index)
        first = self.batches[0].samples
        out = jax.tree.map(lambda x: np.empty((index.size, *x.shape[1:]), x.dtype), first)
        chunk = index // self.size
        for number in np.unique(chunk):
            here = np.flatnonzero(chunk == number)
            inside = index[here] % self.size

            def fill(target: np.ndarray, source: Array, here: Any = here, inside: Any = inside):
                target[here] = np.asarray(source)[inside]

            jax.tree.map(fill, out, self.batches[number].samples)
        return out

    def subset(self, index: Int[np.ndarray, " m"], *, size: int) -> "Chunks":
        """Some of the samples, cut anew.

        Args:
            index: Indices into the data set; at least one.
            size: Samples a chunk; a few more where devices share it.

        Returns:
            A smaller data set.
        """
        size = share(size, self.mesh)
        return cut(self.gather(index), self.weights[index], size=size, mesh=self.mesh)


@eqx.filter_jit
def _apply(samples: PyTree, normalise: Callable[[PyTree], PyTree], mesh: Mesh | None) -> PyTree:
    return rowwise(lambda normalise, rows: jax.vmap(normalise)(rows), mesh)(normalise, samples)


def _prepare(samples: PyTree, normalise: Callable[[PyTree], PyTree], mesh: Mesh | None) -> PyTree:
    # A jitted identity copies; a function that does nothing is not worth the memory.
    traced = jax.make_jaxpr(jax.vmap(normalise))(samples).jaxpr
    if not traced.eqns and list(traced.outvars) == list(traced.invars):
        return samples
    return _apply(samples, normalise, mesh)


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
        samples: A tree of arrays with a common leading axis.
        weight: Sample weights, or None for ones.
        size: Samples a chunk, and a device.
        normalise: Applied to each sample, or None.
        mesh: Devices that share every chunk, or None for one.

    Returns:
        The chunks.
    """
    leaves = jax.tree.leaves(samples)
    count = leaves[0].shape[0]
    dtype = np.dtype(jnp.result_type(*leaves))
    weight = np.ones(count, dtype) if weight is None else np.asarray(weight, dtype)
    batches: list[Batch] = []
    size = size if mesh is None else size * mesh.size
    for start in range(0, count, size):
        stop = min(count, start + size)
        padding = size - (stop - start)

        def pad(leaf: Any, start: int = start, stop: int = stop, padding: int = padding) -> Array:
            part = np.asarray(leaf[start:stop])
            if padding:
                # Copies of a real sample: a blank one would have no direction to descend in.
                part = np.concatenate([part, np.repeat(part[:1], padding, axis=0)])
            return jnp.asarray(part) if mesh is None else shard_rows(part, mesh)

        chunk = jax.tree.map(pad, samples)
        if normalise is not None:
            chunk = _prepare(chunk, normalise, mesh)
        padded = np.concatenate([weight[start:stop], np.zeros(padding, dtype)])
        weights = jnp.asarray(padded) if mesh is None else shard_rows(padded, mesh)
        batches.append(Batch(chunk, weights))
    weights = np.zeros(len(batches) * size, dtype)
    weights[:count] = weight
    return Chunks(tuple(batches), weights, count, size, mesh)


@dataclasses.dataclass(frozen=True)
class HostSamples:
    """All samples, kept on the host: several devices are given no more than a batch of them.

    Attributes:
        samples: Arrays of NumPy's with a leading axis.
        weight: Weights of the samples.
        mesh: The devices.
    """

    samples: PyTree
    weight: Float[np.ndarray, " n"]
    mesh: Mesh

    def take(self, index: Int[np.ndarray, " m"], place: Callable = shard_rows) -> Batch:
        """Some of the samples, on the devices.

        Args:
            index: Which ones.
            place: `shard_rows`, as many for each device, or `replicate`, all for each.

        Returns:
            The batch.
        """
        samples = jax.tree.map(lambda leaf: place(leaf[index], self.mesh), self.samples)
        return Batch(samples, place(self.weight[index], self.mesh))
