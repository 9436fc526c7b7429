"""Fits that were interrupted: where their saved states lie, and how they go on."""

import contextlib
import functools
import shutil
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from diffclust.cli.options import Fit
from diffclust.cli.runs import is_run
from diffclust.data import Collection
from diffclust.image_source import Images, ImageSource
from diffclust.models import AbstractModel
from diffclust.storage.snapshots import SnapshotFolder


class SavedStates:
    """The states of one fit, in a folder beside that of its run, for as long as it is not done."""

    def __init__(self, options: Fit, model: AbstractModel) -> None:
        """Looks whether there is something to go on with.

        Args:
            options: What was asked for.
            model: The model that is fitted.

        Raises:
            ValueError: If a broken-off fit is there and neither `--resume` nor `--overwrite` was
                given, or an option means nothing.
        """
        self._options, self._model = options, model
        self._out = Path(options.out).absolute()
        self._folder = Path(f"{self._out}.unfinished")
        if not options.checkpoint_every >= 0.0:
            raise ValueError(
                f"--checkpoint-every must be at least 0, not {options.checkpoint_every}"
            )
        if options.checkpoints_kept < 1:
            raise ValueError(
                f"--checkpoints-kept must be at least 1, not {options.checkpoints_kept}; 2 outlive "
                "a damaged one"
            )
        allowed = self.is_done() or options.resume or options.overwrite
        if self._folder.exists() and not allowed:
            raise ValueError(
                f"{str(self._folder)!r} holds a fit that was broken off; go on with it by "
                "--resume, or replace it with --overwrite"
            )

    def is_done(self) -> bool:
        """Whether the run is to go on and is finished already."""
        # With --overwrite the run may be the one that the unfinished fit is to replace.
        replaces = self._options.overwrite and self._has_states()
        return self._options.resume and is_run(self._out) and not replaces

    @contextlib.contextmanager
    def snapshots(
        self, dataset: Collection, arguments: Mapping[str, np.ndarray]
    ) -> Iterator[SnapshotFolder]:
        """Saves states while the block runs, in which the run is fitted and written.

        Args:
            dataset: The images that are fitted.
            arguments: What the fit is given for each of them; see `sample_arguments`.

        Yields:
            Where the fit saves its state.

        Raises:
            ValueError: If the saved states are of another fit.
            OSError: If a state cannot be saved.
        """
        if self._options.overwrite and not self._options.resume:
            self.remove()
        given = {name: _checksum(array) for name, array in arguments.items()}
        run = {
            "method": self._model.method,
            "settings": self._model.settings(),
            "seed": self._options.seed,
            "precision": str(jnp.result_type(float)),
            "samples": [*dataset.samples.shape, _checksum(dataset.samples)],
            "weights": given.get("sample_weight"),
            "start": given.get("assignments"),
        }
        try:
            with SnapshotFolder(
                self._folder,
                run=run,
                every=self._options.checkpoint_every,
                kept=self._options.checkpoints_kept,
                log=functools.partial(print, file=sys.stderr, flush=True),
            ) as folder:
                yield folder
        except KeyboardInterrupt as interrupt:
            if self._has_states():
                interrupt.args = ("go on with the same command and --resume",)
            raise
        finally:
            if not self._has_states():
                self.remove()

    def _has_states(self) -> bool:
        """Whether there are whole states, of this process or of one before."""
        return any(path.name.isdigit() for path in self._folder.glob("states/*"))

    def remove(self) -> None:
        """Removes the states, and what a process that was killed had begun to write or remove."""
        # Renamed first: states without their mark would pass for those of any fit.
        removed = self._folder.with_name(f".{self._folder.name}.removed")
        shutil.rmtree(removed, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._folder.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)
        if self._options.resume and self._out.exists():
            for left in self._out.parent.glob(f".{self._out.name}.????????.tmp"):
                shutil.rmtree(left, ignore_errors=True)


def _checksum(samples: Images) -> int:
    if isinstance(samples, ImageSource):
        return samples.checksum()
    return zlib.crc32(np.ascontiguousarray(samples).data)
