"""Runs as folders, written and read again, and the saved states of fits that were interrupted."""

import contextlib
import csv
import dataclasses
import functools
import glob
import itertools
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diffclust._version import __version__
from diffclust.cli.options import Fit
from diffclust.data import Collection
from diffclust.data.source import is_name
from diffclust.estimate.measure import peak_bytes
from diffclust.methods import METHODS
from diffclust.models import AbstractModel, Result
from diffclust.solvers import Assignment
from diffclust.storage import checkpoint
from diffclust.storage.snapshots import SnapshotFolder, locked
from diffclust.storage.staging import check_target, read_object, refuse_patterns, staged, write_json

OF_RECORDINGS = ("rate", "seconds")
"""Options that say how recordings are read; the first recording says it where they do not."""

OF_TPS = ("append_curves", "no_scale")
"""Options that say how a `.tps` file is read."""

_SUMMARY, _ASSIGNMENTS = "summary.json", "assignments.csv"

_NEEDED: dict[str, type | tuple[type, ...]] = {
    "n": int,
    "k": int,
    "loss": (int, float),
    "seconds": (int, float),
    "status": str,
    "seed": int,
    "settings": dict,
    "source": dict,
}
"""What the summary of every run has, and its types."""

GO_ON = "go on with the same command and --resume"
"""What an interruption says where it has left something to go on with."""

_NEEDED_OF_SOURCE = ("source", "split", "limit", "sample_shape", "skipped")
"""What it says of every source."""


def new_folder(
    out: str, kind: str, is_one: Callable[[Path], bool], inputs: Iterable[str], *, overwrite: bool
) -> contextlib.AbstractContextManager[Path]:
    """A folder to write, which takes its place only when the block ends without an error.

    Args:
        out: Path of the folder.
        kind: What is written, such as `"run"`.
        is_one: Whether a folder holds one of that kind, and so may be replaced.
        inputs: Files and folders that are read, and so must not be replaced. They need not exist.
        overwrite: Whether one that is there is replaced.

    Returns:
        A context, which gives the folder to write into.

    Raises:
        ValueError: If something else is there, or an input.
        OSError: If it cannot be written.
    """
    target = check_target(out, kind=kind, is_one=is_one, overwrite=overwrite)
    _refuse_within_run(out, target)
    refuse_holding(out, inputs)
    return staged(target, replace=overwrite)


def refuse_holding(out: str, inputs: Iterable[str]) -> None:
    """Refuses to replace a folder that holds what is read.

    Args:
        out: Path of the folder.
        inputs: Files and folders that are read. They need not exist.

    Raises:
        ValueError: If it is one of them, or holds one.
    """
    for path in inputs:
        is_read = not is_name(path) and os.path.exists(path)
        if is_read and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(out)):
            raise ValueError(f"{out!r} holds {path!r}, which is read; give another folder")


def refuse_read(out: str, sources: Iterable[str]) -> None:
    """Refuses to replace a file that is read, and to write into a run.

    Args:
        out: Path of the file to be written.
        sources: Files and folders that are read. They need not exist.

    Raises:
        ValueError: If it is there, and is one of them or in one; or if it lies in any run's folder.
    """
    target = Path(os.path.realpath(out))
    # Tables and pages in a folder of pictures are not read with them.
    may_be_within = target.suffix.lower() not in (".csv", ".html", ".npz")
    for path in (Path(os.path.realpath(s)) for s in sources if not is_name(s)):
        is_read = target == path or (may_be_within and target.is_relative_to(path))
        if is_read and target.is_file():
            raise ValueError(f"{out!r} is read; give another path")
    _refuse_within_run(out, target)


def _refuse_within_run(out: str, target: Path) -> None:
    """Refuses a path in the folder of a run, which is replaced as a whole."""
    if any(map(is_run, target.parents)):
        raise ValueError(f"{out!r} lies in the folder of a run; give a path outside of it")


def new_run(
    out: str, *, overwrite: bool, inputs: Iterable[str] = (), command: str | None = None
) -> contextlib.AbstractContextManager[Path]:
    """A folder for a run; see `new_folder`.

    Args:
        out: Path of the folder.
        overwrite: Whether a run that is there is replaced.
        inputs: Files and folders that are read, and so must not be replaced.
        command: Replace only runs of this command.

    Returns:
        A context, which gives the folder to write into.
    """
    kind = "run" if command is None else f"run of 'diffclust {command}'"
    is_one = functools.partial(is_run, command=command)
    refuse_patterns(out)
    if command != "sweep" and summary_of(Path(out)).get("command") == "sweep":
        # It holds a run, and may have taken days.
        raise ValueError(f"{out!r} holds a sweep, which only a sweep replaces; give a new folder")
    return new_folder(out, kind, is_one, inputs, overwrite=overwrite)


@contextlib.contextmanager
def interruption_says(message: str) -> Iterator[None]:
    """Gives an interruption of the block a message.

    Args:
        message: What holds of what was done, or how to go on.

    Yields:
        Nothing.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.args = (message,)
        raise


def after_writing(out: str) -> contextlib.AbstractContextManager[None]:
    """A context for what is left once everything is written: an interruption says that it is.

    Args:
        out: Path of what was written.

    Returns:
        A context.
    """
    return interruption_says(f"{out!r} is written")


def summary_of(folder: Path) -> dict[str, Any]:
    """The summary of a run.

    Args:
        folder: The run's folder.

    Returns:
        What `summary.json` holds; empty where the folder holds no complete run, or does not exist.
    """
    summary = read_object(folder / _SUMMARY)
    return summary if "method" in summary else {}


def is_run(folder: Path, command: str | None = None) -> bool:
    """Whether a folder holds a complete run.

    Args:
        folder: The folder.
        command: The command that must have written it, or None for any.

    Returns:
        False also where there is no such folder.
    """
    summary = summary_of(folder)
    return bool(summary) and command in (None, summary.get("command"))


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Writes `summary.json`.

    Args:
        folder: The run's folder.
        summary: What to write; NumPy's numbers and tuples are turned into JSON's.
    """
    write_json(folder / _SUMMARY, summary)


def write_table(path: Path, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Writes a table as CSV.

    Args:
        path: The file.
        header: Names of the columns.
        rows: What stands in them.
    """
    # Names of files need not be valid Unicode; so their bytes come out as they are.
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        plain = csv.writer(file, lineterminator="\n")
        # A lone carriage return ends a line for whoever reads it, and is not quoted by itself.
        quoted = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
        for row in itertools.chain([header], rows):
            texts = [*map(str, row)]
            (quoted if any("\r" in text for text in texts) else plain).writerow(texts)


def write_assignments(
    folder: Path, dataset: Collection, assignment: Assignment, **more: np.ndarray
) -> None:
    """Writes `assignments.csv`: index, path, cluster, distance, margin, and what else is given.

    The index is the sample's position in its source, the path empty where it is no file; shapes
    have a name in its stead. Numbers are written with the digits that give them back exactly.

    Args:
        folder: The run's folder.
        dataset: The samples.
        assignment: Their clusters, in the same order.
        **more: Further numbers of each sample, by the names of their columns.
    """
    column, places = dataset.places
    numbers = {"distance": assignment.distances, "margin": assignment.margins, **more}
    # NumPy's scalars know their precision: in double, float32's 0.1 has 17 digits. One at a time,
    # as lists of millions would take more than the images' memory.
    texts = (map(str, values) for values in numbers.values())
    rows = zip(dataset.indices, places, assignment.clusters, *texts, strict=True)
    write_table(folder / _ASSIGNMENTS, ["index", column, "cluster", *numbers], rows)


def environment() -> dict[str, Any]:
    """Versions, and the device that JAX computes on."""
    device, python = jax.devices()[0], platform.python_version()
    return {
        "versions": {"diffclust": __version__, "jax": jax.__version__, "python": python},
        "device": f"{device.platform}: {device.device_kind}",
    }


def peak_memory_mb() -> float | None:
    """The most memory that the process held, in MB (10⁶ bytes); None where nobody knows."""
    return round(peak_bytes() / 1e6, 1) or None


@dataclasses.dataclass(frozen=True, eq=False)
class SavedRun:
    """The content of a run's folder.

    Attributes:
        folder: The folder.
        summary: Its figures and settings.
        column: What the places are called in the table.
        indices: Position of each sample in its source.
        places: File or name of each sample; empty strings where there are none.
        clusters: Cluster of each sample.
        distances: Its distance to the cluster.
        margins: How much farther its second-best cluster is.
    """

    folder: Path
    summary: dict[str, Any]
    column: str
    indices: np.ndarray
    places: tuple[str, ...]
    clusters: np.ndarray
    distances: np.ndarray
    margins: np.ndarray

    @property
    def num_clusters(self) -> int:
        """K."""
        return int(self.summary["k"])

    def inputs(self, source: str | None = None) -> list[str]:
        """The folder and what the samples were and are read from, none of which is replaced.

        Args:
            source: Where the samples are now; None where they were.

        Returns:
            Paths, or names of sets.
        """
        inputs = [str(self.folder), self.located(self.summary["source"]["source"])]
        return inputs if source is None else [*inputs, source]

    def located(self, path: str) -> str:
        """A path of a source or a sample, which may have been given from another folder.

        Args:
            path: The path, as it was given to the run.

        Returns:
            Where it is now: where it was then, if there is still something.
        """
        found = os.path.join(self.summary["source"].get("folder", ""), path)
        return found if os.path.exists(found) and not is_name(path) else path

    def result(self) -> Result:
        """The model, fitted to the samples of this run or to those of another.

        Raises:
            ValueError: If it is missing or damaged, or was fitted anew since it predicted.
        """
        folder, expected = self.summary.get("model", self.folder), self.summary.get("model_crc32")
        result = checkpoint.load(folder)
        if expected not in (None, checkpoint.prototypes_checksum(result)):
            raise ValueError(
                f"{str(folder)!r} was fitted anew since {str(self.folder)!r} was predicted by it; "
                "predict again"
            )
        return result


def file_names(places: Iterable[str]) -> list[str]:
    """The names of files, without their folders.

    Args:
        places: File or name of each sample; empty strings where there are none.

    Returns:
        The last part of each.
    """
    return [Path(place).name for place in places]


def refuse_sweep(path: str) -> None:
    """Refuses the folder of a sweep where a run is asked for.

    Args:
        path: A folder.

    Raises:
        ValueError: If a sweep wrote it.
    """
    summary = summary_of(Path(path))
    if summary.get("command") == "sweep":
        remedy = f"give its run, {str(Path(path) / 'chosen')!r}"
        if summary.get("chosen") is None:
            remedy = "it had no clear choice, so fit the one you choose with 'diffclust fit'"
        raise ValueError(f"{path!r} holds a sweep; {remedy}")


def read_run(path: str) -> SavedRun:
    """Reads the summary and the table of a run.

    Args:
        path: Its folder.

    Returns:
        What it holds.

    Raises:
        ValueError: If the folder holds no complete run.
    """
    folder = Path(path)
    summary = summary_of(folder)
    refuse_sweep(path)
    if not summary:
        raise ValueError(
            f"{path!r} holds no run; give a folder that 'diffclust fit' or predict wrote"
        )
    try:
        _check_summary(summary)
        table = folder / _ASSIGNMENTS
        with table.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            header, *rows = csv.reader(file)
        index, column, cluster, *_ = header
        if (index, cluster) != ("index", "cluster") or len(rows) != int(summary["n"]):
            raise ValueError("another number of rows, or other columns")
        indices, places, *numbers = zip(*rows, strict=True)
        kinds = (np.int32, np.float64, np.float64)
        arrays = (np.array(n).astype(kind) for n, kind in zip(numbers[:3], kinds, strict=True))
        positions = np.array(indices).astype(np.int64)
        run = SavedRun(folder, summary, column, positions, places, *arrays)
        if not ((run.clusters >= 0) & (run.clusters < run.num_clusters)).all():
            raise ValueError(f"clusters beyond {run.num_clusters - 1}")
        return run
    except PermissionError:
        raise
    except (OSError, ValueError, TypeError, IndexError, OverflowError, csv.Error) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"the run in {path!r} is damaged ({reason}); make it again") from error


def _check_summary(summary: Mapping[str, Any]) -> None:
    """Refuses a summary in which something is missing or of another type."""
    for name, kind in _NEEDED.items():
        if not isinstance(summary.get(name), kind):
            raise ValueError(f"{_SUMMARY} has no valid {name!r}")
    if missing := [name for name in _NEEDED_OF_SOURCE if name not in summary["source"]]:
        raise ValueError(f"{_SUMMARY} lacks the source's {missing[0]!r}")
    if summary["method"] not in METHODS or not isinstance(summary.get("model", ""), str):
        raise ValueError(f"{_SUMMARY} names no known method or model")


def partial_folder(out: Path) -> Path:
    """The folder beside that of a run that holds its states for as long as it is not done.

    Args:
        out: The folder of the run, absolute.

    Returns:
        The one that version 0.1 left there, else that of this version.
    """
    former = Path(f"{out}.unfinished")
    return former if former.exists() else Path(f"{out}.partial")


def refuse_unfinished(folder: Path, what: str) -> None:
    """Refuses to replace an interrupted fit, where no option says so.

    Args:
        folder: The folder from `partial_folder`.
        what: What it holds, for the message.

    Raises:
        ValueError: If it is there.
    """
    states = folder / "states"
    left = (states if states.is_dir() else folder).glob("*")
    # A lock, and what was not written to its end, whose name has a dot, are nothing to go on with.
    if any(path.is_dir() and "." not in path.name for path in left):
        raise ValueError(
            f"{str(folder)!r} holds {what} that was broken off; go on with it by --resume, or "
            "replace it with --overwrite"
        )


def refuse_other(shown: str, found: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuses to take another finished run for the one that is asked for.

    Args:
        shown: The folder, for the message.
        found: What the run in it was made with.
        asked: What is asked for; where nothing was found, anything will do.

    Raises:
        ValueError: With the first thing that differs.
    """
    for name, value in asked.items():
        if name in found and found[name] != value:
            raise ValueError(
                f"{shown} holds another run, whose {name} is {found[name]!r}, not {value!r}; "
                "give another folder"
            )


def refuse_newer(out: Path, kept: Iterable[Path]) -> None:
    """Refuses to take a finished run for the result of a fit that is to replace it.

    Args:
        out: Path of the run.
        kept: What is kept beside it of an interrupted fit.

    Raises:
        ValueError: If some of that is newer than the run.
    """
    written = (out / _SUMMARY).stat().st_mtime
    for path in kept:
        if path.stat().st_mtime > written:
            raise ValueError(
                f"{str(path)!r} is of a fit that is to replace {str(out)!r}; go on with it by "
                "--overwrite --resume"
            )


SWEEP_METADATA = "about.json"
"""File that identifies the sweep that saved fits belong to."""


class SavedStates:
    """The states of one fit, in a folder beside that of its run, for as long as it is not done."""

    def __init__(self, options: Fit, model: AbstractModel) -> None:
        """Looks for the states of an interrupted fit.

        Args:
            options: The command's options.
            model: The model that is fitted.

        Raises:
            ValueError: If another fit uses the folder, if a broken-off fit is there and neither
                `--resume` nor `--overwrite` was given, or if an option means nothing.
        """
        self._options, self._model = options, model
        self._out = Path(options.out).absolute()
        self._folder = partial_folder(self._out)
        self._lock = contextlib.ExitStack()
        every, kept = options.checkpoint_every, options.checkpoints_kept
        if not every >= 0.0:
            raise ValueError(f"--checkpoint-every must be at least 0, not {every}")
        if kept < 1:
            raise ValueError(
                f"--checkpoints-kept must be at least 1, not {kept}; 2 outlive a damaged one"
            )
        if (self._folder / SWEEP_METADATA).exists() and not options.overwrite:
            raise ValueError(
                f"{str(self._folder)!r} holds fits of a sweep that was broken off; go on with it "
                "by sweep --resume, or replace it with --overwrite"
            )
        if self._folder.is_dir():
            with locked(self._folder):
                pass
        if options.resume and not options.overwrite and is_run(self._out):
            self._check_finished()
        if not (options.resume or options.overwrite):
            refuse_unfinished(self._folder, "a fit")
            self.remove()

    def _check_finished(self) -> None:
        """Refuses to take another run, or one that is being replaced, for that of this fit."""
        summary, shown, options = summary_of(self._out), repr(self._options.out), self._options
        source = summary.get("source", {})
        found = {**summary, **summary.get("settings", {}), **source}
        # What was not given may have been chosen by the fit.
        settings = {n: v for n, v in self._model.settings().items() if v not in (None, "auto")}
        if "asked" in summary:
            settings = self._model.settings()
            # A mask is compared by its file.
            settings = {name: value for name, value in settings.items() if name not in source}
            found |= {name: summary["asked"].get(name) for name in settings}
        given = {"method", "seed", *source}
        given -= {name for name in OF_RECORDINGS if getattr(options, name) is None}
        asked = {"k": options.clusters} | {n: v for n, v in vars(options).items() if n in given}
        asked = json.loads(json.dumps(asked | settings))
        refuse_other(shown, found, asked)
        if (command := summary.get("command", "fit")) not in ("fit", "demo", "align"):
            raise ValueError(f"{shown} holds what {command} wrote; give another folder")
        for part in ("model", _ASSIGNMENTS):
            if not (self._out / part).exists():
                raise ValueError(f"the run in {shown} lacks {part!r}; make it again by --overwrite")
        refuse_newer(self._out, self._states())

    def is_done(self) -> bool:
        """Whether the fit is to be resumed although it is finished."""
        if not (self._options.resume and is_run(self._out)):
            return False
        if self._options.overwrite:
            # The run may be another one, or the one that the interrupted fit is to replace.
            try:
                self._check_finished()
            except ValueError:
                return False
            return not self._has_states()
        return True

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other fits out of the folder, which is removed at the end if it holds no states.

        To be entered before the samples are read.

        Yields:
            Nothing.

        Raises:
            ValueError: If another fit uses the folder.
            OSError: If it cannot be written.
        """
        if self._options.overwrite and not self._options.resume:
            self._remove_states()
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            with self._lock:
                self._lock.enter_context(locked(self._folder))
                yield
        except KeyboardInterrupt as interrupt:
            if self._has_states():
                interrupt.args = (GO_ON,)
            raise
        except OSError as error:
            # Such as of a full disk, when all is computed.
            if self._has_states():
                error.add_note(GO_ON)
            raise
        finally:
            if not self._has_states():
                self._remove_states()

    def snapshots(self) -> SnapshotFolder:
        """Opens the snapshots of a fit; to be entered within `locked`.

        Returns:
            A context.

        Raises:
            ValueError: If the saved states are of another fit.
            OSError: If a state cannot be saved.
        """
        # The fit itself compares its model, samples, weights and start.
        run = {"seed": self._options.seed, "precision": str(jnp.result_type(float))}
        every, kept = self._options.checkpoint_every, self._options.checkpoints_kept
        log = functools.partial(print, file=sys.stderr, flush=True)
        # When the fit is done the run is written, and the states are removed.
        about = {"every": every, "max_to_keep": kept, "save_last": False, "log": log}
        return SnapshotFolder(self._folder, run=run, lock=self._lock.pop_all(), **about)

    def _has_states(self) -> bool:
        """Whether there are complete states, of this process or of one before."""
        return any(self._states())

    def _states(self) -> Iterator[Path]:
        return (path for path in self._folder.glob("states/*") if path.name.isdigit())

    def remove(self) -> None:
        """Removes the states, unless another fit uses them, and what a killed process left."""
        self._remove_states()
        if (self._options.resume or self._options.overwrite) and self._out.exists():
            remove_staged(self._out)

    def _remove_states(self) -> None:
        """Removes the states alone, unless another fit uses them."""
        # Renamed first: states without their mark would pass for those of any fit.
        # A name may be too long for more.
        removed = self._folder.with_name(f".{self._folder.name[:50]}.removed")
        shutil.rmtree(removed, ignore_errors=True)
        with contextlib.suppress(ValueError, OSError), locked(self._folder):
            self._folder.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)


def remove_staged(out: Path) -> None:
    """Removes what a killed process wrote of a run.

    Args:
        out: Path of the run.
    """
    for left in out.parent.glob(f".{glob.escape(out.name)}.????????.*"):
        shutil.rmtree(left, ignore_errors=True)
