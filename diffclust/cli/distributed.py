"""One fit by several processes: each reads its share, process 0 writes and prints."""

import contextlib
import dataclasses
import itertools
import os
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from diffclust.cli import samples
from diffclust.cli.options import Fit, option
from diffclust.data import Collection, DataError, Dataset
from diffclust.data.arrays import convert_channels
from diffclust.data.folder import kinds_in, load_folder
from diffclust.data.pictures import FORMATS
from diffclust.data.stream import FolderImages, open_stream
from diffclust.image_source import ImageSource
from diffclust.models import AbstractModel
from diffclust.parallel import data_mesh, processes, start_processes
from diffclust.parallel.data import Data
from diffclust.progress_bar import ProgressBar
from diffclust.storage.snapshots import SharedSnapshots, SnapshotFolder

_EXIT_DELAY = 2.0
"""Seconds that process 0, without which the others would end in disorder, outlives an error."""


class Processes:
    """The processes that fit together; with no such options, this one alone.

    `mesh` holds the devices of all processes, or is None for the default device of a single one;
    `is_first` says whether this process writes and prints.
    """

    def __init__(self, options: Fit) -> None:
        """Starts the exchange with the others, before JAX computes.

        Args:
            options: The command's options.

        Raises:
            ValueError: If the options do not go together, or the others cannot be found.
        """
        self.mesh, self.is_first = None, True
        distribution = options.distribution
        if not distribution.is_distributed:
            return
        distribution.check()
        for name in ("dry_run", "compare_with"):
            if getattr(options, name):
                raise ValueError(f"{option(name)} is for one process; leave it out, or --processes")
        _keep_stdout()
        start_processes(*distribution.place, timeout=distribution.process_timeout)
        self.mesh, self.is_first = data_mesh(), jax.process_index() == 0

    def snapshots(self, folder: SnapshotFolder | None) -> Any:
        """The snapshots that are passed to `model.fit`.

        Args:
            folder: Where process 0 saves it; None in the others, or where none is saved.

        Returns:
            The snapshots of this process.
        """
        return folder if self.mesh is None else SharedSnapshots(folder)

    def describe(self) -> dict[str, int]:
        """Numbers of processes and devices for the summary of a run; empty for one process."""
        if self.mesh is None:
            return {}
        return {"processes": jax.process_count(), "devices": self.mesh.size}

    def load_samples(
        self, options: Fit, model: AbstractModel, bar: ProgressBar
    ) -> tuple[Collection, Collection]:
        """The samples that this process fits, checked, and all samples.

        Args:
            options: The command's options.
            model: The model that will be fitted.
            bar: The progress bar.

        Returns:
            This process's samples, and those of all, in the order of the source. Where files can be
            read one by one, those of the others are not read for that.

        Raises:
            ValueError: If they cannot be read or clustered.
        """
        if self.mesh is None:
            dataset = samples.load_samples(options, model, bar)
            return dataset, dataset
        with processes.raise_everywhere(self.mesh):
            own, everything = self._read(options, model, bar)
        if everything is None:
            assert isinstance(own, Dataset)
            own, everything = self._gather(own, options)
        with processes.raise_everywhere(self.mesh):
            # That there are enough of all, the fit will check.
            samples.check_samples(model, own, fitted=True)
            everything = samples.with_labels(options, everything)
        return own, everything

    def local_arguments(
        self, arrays: Mapping[str, np.ndarray], own: Collection, dataset: Collection
    ) -> Mapping[str, np.ndarray]:
        """Selects the entries of this process's samples.

        Args:
            arrays: By name, an entry for each of all samples.
            own: The samples of this process.
            dataset: All samples.

        Returns:
            Arrays of these entries, by the same names.
        """
        if self.mesh is None:
            return arrays
        here = np.searchsorted(dataset.indices, own.indices)
        return {name: array[here] for name, array in arrays.items()}

    def _read(
        self, options: Fit, model: AbstractModel, bar: ProgressBar
    ) -> tuple[Collection, Collection | None]:
        """This process's samples, and those of all; None where no process has read all."""
        if model.descriptor.sample_kind != "image":
            table = samples.load_table(options, model)
            return table.take(self._local_indices(len(table))), table
        path, common = Path(options.source), samples.loader_arguments(options, model, bar)
        if options.stream and path.suffix not in (".npy", ".npz"):
            raise DataError(
                "several processes stream .npy and uncompressed .npz files alone; leave out "
                "--stream"
            )
        if path.is_dir() and kinds_in(path, FORMATS) == (True,) and options.rate is None:
            part = (jax.process_index(), jax.process_count())
            own = load_folder(path, part=part, **common)
            return samples.without_blank(model, own) if options.skip_bad else own, None
        everything = None
        if options.source.endswith((".npy", ".npz")):
            # Where it is compressed, say, or what is wrong with it, the loader will know.
            with contextlib.suppress(DataError):
                everything = open_stream(options.source, **common)
        if everything is None:
            everything = samples.load_images(options, model, common)
            if options.skip_bad:
                everything = samples.without_blank(model, everything)
        own = everything.take(self._local_indices(len(everything)))
        if isinstance(own.images, ImageSource) and not options.stream:
            own = dataclasses.replace(own, images=own.images[:])
        return own, everything

    def _local_indices(self, count: int) -> Int[np.ndarray, " m"]:
        own = processes.own_share(count, self.mesh)
        if own.stop == own.start:
            raise DataError(
                f"there are {count} samples, which {jax.process_count()} processes cannot share; "
                f"start fewer"
            )
        return np.arange(own.start, own.stop)

    def _gather(self, own: Dataset, options: Fit) -> tuple[Dataset, Dataset]:
        """This process's pictures, as many channels as all have, and all of the folder."""
        assert own.paths is not None
        about = own.images.shape[1:], own.paths, own.skipped
        shapes, paths, skipped = zip(*processes.allgather_objects(about), strict=True)
        sizes = sorted({f"{width}x{height}" for height, width, _ in shapes})
        if len(sizes) > 1:
            raise DataError(
                f"images must have one size, and there are {' and '.join(sizes)} (width x height); "
                f"give --size to resize and centre-crop all, or --size and --pad to show them whole"
            )
        (height, width, _), depth = shapes[0], max(shape[2] for shape in shapes)
        pixels = convert_channels(np.asarray(own.images), depth)
        every = tuple(itertools.chain(*paths))
        images = _SharedImages(
            map(Path, every), shape=(height, width, depth), size=samples.size_of(options)
        )
        images.known_checksum = Data(pixels, mesh=self.mesh).checksum()
        everything = dataclasses.replace(
            own,
            images=images,
            labels=None if own.labels is None else processes.allgather_rows(own.labels, self.mesh),
            paths=every,
            skipped=tuple(itertools.chain(*skipped)),
            indices=processes.allgather_rows(own.indices, self.mesh),
        )
        return dataclasses.replace(own, images=pixels), everything


class _SharedImages(FolderImages):
    """The images of all processes, of which this one reads more only when it is asked to.

    Their checksum is known: the processes have found it together.
    """

    known_checksum: int

    def checksum(self, value: int = 0) -> int:
        return self.known_checksum if value == 0 else super().checksum(value)


def _keep_stdout() -> None:
    """Keeps the standard output for this command: gloo writes there which processes it has met."""
    if sys.stdout is None:
        return  # it is closed
    sys.stdout.flush()
    own = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    sys.stdout = os.fdopen(own, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)


def leave(error: BaseException, message: str | None, status: int) -> None:
    """Ends this process at once: the others notice, and end too, rather than wait for it.

    Args:
        error: What ended the command.
        message: It in a line; None for a traceback.
        status: The exit status.
    """
    number = jax.process_index()
    if isinstance(error, jax.errors.JaxRuntimeError) and message is None:
        reason = " ".join(str(error).split())[:160]
        message = (
            "another process has ended, or cannot be reached any more; its own message says why, "
            f"and --resume goes on from the last saved state ({reason})"
        )
    # An error of another process is printed by process 0 for all.
    if message is None:
        traceback.print_exception(error)
    elif number == 0 or not isinstance(error, processes.ProcessError):
        where = f"process {number}: " if number else ""
        print(f"error: {where}{' '.join(message.split())}", file=sys.stderr, flush=True)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None where it is closed
            stream.flush()
    if number == 0:
        time.sleep(_EXIT_DELAY)
    os._exit(status)
