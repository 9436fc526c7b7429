"""Chunks made as they are asked for: the next is read while the device works on the last."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree

from diffclust.solvers.base import Batch


# Not of `Batch`: beartype, which knows the elements of a generic type, would read a chunk to see.
class StreamedBatches(Sequence):
    """The chunks of samples that are read again in every pass; two or three of them are alive."""

    def __init__(
        self,
        samples: PyTree,
        weights: Float[np.ndarray, " padded"],
        size: int,
        place: Callable[[PyTree, np.ndarray], Batch],
        alone: Callable[[PyTree, np.ndarray], Batch],
    ) -> None:
        """Reads nothing yet.

        Args:
            samples: What can be indexed by slices and by arrays along a common leading axis.
            weights: Weights of the samples, and zeros up to a whole number of chunks.
            size: Samples a chunk.
            place: Makes a batch of rows on the host and their weights.
            alone: The same, on the devices of this process alone.
        """
        self._samples, self._weights, self._size = samples, weights, size
        self._place, self._alone = place, alone

    def __len__(self) -> int:
        """How many chunks there are."""
        return len(self._weights) // self._size

    @overload
    def __getitem__(self, index: int) -> Batch: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Batch, ...]: ...

    def __getitem__(self, index: int | slice) -> Batch | tuple[Batch, ...]:
        """Reads a chunk, or several.

        Args:
            index: Number of the chunk, or a slice.

        Returns:
            The batch, or a tuple of them.
        """
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        number = range(len(self))[index]
        return self._batch(number, self._rows(number))

    def __iter__(self) -> Iterator[Batch]:
        """Reads all chunks in turn, each while the one before is worked on.

        Yields:
            The next chunk.
        """
        double = jnp.result_type(float) == jnp.float64

        def read(number: int) -> PyTree:
            # `jax.enable_x64` holds for the thread in which it was set.
            with jax.enable_x64(double):
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
        # Padded to whole chunks, for which everything is compiled already.
        parts = [
            self._host(index[start : start + self._size])
            for start in range(0, max(1, len(index)), self._size)
        ]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    @property
    def blank(self) -> PyTree:
        """A sample of zeros, of the shape and dtype of those in the chunks."""
        return jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), self.gather(np.zeros(0, int))
        )

    def _host(self, index: np.ndarray) -> PyTree:
        some = index if len(index) else np.zeros(1, int)
        rows = jax.tree.map(lambda leaf: self._filled(np.asarray(leaf[some])), self._samples)
        batch = self._alone(rows, np.zeros(self._size, self._weights.dtype))
        return jax.tree.map(lambda leaf: np.array(leaf)[: len(index)], batch.samples)

    def _rows(self, number: int) -> PyTree:
        start = number * self._size
        # Another process may have samples for more chunks: where none are left here, any will do.
        start = start if start < len(jax.tree.leaves(self._samples)[0]) else 0
        return jax.tree.map(
            lambda leaf: self._filled(np.asarray(leaf[start : start + self._size])), self._samples
        )

    def _filled(self, part: np.ndarray) -> np.ndarray:
        padding = self._size - len(part)
        # Copies of a real sample: a blank one would have no direction to descend in.
        return np.concatenate([part, np.repeat(part[:1], padding, axis=0)]) if padding else part

    def _batch(self, number: int, rows: Any) -> Batch:
        weight = self._weights[number * self._size : (number + 1) * self._size]
        return self._place(rows, weight)
