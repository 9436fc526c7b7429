"""`diffclust export`: what a run holds as tables, arrays, pictures, or a folder a cluster."""

import contextlib
import dataclasses
import math
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diffclust.cli import runs, summary
from diffclust.cli.options import Export, What
from diffclust.cli.samples import reload_samples
from diffclust.data import Collection, Dataset
from diffclust.methods import METHODS, plural
from diffclust.models import Result, of_images, restored, unaligned, warped_prototypes
from diffclust.models.selection import predicted
from diffclust.parallel.chunks import largest_read
from diffclust.plotting import as_picture, displayable
from diffclust.progress_bar import ProgressBar
from diffclust.report.text import plain
from diffclust.storage.staging import EXPORT_MARK, read_object, staged_file, write_json

_BATCH_SIZE = 512
"""Images that are in memory at once, at most."""


@dataclasses.dataclass(frozen=True)
class _Export:
    """An export to `path`: one file with this ending, or a folder."""

    path: Path
    ending: str
    run: runs.SavedRun
    options: Export
    bar: ProgressBar

    def samples(self) -> str:
        """The number of samples, in words."""
        return summary.plural(len(self.run.indices), self._singular)

    @property
    def noun(self) -> str:
        """The word for a sample, in the plural."""
        return plural(self._singular)

    @property
    def _singular(self) -> str:
        is_sound = self.run.summary["source"].get("rate") is not None
        return "recording" if is_sound else METHODS[self.run.summary["method"]].words.noun

    def folder(self, cluster: int) -> Path:
        """The folder of a cluster, or a file's path without its ending."""
        digits = len(str(self.run.num_clusters - 1))
        return self.path / f"cluster-{cluster:0{digits}d}"

    def save_arrays(self, **arrays: Any) -> None:
        """Writes arrays of all samples, beside their indices and clusters."""
        # To a path that ends in .NPZ it would add another ending.
        with self.path.open("wb") as file:
            np.savez(file, index=self.run.indices, cluster=self.run.clusters, **arrays)

    def save_table(self, columns: Mapping[str, np.ndarray]) -> None:
        """Writes columns of all samples, beside their indices, names and clusters."""
        run, header = self.run, ["index", self.run.column, "cluster", *columns]
        rows = zip(run.indices, run.places, run.clusters, *columns.values(), strict=True)
        runs.write_table(self.path, header, rows)

    def check_table(self, result: Result) -> None:
        """Refuses a table of samples that have none: images, and series of several channels."""
        kind = result.sample_kind
        if kind != "shape" and (kind != "series" or result.sample_shape[-1] != 1):
            what = "series of several channels" if kind == "series" else self.noun
            raise ValueError(f"{what} are written as .npz, not as a table; change --out")

    def save_points(
        self, kind: str, points: np.ndarray, names: Iterable[Any], clusters: Iterable[Any]
    ) -> None:
        """Writes shapes, or series, as a table that fits read: a row a landmark, or a series."""
        rows: Iterator[Iterable[Any]]
        if kind == "shape":
            known = self.run.summary["source"].get("landmark_names") or ()
            distinct = len({name.strip() for name in known} - {""}) == len(known) > 0
            landmarks = known if distinct else range(1, points.shape[1] + 1)
            header = ["shape", "landmark", *"xyz"[: points.shape[2]], "cluster"]
            names = list(names)
            if len(set(names)) < len(names):
                # Of shapes of one name a table would have one.
                names = [f"{name}-{i}" for i, name in enumerate(names)]
            rows = (
                (name, landmark, *place, cluster)
                for name, shape, cluster in zip(names, points, clusters, strict=True)
                for landmark, place in zip(landmarks, shape, strict=True)
            )
        else:
            # No header, and nothing where a value is missing.
            rows = (["" if np.isnan(x) else str(x) for x in one[:, 0]] for one in points)
            header = next(rows)
        runs.write_table(self.path, header, rows)


def export(options: Export) -> None:
    """Writes the contents of a run in another format.

    Args:
        options: The command's options.

    Raises:
        ValueError: If it cannot be done.
        OSError: If something cannot be read or written.
    """
    write, endings = _WRITERS[options.what]
    ending = _ending(options, endings)
    if options.link and options.what != "folders":
        raise ValueError("--link is for --what folders; leave it out")
    run, out, replace = runs.read_run(options.run), options.out, options.overwrite
    if ending:
        runs.refuse_read(out, run.inputs(options.source))
        target = staged_file(out, overwrite=replace)
    else:
        target = export_folder(run, options.what, out, options.source, overwrite=replace)
    with target as path, ProgressBar() as bar:
        message = write(_Export(path, ending, run, options, bar))
    with runs.after_writing(options.out):
        print(f"{message}: {plain(options.out)}")


@contextlib.contextmanager
def export_folder(
    run: runs.SavedRun, what: str, out: str, source: str | None, *, overwrite: bool
) -> Iterator[Path]:
    """A folder for an export, which takes its place only when the block ends without an error.

    Args:
        run: The run that is exported.
        what: What the folder holds.
        out: Path of the folder.
        source: Where the samples are now; None where they were.
        overwrite: Whether the folder of an earlier export is replaced.

    Yields:
        The folder to write into.

    Raises:
        ValueError: If something else is there, or an input.
        OSError: If it cannot be written.
    """
    inputs = run.inputs(source)
    with runs.new_folder(out, "export", _is_export, inputs, overwrite=overwrite) as folder:
        yield folder
        mark_export(folder, what, str(run.folder))


def mark_export(folder: Path, what: str, run: str) -> None:
    """Marks a folder as an export, so that it may be replaced and is not read as a source.

    Args:
        folder: The folder.
        what: What the folder holds.
        run: The run that was exported.
    """
    write_json(folder / EXPORT_MARK, {"what": what, "run": run})


def _is_export(folder: Path) -> bool:
    """Whether a folder is an export; one of `align` holds a run, which no export replaces."""
    return read_object(folder / EXPORT_MARK).get("what", "align") != "align"


def _ending(options: Export, allowed: Sequence[str]) -> str:
    """The ending of the output, which chooses its format; empty for a folder."""
    ending = Path(options.out).suffix.lower()
    if ending in allowed:
        return ending
    # Folders may have dots in their names.
    if "" in allowed and ending not in (".csv", ".npz", ".png", ".html", ".npy", ".json"):
        return ""
    named = [ending or "a folder" for ending in allowed]
    raise ValueError(
        f"--what {options.what} is written as {' or '.join(named)}, not {options.out!r}; change "
        "--out"
    )


def _assignments(job: _Export) -> str:
    """The run's table; as arrays, with the exact numbers."""
    if job.ending == ".csv":
        shutil.copyfile(job.run.folder / "assignments.csv", job.path)
    else:
        job.save_arrays(distance=job.run.distances, margin=job.run.margins)
    return job.samples()


def _params(job: _Export) -> str:
    """Tables of the params by which each sample, or its prototype, was moved."""
    run, result = job.run, job.run.result()
    if "model" in run.summary:
        result, _ = assign_again(run, result, job.options.source, job.bar)
    params = result.outcome.assignment.params
    if params.shape[1] == 0:
        raise ValueError(f"{result.model.method} moves nothing, so there are no params to export")
    if job.ending == ".npz":
        job.save_arrays(params=params)
    else:
        job.save_table({f"param_{i}": column for i, column in enumerate(params.T)})
    return f"{job.samples()}, {params.shape[1]} params each"


def assign_again(
    run: runs.SavedRun, result: Result, source: str | None, bar: ProgressBar
) -> tuple[Result, Collection]:
    """The result, assigned to the run's samples, and these.

    A prediction is made again, as runs of it keep no alignments.

    Args:
        run: The run.
        result: Its model.
        source: Where the samples are now; None where they were.
        bar: The progress bar.

    Returns:
        The result and the samples.

    Raises:
        ValueError: If they cannot be read, or are others than those of the run.
    """
    dataset = reload_samples(run, result, source, bar)
    if "model" in run.summary:
        assignment = result.predict(dataset.samples, callback=bar)
        result = dataclasses.replace(result, outcome=predicted(result.outcome, assignment))
    return result, dataset


def _aligned(job: _Export) -> str:
    """Aligned samples, or those that were only registered: an array, or PNG files in folders."""
    result = job.run.result()
    method, aligns = result.model.method, result.outcome.assignment.params.shape[1] > 0
    if not aligns and not result.model.registers:
        raise ValueError(f"{method} moves nothing, so there is nothing to align")
    if not job.ending and result.sample_kind != "image":
        raise ValueError(f"aligned {job.noun} are no images; --out must end in .npz or .csv")
    if job.ending == ".csv":
        job.check_table(result)
    result, dataset = assign_again(job.run, result, job.options.source, job.bar)
    params, samples = result.outcome.assignment.params, dataset.samples
    batches = _batches(job, samples, "aligning")

    def part(batch: slice) -> np.ndarray:
        array = np.asarray(samples[batch])
        return result.align(array, params[batch]) if aligns else result.registered(array)[:]

    parts = map(part, batches)
    if job.ending != ".csv":
        # With the classes, so that a fit of the file is scored as this one was.
        names, codes = dataset.label_names, dataset.labels
        labels = {} if codes is None or names is None else {"labels": np.asarray(names)[codes]}
        return _write_images(job, parts, **labels)
    aligned = np.concatenate(list(parts))
    job.save_points(result.sample_kind, aligned, job.run.places, job.run.clusters)
    return f"{job.samples()}, aligned"


def _restored(job: _Export) -> str:
    """Each image's prototype as the image lay, where alignment and registration had moved it."""
    result = job.run.result()
    moves = result.model.descriptor.moves
    if not of_images(result).registers and moves == "nothing":
        raise ValueError(f"no {job.noun} were registered or aligned, so nothing is to be restored")
    result, dataset = assign_again(job.run, result, job.options.source, job.bar)
    assignment, samples = result.outcome.assignment, dataset.samples

    def part(batch: slice) -> np.ndarray:
        clusters = assignment.clusters[batch]
        drawn, params = result.prototypes[clusters], assignment.params[batch]
        if moves == "prototypes":
            drawn = warped_prototypes(result, clusters, params)
        elif moves == "samples":
            drawn = unaligned(result, params, drawn)
        return restored(result, np.asarray(samples[batch]), drawn)

    return _write_images(job, map(part, _batches(job, samples, "restoring")))


def _registration(job: _Export) -> str:
    """Where each image's figure lies, how large it is and how far it leans; or all params."""
    result = job.run.result()
    model = of_images(result)
    if not model.registers:
        raise ValueError(f"no {job.noun} were registered; register them with fit --register")
    frame = model.prototype_frame
    if job.ending == ".csv" and frame.place == "none":
        raise ValueError(
            "colours alone were normalised, not places; give an --out that ends in .npz"
        )
    samples = reload_samples(job.run, result, job.options.source, job.bar).samples
    batches = _batches(job, samples, "registering")
    params = np.concatenate([frame.params_of(np.asarray(samples[batch])) for batch in batches])
    if job.ending == ".npz":
        job.save_arrays(params=params)
    else:
        found = frame.figures(params, samples.shape[1:]).T
        job.save_table(dict(zip(("x", "y", "size", "slant"), found, strict=True)))
    return f"{job.samples()}, what registration took out"


def _write_images(job: _Export, parts: Iterable[np.ndarray], **others: np.ndarray) -> str:
    if job.ending:
        job.save_arrays(**{job.options.what: np.concatenate(list(parts))}, **others)
    else:
        _save_pictures(job, parts)
    return f"{job.samples()}, {job.options.what}"


def _batches(job: _Export, samples: Any, activity: str) -> Iterator[slice]:
    """Slices of the samples, a batch each, shorter where they are large; shows the progress."""
    count, size = len(job.run.indices), min(_BATCH_SIZE, largest_read(math.prod(samples.shape[1:])))
    for start in range(0, count, size):
        yield slice(start, start + size)
        job.bar.show(activity, min(start + size, count), count)


def _prototypes(job: _Export) -> str:
    """The prototypes as an array, on one sheet, or as files in a range of intensities each."""
    result, count = job.run.result(), job.run.num_clusters
    if job.ending == ".npz":
        counts = np.bincount(job.run.clusters, minlength=count)
        with job.path.open("wb") as file:
            np.savez(file, prototypes=result.prototypes, counts=counts)
    elif job.ending == ".csv":
        job.check_table(result)
        names = (f"cluster {cluster}" for cluster in range(count))
        job.save_points(result.sample_kind, result.prototypes, names, range(count))
    elif job.ending == ".png":
        shutil.copyfile(job.run.folder / "prototypes.png", job.path)
    elif result.sample_kind != "image":
        raise ValueError(f"mean {job.noun} are no images; --out must end in .npz, .csv or .png")
    else:
        for cluster, prototype in enumerate(result.prototypes):
            picture = as_picture(displayable(prototype, own_range=True))
            picture.save(f"{job.folder(cluster)}.png")
    return summary.plural(count, "prototype")


def _folders(job: _Export) -> str:
    """The images themselves in a folder for each cluster; as PNG files where they are no files."""
    run, source, link = job.run, job.options.source, job.options.link
    places = filter(None, run.places) if run.column == "path" else ()
    files = [Path(run.located(place)) for place in places]
    if source is not None or not files:
        dataset = reload_samples(run, run.result(), source, job.bar)
        if not isinstance(dataset, Dataset):
            raise ValueError(f"{job.noun} are no files of their own, to be sorted into folders")
        files = [Path(place) for place in dataset.paths or ()]
        if not files and link:
            raise ValueError("these images are no files that could be linked to; leave out --link")
        if not files:
            batches = _batches(job, dataset.images, "writing")
            _save_pictures(job, (dataset.images[batch] for batch in batches))
            return f"{job.samples()} written"
    if missing := [file for file in files if not file.is_file()]:
        raise ValueError(
            f"{len(missing)} of {len(files)} files are gone, such as {str(missing[0])!r}; say "
            "where they are now with --source"
        )
    fitted = (run.folder / "summary.json").stat().st_mtime
    newer = [file for file in files if file.stat().st_mtime > fitted]
    if newer and source is None:
        print(
            f"warning: {len(newer)} of {len(files)} files are newer than the run, such as "
            f"{str(newer[0])!r}, and may have changed; give --source to have them compared",
            file=sys.stderr,
        )
    activity, paths = "linking" if link else "copying", _paths(job, files)
    for position, (file, path) in enumerate(zip(files, paths, strict=True), start=1):
        if link:
            path.symlink_to(file.absolute())
        else:
            shutil.copyfile(file, path)
        job.bar.show(activity, position, len(files))
    return f"{job.samples()} {'linked' if link else 'copied'}"


def _paths(job: _Export, files: Iterable[Path]) -> Iterator[Path]:
    """Returns the paths of files, in a folder for each cluster."""
    for cluster in range(job.run.num_clusters):
        job.folder(cluster).mkdir()
    folders = map(job.folder, job.run.clusters.tolist())
    yield from distinct_paths(folders, files, job.run.indices.tolist())


def distinct_paths(
    folders: Iterable[Path], files: Iterable[Path], indices: Iterable[int]
) -> Iterator[Path]:
    """Returns distinct paths for files, distinct on case-insensitive file systems too.

    Args:
        folders: Folder for each file.
        files: Files, whose names are kept where they can be.
        indices: A number for each file, which is added to a name that is taken.

    Yields:
        A path for each file.
    """
    taken: set[str] = set()
    for folder, file, index in zip(folders, files, indices, strict=True):
        path, more = folder / file.name, f"-{index}"
        while str(path).casefold() in taken:
            path = path.with_name(f"{file.stem}{more}{file.suffix}")
            more += "-"
        taken.add(str(path).casefold())
        yield path


def _save_pictures(job: _Export, parts: Iterable[Any]) -> None:
    """Writes images as PNG files that are named by their indices, in a folder for each cluster."""
    save_pictures(_paths(job, (Path(f"{index}.png") for index in job.run.indices)), parts)


def save_pictures(paths: Iterable[Path], parts: Iterable[Any]) -> None:
    """Writes images as files.

    Args:
        paths: A file for each image.
        parts: Batches of images.
    """
    images = (image for part in parts for image in np.asarray(part))
    for path, image in zip(paths, images, strict=True):
        as_picture(displayable(image)).save(path)


_WRITERS: dict[What, tuple[Callable[[_Export], str], tuple[str, ...]]] = {
    "assignments": (_assignments, (".csv", ".npz")),
    "params": (_params, (".csv", ".npz")),
    "registration": (_registration, (".csv", ".npz")),
    "aligned": (_aligned, (".npz", ".csv", "")),
    "restored": (_restored, (".npz", "")),
    "prototypes": (_prototypes, (".npz", ".csv", ".png", "")),
    "folders": (_folders, ("",)),
}
"""What writes each, and what it can be written as; no ending stands for a folder."""
