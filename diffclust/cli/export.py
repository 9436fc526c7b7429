"""`diffclust export`: what a run found as tables, arrays, pictures, or a folder a cluster."""

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from diffclust.cli.progress_bar import ProgressBar
from diffclust.cli.run_options import Export, What
from diffclust.cli.runs import SavedRun, read_run
from diffclust.cli.samples_again import assigned, load_samples
from diffclust.data import Collection, Dataset
from diffclust.models import AbstractGradientModel, Result
from diffclust.storage.staging import check_target, staged, staged_file

_ENDINGS: dict[What, tuple[str, ...]] = {
    "assignments": (".csv", ".npz"),
    "params": (".csv", ".npz"),
    "aligned": (".npz", ""),
    "prototypes": (".npz", ".png", ""),
    "folders": ("",),
}
"""What each can be written as; nothing stands for a folder."""

_MARK = "export.json"
"""A folder that holds it was written by this command, and may be replaced."""

_AT_ONCE = 512
"""Aligned images that are in memory at once when they are written one by one."""


def export(options: Export) -> None:
    """Writes what a run found in another form.

    Args:
        options: What was asked for.

    Raises:
        ValueError: If it cannot be done.
        OSError: If something cannot be read or written.
    """
    ending = _ending(options)
    if options.link and options.what != "folders":
        raise ValueError("--link is for --what folders; leave it out")
    run = read_run(options.run)
    if ending:
        with staged_file(options.out, overwrite=options.overwrite) as path, ProgressBar() as bar:
            told = _FILES[options.what](path, run, options, bar)
    else:
        target = check_target(
            options.out,
            kind="export",
            is_one=lambda folder: (folder / _MARK).is_file(),
            overwrite=options.overwrite,
        )
        for kept in (run.folder, Path(run.summary["source"]["source"])):
            if kept.exists() and Path(os.path.realpath(kept)).is_relative_to(target):
                raise ValueError(
                    f"{options.out!r} holds {str(kept)!r}, which is read; give another"
                )
        with staged(target, replace=options.overwrite) as folder, ProgressBar() as bar:
            told = _FOLDERS[options.what](folder, run, options, bar)
            mark = {"what": options.what, "run": options.run}
            (folder / _MARK).write_text(json.dumps(mark, indent=2) + "\n", "utf-8")
    print(f"{told}: {options.out}")


def _ending(options: Export) -> str:
    """How the output is written, told by its name."""
    allowed, found = _ENDINGS[options.what], Path(options.out).suffix.lower()
    if found in allowed:
        return found
    # Folders may have dots in their names.
    if "" in allowed and found not in (".csv", ".npz", ".png", ".html", ".npy", ".json"):
        return ""
    named = [ending or "a folder" for ending in allowed]
    raise ValueError(
        f"--what {options.what} is written as {' or '.join(named)}, not {options.out!r}; change "
        "--out"
    )


def _assignments(path: Path, run: SavedRun, options: Export, bar: ProgressBar) -> str:
    """The run's table; as arrays, with the exact numbers."""
    del options, bar
    if path.suffix.lower() == ".csv":
        shutil.copyfile(run.folder / "assignments.csv", path)
    else:
        with (run.folder / "assignments.csv").open(
            encoding="utf-8", errors="surrogateescape", newline=""
        ) as file:
            rows = list(csv.DictReader(file))
        np.savez(
            path,
            index=run.indices,
            cluster=run.clusters,
            distance=np.array([float(row["distance"]) for row in rows]),
            margin=np.array([float(row["margin"]) for row in rows]),
        )
    return _counted(run)


def _params(path: Path, run: SavedRun, options: Export, bar: ProgressBar) -> str:
    """How each sample, or its prototype, was moved."""
    result, _ = _assigned(run, options, bar, samples="model" in run.summary)
    params = result.outcome.assignment.params
    if params.shape[1] == 0:
        raise ValueError(f"{result.model.method} moves nothing, so there are no params to export")
    if path.suffix.lower() == ".npz":
        np.savez(path, index=run.indices, cluster=run.clusters, params=params)
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["index", "cluster", *(f"param_{i}" for i in range(params.shape[1]))])
            for row, (index, cluster) in enumerate(
                zip(run.indices.tolist(), run.clusters.tolist(), strict=True)
            ):
                writer.writerow([index, cluster, *map(str, params[row])])
    return f"{_counted(run)}, {params.shape[1]} params each"


def _aligned_file(path: Path, run: SavedRun, options: Export, bar: ProgressBar) -> str:
    """All aligned samples as one array."""
    result, dataset = _assigned(run, options, bar, samples=True)
    assert dataset is not None
    parts = [part for _, part in _aligned(result, dataset, bar)]
    np.savez(path, index=run.indices, cluster=run.clusters, aligned=np.concatenate(parts))
    return f"{_counted(run)}, aligned"


def _aligned_folder(folder: Path, run: SavedRun, options: Export, bar: ProgressBar) -> str:
    """Aligned images as PNG files, in a folder for each cluster."""
    result, dataset = _assigned(run, options, bar, samples=True)
    if not isinstance(dataset, Dataset):
        raise ValueError("aligned shapes are no images; give an --out that ends in .npz")
    named = _Names(folder, run)
    for begun, part in _aligned(result, dataset, bar):
        for position, image in enumerate(part, start=begun):
            _save_picture(named.path(position, ".png"), image)
    return f"{_counted(run)}, aligned"


def _prototype_file(path: Path, run: SavedRun, options: Export, bar: ProgressBar) -> str:
    """The prototypes as an array, or on one sheet."""
    del options, bar
    result = run.result()
    if path.suffix.lower() == ".npz":
        counts = np.bincount(run.clusters, minlength=run.num_clusters)
        np.savez(path, prototypes=result.prototypes, counts=counts)
    else:
        shutil.copyfile(run.folder / "prototypes.png", path)
    return f"{run.num_clusters} prototypes"


def _prototype_folder(folder: Path, run: SavedRun, options: Export, bar: ProgressBar) -> str:
    """Each prototype as a PNG file in its own range of intensities, pixel for pixel."""
    del options, bar
    result = run.result()
    if result.prototypes.ndim != 4:
        raise ValueError("mean shapes are no images; give an --out that ends in .npz or .png")
    for cluster, prototype in enumerate(result.prototypes):
        _save_picture(folder / f"{_padded(cluster, run)}.png", prototype, own_range=True)
    return f"{run.num_clusters} prototypes"


def _sorted_folders(folder: Path, run: SavedRun, options: Export, bar: ProgressBar) -> str:
    """The images themselves in a folder for each cluster."""
    files = [Path(place) for place in run.places] if run.column == "path" else []
    if options.source is not None or not any(run.places):
        dataset = load_samples(run, run.result(), options.source, bar)
        if not isinstance(dataset, Dataset):
            raise ValueError("shapes are no files of their own, to be sorted into folders")
        files = [Path(place) for place in dataset.paths or ()]
        if not files:
            return _drawn_folders(folder, run, options, dataset, bar)
    if lost := [file for file in files if not file.is_file()]:
        raise ValueError(
            f"{len(lost)} of {len(files)} files are gone, such as {str(lost[0])!r}; say where they "
            "are now with --source"
        )
    named = _Names(folder, run)
    for position, file in enumerate(files):
        path = named.path(position, file.suffix, stem=file.stem)
        if options.link:
            path.symlink_to(file.absolute())
        else:
            shutil.copyfile(file, path)
        bar.show("linking" if options.link else "copying", position + 1, len(files))
    return f"{_counted(run)} {'linked' if options.link else 'copied'}"


def _drawn_folders(
    folder: Path, run: SavedRun, options: Export, dataset: Dataset, bar: ProgressBar
) -> str:
    """Images that are no files are written as such."""
    if options.link:
        raise ValueError("these images are no files that could be linked to; leave out --link")
    named = _Names(folder, run)
    for begun in range(0, len(dataset), _AT_ONCE):
        part = np.asarray(dataset.images[begun : begun + _AT_ONCE])
        for position, image in enumerate(part, start=begun):
            _save_picture(named.path(position, ".png"), image)
        bar.show("writing", begun + len(part), len(dataset))
    return f"{_counted(run)} written"


class _Names:
    """Paths of files in a folder for each cluster, no two of them alike on any file system."""

    def __init__(self, folder: Path, run: SavedRun) -> None:
        self._run = run
        self._folders = [folder / _padded(cluster, run) for cluster in range(run.num_clusters)]
        self._taken: set[tuple[int, str]] = set()
        for each in self._folders:
            each.mkdir()

    def path(self, position: int, suffix: str, *, stem: str | None = None) -> Path:
        cluster, index = int(self._run.clusters[position]), int(self._run.indices[position])
        name = f"{index}{suffix}" if stem is None else f"{stem}{suffix}"
        more = f"-{index}"
        while (cluster, name.casefold()) in self._taken:
            name = f"{stem}{more}{suffix}"
            more += "-"
        self._taken.add((cluster, name.casefold()))
        return self._folders[cluster] / name


def _assigned(
    run: SavedRun, options: Export, bar: ProgressBar, *, samples: bool
) -> tuple[Result, Collection | None]:
    """The result, assigned to the run's samples, and, where they are needed, these."""
    result = run.result()
    if not samples:
        return result, None
    if options.what == "aligned" and isinstance(result.model, AbstractGradientModel):
        raise ValueError(
            f"{result.model.method} moves prototypes, not images, so no image is aligned; export "
            "params or prototypes"
        )
    if options.what == "aligned" and result.outcome.assignment.params.shape[1] == 0:
        raise ValueError(f"{result.model.method} moves nothing, so no image is aligned")
    dataset = load_samples(run, result, options.source, bar)
    return assigned(run, result, dataset, bar), dataset


def _aligned(
    result: Result, dataset: Collection, bar: ProgressBar
) -> Iterator[tuple[int, np.ndarray]]:
    """Positions and aligned samples, some at a time."""
    params = result.outcome.assignment.params
    for begun in range(0, len(dataset), _AT_ONCE):
        here = slice(begun, min(begun + _AT_ONCE, len(dataset)))
        yield begun, result.align(np.asarray(dataset.samples[here]), params[here])
        bar.show("aligning", here.stop, len(dataset))


def _padded(cluster: int, run: SavedRun) -> str:
    return f"cluster-{cluster:0{len(str(run.num_clusters - 1))}d}"


def _counted(run: SavedRun) -> str:
    return f"{len(run.indices)} {'shapes' if run.column != 'path' else 'images'}"


def _save_picture(path: Path, image: np.ndarray, *, own_range: bool = False) -> None:
    from PIL import Image

    from diffclust.plotting import displayable

    pixels = displayable(image, own_range=own_range)
    Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).save(path)


_Writer = Callable[[Path, SavedRun, Export, ProgressBar], str]
_FILES: dict[Any, _Writer] = {
    "assignments": _assignments,
    "params": _params,
    "aligned": _aligned_file,
    "prototypes": _prototype_file,
}
_FOLDERS: dict[Any, _Writer] = {
    "aligned": _aligned_folder,
    "prototypes": _prototype_folder,
    "folders": _sorted_folders,
}
