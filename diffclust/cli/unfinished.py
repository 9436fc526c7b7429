"""Fits that were broken off: where their states lie, and how they go on."""

import contextlib
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from diffclust.cli.options import Fit
from diffclust.cli.run_folder import is_run
from diffclust.data import Collection
from diffclust.models import AbstractGradientModel, AbstractModel


class Unfinished:
    """The states of one fit, in a folder beside that of its run, for as long as it is not done."""

    def __init__(self, options: Fit, model: AbstractModel) -> None:
        """Looks whether there is something to go on with.

        Args:
            options: What was asked for.
            model: The model that is fitted.

        Raises:
            ValueError: If a broken-off fit is there and neither `--resume` nor `--overwrite` was
                given, or `--resume` was and the method saves no states.
        """
        self._options, self._model = options, model
        self._out = Path(options.out).absolute()
        self._folder = Path(f"{self._out}.unfinished")
        self._saves = isinstance(model, AbstractGradientModel)
        if not options.checkpoint_every >= 0.0:
            raise ValueError(
                f"--checkpoint-every must be at least 0, not {options.checkpoint_every}"
            )
        if self.is_done():
            return
        if options.resume and not self._saves:
            raise ValueError(f"{options.method} saves no states to go on from; leave out --resume")
        if self._folder.exists() and not (options.resume or options.overwrite):
            raise ValueError(
                f"{str(self._folder)!r} holds a fit that was broken off; go on with it by "
                "--resume, or replace it with --overwrite"
            )

    def is_done(self) -> bool:
        """Whether the run is to go on and is finished already."""
        return self._options.resume and is_run(self._out)

    @contextlib.contextmanager
    def snapshots(self, dataset: Collection) -> Iterator[dict[str, Any]]:
        """Saves states while the block runs.

        Args:
            dataset: The images that are fitted.

        Yields:
            More arguments for `fit`.

        Raises:
            ValueError: If the saved states are of another fit.
        """
        if not self._saves:
            yield {}
            return
        from diffclust.snapshots import SnapshotFolder

        if self._options.overwrite and not self._options.resume:
            self.remove()
        run = {
            "method": self._model.method,
            "settings": self._model.settings(),
            "seed": self._options.seed,
            "images": [
                *dataset.samples.shape,
                zlib.crc32(np.ascontiguousarray(dataset.samples).tobytes()),
            ],
        }
        every = self._options.checkpoint_every
        saved = None
        try:
            with SnapshotFolder(self._folder, run=run, every=every) as folder:
                try:
                    yield {"snapshots": folder}
                finally:
                    saved = folder.last()
        except KeyboardInterrupt:
            if saved is None:
                raise
            raise KeyboardInterrupt("go on with the same command and --resume") from None
        finally:
            if saved is None and not self._is_older():
                self.remove()

    def _is_older(self) -> bool:
        """Whether there are states at all, of this process or of one before."""
        return any(path.name.isdigit() for path in self._folder.glob("states/*"))

    def remove(self) -> None:
        """Removes the states, and what a process that was killed had begun to write."""
        if not self._saves:
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._options.resume and self._out.exists():
            for left in self._out.parent.glob(f".{self._out.name}.????????.tmp"):
                shutil.rmtree(left, ignore_errors=True)
