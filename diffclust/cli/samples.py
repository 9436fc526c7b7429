"""Reads the samples that a command names, and checks that its model can cluster them."""

import contextlib
import ctypes
import dataclasses
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diffclust import _validation
from diffclust.cli.options import Fit, Predict, Sweep, option, parse_grid
from diffclust.cli.runs import OF_RECORDINGS, OF_TPS, SavedRun, file_names, read_run, summary_of
from diffclust.data import (
    Collection,
    DataError,
    Dataset,
    LandmarkSet,
    PaddedSize,
    Recordings,
    SeriesSet,
    check_landmarks,
    load,
    load_landmarks,
    load_series,
    load_weights,
)
from diffclust.data.dataset import encode_labels
from diffclust.data.folder import load_pictures
from diffclust.data.source import DRAWN_SETS, MADE_SETS, holds_recordings, is_name, is_picture
from diffclust.data.stream import open_stream, outgrows_memory
from diffclust.image_source import Images, ImageSource, checksum
from diffclust.masks import mask_size, mask_weights
from diffclust.methods import plural
from diffclust.models import AbstractModel, Result
from diffclust.progress_bar import ProgressBar
from diffclust.solvers import Progress

_REMEDY = "say where they are to 'diffclust export' or 'review' with --source"


def load_samples(
    options: Fit | Predict, like: AbstractModel | Result, bar: ProgressBar
) -> Collection:
    """The images, shapes or series that were asked for, checked.

    Args:
        options: The command's options.
        like: The model that will be fitted; or a result, whose sample shape the samples get.
        bar: The progress bar.

    Returns:
        The samples.

    Raises:
        ValueError: If they cannot be read or clustered, or an option is for others.
    """
    model = like.model if isinstance(like, Result) else like
    if model.descriptor.sample_kind == "image":
        dataset = load_images(options, model, loader_arguments(options, like, bar))
        dataset = without_blank(model, dataset) if options.skip_bad else dataset
    else:
        length = like.sample_shape[0] if isinstance(like, Result) else None
        dataset = load_table(options, model, length)
    check_samples(model, dataset, fitted=isinstance(like, Result), is_cropped=not options.pad)
    return with_labels(options, dataset)


def with_labels(options: Fit | Predict, dataset: Collection) -> Collection:
    """The samples with labels from the names of their files, where that was asked for.

    Args:
        options: The command's options.
        dataset: The samples.

    Returns:
        The same samples.

    Raises:
        ValueError: If the pattern is no regular expression with one group, a name does not match,
            or the samples are no files.
    """
    pattern = options.label_pattern
    if pattern is None:
        return dataset
    try:
        expression = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(
            f"--label-pattern {pattern!r} is no regular expression: {error}"
        ) from error
    if expression.groups != 1:
        raise ValueError(
            f"--label-pattern {pattern!r} has {expression.groups} groups; put the class, and "
            "nothing else, in parentheses, as in '^([a-z]+)_'; (?:...) groups without capturing"
        )
    if not isinstance(dataset, Dataset) or dataset.paths is None:
        raise ValueError("--label-pattern is for a folder of files; leave it out")
    names = file_names(dataset.paths)
    classes = [match[1] if (match := expression.search(name)) else None for name in names]
    if unmatched := [repr(n) for n, label in zip(names, classes, strict=True) if not label]:
        raise ValueError(
            f"--label-pattern {pattern!r} finds no class in the names of {len(unmatched)} of "
            f"{len(names)} files: {_validation.some(unmatched)}; give one that fits all"
        )
    labels, label_names = encode_labels([label for label in classes if label])
    return dataclasses.replace(dataset, labels=labels, label_names=label_names)


def load_images(options: Fit | Predict, model: AbstractModel, common: Mapping[str, Any]) -> Dataset:
    """The images that were asked for.

    Args:
        options: The command's options.
        model: The model that clusters them.
        common: Arguments from `loader_arguments`.

    Returns:
        The images.

    Raises:
        ValueError: If they cannot be read, or an option is for shapes.
    """
    _refuse_options(options, ("labels", *OF_TPS), "a table of landmarks, and these are images")
    size, limit, source = common["size"], options.limit, options.source
    is_set = is_name(source)
    if options.stream and is_set:
        raise ValueError(
            f"{source!r} is the name of a set, which is read at once; leave out --stream, or give "
            f"{'./' + source!r} for a folder"
        )
    # A method that needs all images at once has them in memory, for as long as they fit there.
    streams = model.descriptor.streams and not is_set
    if options.stream or (streams and outgrows_memory(source, size=size, limit=limit)):
        _refuse_options(options, OF_RECORDINGS, "recordings, and these are pictures")
        map_large_blocks()
        dataset = open_stream(source, **common)
        needed = 4 * math.prod(dataset.samples.shape) / 2**30
        print(
            f"images are read as they are needed: {len(dataset):,} of them, which would take "
            f"{needed:.1f} GiB of memory",
            file=sys.stderr,
        )
        return dataset
    if isinstance(options, Predict) and is_picture(source):
        _refuse_options(options, OF_RECORDINGS, "recordings, and this is a picture")
        path = Path(source)
        return load_pictures(path.parent, [Path(path.name)], **common)
    return load(source, rate=options.rate, seconds=options.seconds, **common)


def loader_arguments(
    options: Fit | Predict, like: AbstractModel | Result, bar: ProgressBar
) -> dict[str, Any]:
    """Returns the arguments of all loaders of images, but for the source.

    Args:
        options: The command's options.
        like: The model that will be fitted; or a result, whose sample shape the images get.
        bar: The progress bar.

    Returns:
        Arguments by name.
    """
    chosen = {name: getattr(options, name) for name in ("split", "skip_bad", "limit", "seed")}
    if isinstance(like, Result):
        *size, channels = like.given_shape or like.sample_shape
        if like.model.makes_grey and channels != 1:
            channels = None
        if (mask := getattr(like.model, "mask", None)) is not None:
            size = mask_size(mask)  # registration may have enlarged the images
        size = PaddedSize(*size) if options.pad else tuple(size)
    else:
        assert isinstance(options, Fit)
        size, channels = size_of(options), options.channels
    return {**chosen, "size": size, "channels": channels, "progress": bar.reading}


def load_table(
    options: Fit | Predict, model: AbstractModel, length: int | None = None
) -> LandmarkSet | SeriesSet:
    """The shapes or series that were asked for.

    Args:
        options: The command's options.
        model: The model that clusters them.
        length: Of the series that were fitted, to which shorter ones are filled up; None in a fit.

    Returns:
        The shapes or series.

    Raises:
        ValueError: If they cannot be read, or an option is for other samples.
    """
    for_images = ("split", "size", "pad", "channels", *OF_RECORDINGS, "stream", "skip_bad")
    these = plural(model.descriptor.sample_kind)
    if these == "series":
        _refuse_options(options, ("labels", *OF_TPS), "a table of landmarks, and these are series")
    _refuse_options(options, for_images, f"images, and these are {these}")
    if is_name(options.source):
        raise ValueError(
            f"{options.source!r} holds images, and {model.method} clusters {these}; give the path "
            f"of a file of {these}, or another --method"
        )
    if these == "series":
        return load_series(options.source, length=length).limit(options.limit, options.seed)
    if not _is_tps(options.source):
        _refuse_options(options, OF_TPS, "a .tps file")
    loaded = load_landmarks(
        options.source,
        labels=options.labels,
        curves="append" if options.append_curves else "refuse",
        use_scale=not options.no_scale,
    )
    if isinstance(options, Predict):
        known = _source_of(options.model)
        loaded = _in_order(loaded, known.get("landmark_names"), options.source)
    return loaded.limit(options.limit, options.seed)


def _source_of(model: str) -> dict[str, Any]:
    """How the samples of a run were read, whose folder or `model` within it is given."""
    folder = Path(os.path.realpath(model))
    run = folder.parent if folder.name == "model" and not summary_of(folder) else folder
    return summary_of(run).get("source", {})


def _is_tps(source: str) -> bool:
    return Path(source).suffix.lower() == ".tps"


def _in_order(shapes: LandmarkSet, names: Sequence[str] | None, source: str) -> LandmarkSet:
    """Shapes whose landmarks come in the order of those that were fitted, by their names."""
    own = shapes.landmark_names
    if own is None or names is None or len(own) != len(names) or len({*own}) < len(own):
        return shapes
    if {*own} != {*names}:
        others = _validation.some(repr(name) for name in names if name not in own)
        raise ValueError(
            f"{source!r} has no landmarks {others}, which were fitted; give landmarks their names"
        )
    order = [own.index(name) for name in names]
    return dataclasses.replace(
        shapes, landmarks=shapes.landmarks[:, order], landmark_names=tuple(names)
    )


def size_of(options: Fit | Sweep) -> tuple[int, int] | None:
    """Height and width to which images are brought.

    Args:
        options: The command's options.

    Returns:
        Both in pixels, or None where that was not asked for.

    Raises:
        ValueError: If it is no size.
    """
    if options.size is None:
        if options.pad:
            raise ValueError("--pad brings pictures to a --size; give one, such as --size 64")
        return None
    size = parse_grid(options.size, "size", "28 or 28x32")
    return PaddedSize(*size) if options.pad else size


def inputs_of(options: Fit) -> list[str]:
    """The files and folders that a fit reads.

    Args:
        options: The command's options.

    Returns:
        Their paths.
    """
    return [options.source, *filter(None, (options.weights, options.mask, options.start))]


def sample_arguments(options: Fit, dataset: Collection) -> dict[str, np.ndarray]:
    """Returns what a fit is given for each sample: a weight, a cluster to start from.

    Args:
        options: The command's options.
        dataset: The samples.

    Returns:
        Arguments for a fit, each with an entry for every sample; nothing where none was given.

    Raises:
        ValueError: If they do not fit the samples.
    """
    arguments = {}
    if options.weights is not None:
        is_part, total = options.source in DRAWN_SETS, len(dataset) + len(dataset.skipped)
        drawn = None if is_part or options.limit is None else (options.limit, options.seed)
        if is_part or drawn is not None or (dataset.indices >= total).any():
            total = None  # the set is drawn from a larger one, of unknown size
        weights = load_weights(options.weights, dataset.indices, total=total, drawn=drawn)
        arguments["sample_weight"] = weights
    if options.start is not None:
        arguments["assignments"] = _clusters_of(options, dataset)
    return arguments


def _clusters_of(options: Fit, dataset: Collection) -> np.ndarray:
    """The clusters that a run before put the samples in."""
    path, num_clusters = str(options.start), options.clusters
    run = read_run(path)
    if run.num_clusters != num_clusters:
        raise ValueError(
            f"the run in {path!r} has {run.num_clusters} clusters, not {num_clusters}; give -k "
            f"{run.num_clusters}, or another --start"
        )
    if options.source in MADE_SETS and run.summary["seed"] != options.seed:
        raise ValueError(
            f"the run in {path!r} has images made with --seed {run.summary['seed']}, not "
            f"{options.seed}; give the same seed"
        )
    order = np.argsort(run.indices)
    rows = order[np.searchsorted(run.indices, dataset.indices, sorter=order) % len(order)]
    about = run.summary["source"]
    # Samples that are no files are known by what holds them.
    names = file_names(place or options.source for place in dataset.places[1])
    fitted = file_names(run.places[row] or about["source"] for row in rows)
    known = run.indices[rows] == dataset.indices
    known &= (about["split"] == options.split) & (np.array(fitted) == np.array(names))
    if not known.all():
        first = int(known.argmin())
        raise ValueError(
            f"the run in {path!r} has no cluster for {dataset.noun} {dataset.indices[first]}"
            f" ({names[first]!r}); --start takes a run of the same source and split"
        )
    return run.clusters[rows]


def as_fitted(options: Predict) -> Predict:
    """Files are made images as they were for the fit, where that is known and not given.

    Args:
        options: The command's options.

    Returns:
        The same with the settings of the fit.

    Raises:
        ValueError: If recordings were fitted, and the source is a folder without any.
    """
    known = _source_of(options.model)
    flags = ("pad", *OF_TPS) if _is_tps(options.source) else ("pad",)
    wanted = {name: getattr(options, name) or known.get(name, False) for name in flags}
    if os.path.isdir(options.source):
        if known.get("rate") is not None and not holds_recordings(Path(options.source)):
            raise ValueError(
                f"{options.model!r} was fitted to recordings, and {options.source!r} holds none; "
                "give a folder of recordings"
            )
        wanted |= {
            name: known.get(name) for name in OF_RECORDINGS if getattr(options, name) is None
        }
    return dataclasses.replace(options, **wanted)


def reload_samples(
    run: SavedRun, result: Result, source: str | None, bar: ProgressBar
) -> Collection:
    """Reads the samples of a run again from their source.

    Args:
        run: The run.
        result: Its model.
        source: Their source now; None for that of the run.
        bar: The progress bar.

    Returns:
        The samples, in the run's order.

    Raises:
        ValueError: If they cannot be read, or are others than those of the run.
    """
    about = run.summary["source"]
    place = run.located(about["source"]) if source is None else source
    # Earlier runs do not have all of them.
    names = ("split", "limit", "pad", "labels", "label_pattern", *OF_RECORDINGS, *OF_TPS)
    given = {name: about[name] for name in names if name in about}
    given |= {"seed": run.summary["seed"], "skip_bad": bool(about["skipped"])}
    try:
        dataset = load_samples(Predict(str(run.folder), place, "", **given), result, bar)
    except DataError as error:
        wrong = str(error).removesuffix(".")
        raise ValueError(f"{wrong}; if they are elsewhere now, {_REMEDY}") from error
    same = file_names(dataset.places[1]) == file_names(run.places)
    same &= np.array_equal(dataset.indices, run.indices)
    if not isinstance(dataset.samples, ImageSource) and about.get("crc32") is not None:
        same &= checksum(dataset.samples) == about["crc32"]
    if not same:
        samples = plural(dataset.noun)
        if source is not None:
            raise ValueError(f"{place!r} does not hold the {samples} of this run; change --source")
        raise ValueError(f"{place!r} no longer holds the {samples} of this run; {_REMEDY}")
    return dataset


def _refuse_options(options: Fit | Predict, names: Sequence[str], of_what: str) -> None:
    """Refuses options that have no meaning for these samples."""
    for name in names:
        if getattr(options, name, None) != getattr(type(options), name, None):
            raise ValueError(f"{option(name)} is for {of_what}; leave it out")


def without_blank(model: AbstractModel, dataset: Dataset) -> Dataset:
    """Leaves out the images of a single colour, and counts them as skipped.

    Args:
        model: The model, whose mask may hide what an image shows.
        dataset: The images.

    Returns:
        The others.

    Raises:
        ValueError: If there are none.
    """
    blank, indices = _without_figures(model, dataset.images), dataset.indices
    if not blank.size:
        return dataset
    if len(blank) == len(dataset):
        raise ValueError(
            f"all {len(dataset)} images that can be read are blank, so --skip-bad leaves none"
        )
    names = dataset.paths or [f"image {index}" for index in indices]
    skipped = (*dataset.skipped, *(names[i] for i in blank))
    kept = dataset.take(np.delete(np.arange(len(dataset)), blank))
    return dataclasses.replace(kept, skipped=skipped)


def check_samples(
    model: AbstractModel,
    dataset: Collection,
    *,
    fitted: bool = False,
    is_cropped: bool = True,
    warn: bool = True,
) -> None:
    """Refuses samples that the model cannot cluster.

    The message names blank images by their files or indices, and shapes on a line by their names.

    Args:
        model: The model.
        dataset: The samples.
        fitted: Whether clusters are there already, so that there may be fewer samples.
        is_cropped: Whether pictures of other proportions were cropped, not padded.
        warn: Whether blank images that the model can cluster are named on stderr.

    Raises:
        ValueError: With what is wrong.
    """
    if model.num_clusters > len(dataset) and not fitted:
        raise ValueError(
            f"the number of {plural(dataset.noun)} is {len(dataset)}, too few for "
            f"{model.num_clusters} clusters; give at most -k {len(dataset)}"
        )
    if isinstance(dataset, LandmarkSet):
        # The model knows only their indices, which a limit changes.
        check_landmarks(dataset.landmarks, shapes=dataset.names)
    blank, message = np.empty(0, np.int64), ""
    if isinstance(dataset, Dataset):
        blank = _without_figures(model, dataset.images)
        names = [f" ({path!r})" for path in dataset.paths or ()] or [""] * len(dataset)
        places = [f"{dataset.indices[i]}{names[i]}" for i in blank]
        where = "" if getattr(model, "mask", None) is None else " where the mask shows them"
        message = (
            f"{blank.size} of {len(dataset)} images are blank (of a single colour{where}), at "
            f"index {_validation.some(places)}; remove them, or leave them out with --skip-bad"
        )
        if is_cropped and dataset.paths and not isinstance(dataset, Recordings):
            size = "x".join(map(str, dataset.images.shape[1:3]))
            message += f"; if cropping to {size} pixels left nothing of them, give --pad"
    try:
        model.prepared(dataset.samples)
    except ValueError as error:
        if not blank.size or "blank" not in str(error):
            raise
        raise DataError(message) from error
    if isinstance(dataset, SeriesSet):
        lowest, highest = np.nanmin(dataset.series, axis=1), np.nanmax(dataset.series, axis=1)
        blank = np.flatnonzero((lowest == highest).all(axis=1))
        message = (
            f"{blank.size} of {len(dataset)} series are constant, at index "
            f"{_validation.some(dataset.indices[blank])}; remove them, as they are like no others "
            "and may take a cluster of their own"
        )
    if blank.size and warn:
        print(f"warning: {message}", file=sys.stderr, flush=True)


def _without_figures(model: AbstractModel, images: Images) -> np.ndarray:
    """Indices of the images of a single colour, as far as a mask shows them."""
    mask = getattr(model, "mask", None)
    if mask is None or isinstance(images, ImageSource):
        return _validation.uniform_images(images)
    visible = mask_weights(mask)[..., 0] > 0.0
    if visible.shape != images.shape[1:3]:
        return np.empty(0, np.int64)  # which the model will refuse
    return _validation.uniform_images(images[:, visible][:, :, None])


_MMAP_THRESHOLD = -3
"""`M_MMAP_THRESHOLD` of glibc's `malloc.h`: from how many bytes on a block is mapped by itself."""


def map_large_blocks() -> None:
    """Makes every block of 128 KiB and more go back to the system when it is freed.

    glibc, once it has seen blocks of megabytes freed, takes the next from a heap that small blocks
    then keep from shrinking: a process would grow by several chunks for every million images. It
    begins at 128 KiB; set by hand, the bound no longer rises. Without glibc, nothing is done.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 2**17)


def trim_memory() -> None:
    """Gives the system back what small blocks have left free, where the C library is glibc."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


class MemoryTrimmer:
    """A callback that trims the memory whenever a fit comes to another stage, restart or pass."""

    _seen: tuple[str, int, int] | None = None

    def __call__(self, progress: Progress) -> None:
        """Trims where something has ended.

        Args:
            progress: What the solver reports.
        """
        here = (progress.stage, progress.restart, progress.iteration)
        if here != self._seen:
            self._seen = here
            trim_memory()
