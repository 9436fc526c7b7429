"""The options of each command, in types that need neither JAX nor the models.

`tyro` makes the parser and the help from these classes and their docstrings. The options of the
methods are read from `options.json`, which `tests/options_table.py` writes from the models.
"""

import dataclasses
import functools
import itertools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from tyro.conf import Positional, arg

from diffclust._renamed import SETTINGS, VALUES
from diffclust.methods import ALIGNING, DEFAULT, METHODS

if TYPE_CHECKING:
    MethodName = str
    MovingMethodName = str
else:
    MethodName = Literal[tuple(METHODS)]
    _MOVING = [name for name, m in METHODS.items() if m.comparable and m.moves == "samples"]
    MovingMethodName = Literal[tuple(_MOVING)]

_COMPARABLE = ", ".join(name for name, method in METHODS.items() if method.comparable)


@functools.cache
def method_options() -> dict[str, dict[str, dict[str, Any]]]:
    """The options of every method, by method and option; see `tests/options_table.py`."""
    return json.loads(resources.files("diffclust.cli").joinpath("options.json").read_text("utf-8"))


HAVING_GRIDS = tuple(
    name
    for name, own in method_options().items()
    if METHODS[name].has_evidence and "--landmarks" in own
)
"""The methods whose landmark grids can be compared."""


def _optional(metavar: str, hint: str = "") -> Any:
    """An option that need not be given; the hint says what happens where it is not."""
    return arg(metavar=metavar, help_behavior_hint=hint)


What = Literal[
    "assignments", "aligned", "restored", "params", "registration", "prototypes", "folders"
]
Split = Literal["all", "train", "test"]
Flag = Annotated[bool, arg(help_behavior_hint="")]
Folder = Annotated[str, arg(metavar="DIR")]
Source = Annotated[Positional[str], arg(metavar="SOURCE")]
File = Annotated[str | None, _optional("FILE")]
Run = Annotated[str | None, _optional("RUN")]
Labels = Annotated[str | None, _optional("COLUMN")]
LabelPattern = Annotated[str | None, _optional("REGEX")]
Limit = Annotated[int | None, _optional("N", "(default: all)")]
Size = Annotated[str | None, _optional("PIXELS", "(default: as they are)")]
Channels = Annotated[Literal[1, 3] | None, _optional("{1,3}", "(default: as they are)")]
ChunkSize = Annotated[int | None, _optional("N", "(default: from the device's memory)")]
Maps = Annotated[int, arg(metavar="N")]
Methods = Annotated[str | None, _optional("METHOD[,METHOD...]", f"(of {_COMPARABLE})")]
Grids = Annotated[str | None, _optional("GRID[,GRID...]", f"(with {', '.join(HAVING_GRIDS)})")]
Rate = Annotated[int | None, _optional("HZ")]
Seconds = Annotated[float | None, _optional("S")]
Settings = Mapping[str, Any]
"""Settings of a method that were given, by the names of its model's fields."""


@dataclasses.dataclass(frozen=True)
class ProcessOptions:
    """Options of a fit by several processes, on one machine or many.

    Attributes:
        processes: How many processes fit together; give the same command to each.
        process_id: The number of this process, from 0.
        coordinator: Address at which the others reach process 0, such as 10.0.0.1:1234.
        distributed: Instead of --processes, --process-id and --coordinator: take all three from the
            scheduler (SLURM, Open MPI and others that JAX knows).
        process_timeout: After this many seconds without a sign of one process, the others end.
    """

    processes: Annotated[int | None, _optional("N")] = None
    process_id: Annotated[int | None, _optional("I")] = None
    coordinator: Annotated[str | None, _optional("HOST:PORT")] = None
    distributed: Flag = False
    process_timeout: Annotated[int, arg(metavar="SECONDS")] = 100

    @property
    def place(self) -> tuple[str | None, int | None, int | None]:
        """Coordinator, number of processes, and which of them this is."""
        return self.coordinator, self.processes, self.process_id

    @property
    def is_distributed(self) -> bool:
        """Whether several processes were asked for."""
        return self.distributed or self.place != (None, None, None)

    def check(self) -> None:
        """Refuses what does not go together.

        Raises:
            ValueError: With what is missing.
        """
        if self.distributed and self.place != (None, None, None):
            raise ValueError(
                "--distributed takes the processes from the scheduler; leave out --processes, "
                "--process-id and --coordinator, or --distributed"
            )
        if not self.distributed and None in self.place:
            raise ValueError(
                "--processes, --process-id and --coordinator go together; give all three, or "
                "--distributed under a scheduler"
            )
        if self.coordinator is not None:
            host, _, port = self.coordinator.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError(
                    f"--coordinator must be like 10.0.0.1:1234, not {self.coordinator!r}"
                )


@dataclasses.dataclass(frozen=True)
class _Clustering:
    """Options that fits and sweeps share.

    Attributes:
        out: Folder to write, new or empty.
        seed: Random seed.
        split: Which part of the source.
        labels: Column of a table of landmarks that holds the classes; for scores only.
        label_pattern: A regular expression whose one group matches the class in a file's name, such
            as '^([a-z]+)_' for cat_12.png; for scores only.
        limit: At most this many images, shapes or series, drawn at random.
        size: Resize and centre-crop to this many pixels, such as 28 or 28x32 (height x width).
        pad: With --size, do not crop pictures, but pad them with the colour of their borders.
        channels: 1 to make all images grey, 3 to make all RGB.
        mask: A picture of the images' size, black where pixels do not count and white where they
            do, or a .npy file; a picture is resized as the images are.
        as_published: Take the settings of the method's paper, except for options that are given.
            Where a paper fits several settings and keeps the best, one of them is taken.
        settings: Settings of the method.
        chunk_size: How many images, shapes or series are processed at once.
        skip_bad: Leave out files that cannot be read, and blank images.
        rate: Sampling rate to which recordings are resampled; by default the lowest among them, at
            most 48000.
        seconds: How much of the middle of each recording is read; by default 1 s, or less if nine
            tenths of them are shorter.
        append_curves: Append the points of curves and outlines of a .tps file to the landmarks;
            without this option a file with curves is refused.
        no_scale: Do not multiply the coordinates of a .tps file by SCALE=.
        weights: A .npy file with the weight of each sample of the source.
        resume: Continue an interrupted run.
        stream: Read images when needed, never all at once, from a .npy or an uncompressed .npz file
            or a folder of pictures. By default this is done if they would take more than half of
            the memory.
        dry_run: Estimate time and memory, and write nothing.
    """

    source: Source
    clusters: Annotated[Any, arg(name="k", aliases=["-k"])]
    out: Folder = "diffclust-run"
    method: MethodName = DEFAULT
    seed: int = 0
    split: Split = "all"
    labels: Labels = None
    label_pattern: LabelPattern = None
    limit: Limit = None
    size: Size = None
    pad: Flag = False
    channels: Channels = None
    mask: File = None
    as_published: Flag = False
    settings: Settings = dataclasses.field(default_factory=dict)
    chunk_size: ChunkSize = None
    skip_bad: Flag = False
    overwrite: Flag = False
    maps: Maps = 1_000
    rate: Rate = None
    seconds: Seconds = None
    append_curves: Flag = False
    no_scale: Flag = False
    weights: File = None
    resume: Flag = False
    stream: Flag = False
    dry_run: Flag = False


@dataclasses.dataclass(frozen=True)
class Fit(_Clustering):
    """Cluster images, shapes or series, and write assignments, prototypes, a report and the model.

    Each method has options of its own: 'diffclust fit --method NAME --help' shows them.

    Attributes:
        source: What to cluster: digits, mnist, usps, affine-mnist, diffeo-mnist, mnist-1k,
            mnist-color or affnist-like, a folder of pictures or of recordings, a .npy, .npz or IDX
            file, or tfds: and the name of a prepared set of TensorFlow Datasets; with methods of
            shapes a table of landmarks, .npz, .csv or .tps; of series .npz, .csv, .tsv or .ts.
        clusters: Number of clusters.
        method: The method; for a file of shapes or series, by default the first method for these.
            'diffclust fit --method NAME --help' shows its options.
        overwrite: Replace the run in this folder, or an interrupted fit.
        maps: Images on the report's maps by t-SNE, at most 2000; 0 for no maps.
        start: Folder of an earlier run of the same source, by any method, with as many clusters;
            the fit starts from these. Not for methods on features or graphs.
        checkpoint_every: Seconds between two saved states of a long fit.
        checkpoints_kept: How many saved states are kept; if the last one is damaged, --resume uses
            the one before.
        compare_with: Also run other methods from the same prototypes, and show theirs beside those
            of the fit in the report.
        no_report: Do not write report.html.
        distribution: One fit by several processes.
    """

    clusters: Annotated[int, arg(name="k", aliases=["-k"], metavar="K")]
    start: Run = None
    checkpoint_every: Annotated[float, arg(metavar="SECONDS")] = 60.0
    checkpoints_kept: Annotated[int, arg(metavar="N")] = 2
    compare_with: Methods = None
    no_report: Flag = False
    distribution: Annotated[ProcessOptions, arg(name="")] = ProcessOptions()


@dataclasses.dataclass(frozen=True)
class Predict:
    """Assign images, shapes or series to the clusters of a fitted model.

    Attributes:
        model: Folder of a run of 'diffclust fit', or of a saved model.
        source: What to assign, as for 'diffclust fit'. Images are resized, centre-cropped and made
            grey or RGB like those that were fitted.
        out: Folder to write, new or empty.
        split: Which part of the source.
        labels: Column of a table of landmarks that holds the classes; for scores only.
        label_pattern: A regular expression whose one group matches the class in a file's name, such
            as '^([a-z]+)_' for cat_12.png; for scores only.
        limit: At most this many images, shapes or series, drawn at random.
        seed: Seed of that draw, and of the examples in the report.
        pad: Pad pictures instead of cropping them; by default as for the fit.
        rate: Sampling rate to which recordings are resampled; by default as for the fit.
        seconds: How much of the middle of each recording is read; by default as for the fit.
        append_curves: Append the points of curves of a .tps file to the landmarks; by default as
            for the fit.
        no_scale: Do not multiply coordinates by the SCALE= of a .tps file; by default as for the
            fit.
        stream: Read images when needed, never all at once, from a .npy or an uncompressed .npz file
            or a folder of pictures. By default this is done if they would take more than half of
            the memory.
        skip_bad: Leave out files that cannot be read, and blank images.
        overwrite: Replace the run in this folder.
        maps: Images on the report's maps by t-SNE, at most 2000; 0 for no maps.
        no_report: Do not write report.html.
        cluster_labels: The file labels.json that 'diffclust review' exports; its labels become a
            column of assignments.csv.
    """

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    source: Source
    out: Folder
    split: Split = "all"
    labels: Labels = None
    label_pattern: LabelPattern = None
    limit: Limit = None
    seed: int = 0
    pad: Flag = False
    rate: Rate = None
    seconds: Seconds = None
    append_curves: Flag = False
    no_scale: Flag = False
    stream: Flag = False
    skip_bad: Flag = False
    overwrite: Flag = False
    maps: Maps = 1_000
    no_report: Flag = False
    cluster_labels: File = None


@dataclasses.dataclass(frozen=True)
class Compare:
    """Compare runs: their scores, comparable losses, and how well their clusters agree.

    Attributes:
        runs: Folders of runs, at least two.
        out: Also write the comparison to a page (.html), a picture (.png) or a table (.csv).
        overwrite: Replace that file.
    """

    runs: Annotated[
        Positional[tuple[str, ...]], arg(metavar="RUN RUN ...", help_behavior_hint="(required)")
    ]
    out: File = None
    overwrite: Flag = False


@dataclasses.dataclass(frozen=True)
class Sweep(_Clustering):
    """Try several numbers of clusters, or landmark grids, and choose one without labels.

    The number of clusters is chosen at the elbow of the loss, or for spectral methods at the widest
    eigengap, if it is clear. A landmark grid is chosen by the evidence, which weighs how well a
    grid fits against how well it could fit anything. An interrupted sweep keeps its finished fits
    for --resume.

    Attributes:
        source: What to cluster, as for 'diffclust fit'.
        clusters: Numbers of clusters, such as 2-12 or 2,4,8; a single number with --grids.
        out: Folder to write, new or empty: a report, a curve, a table, and the run that was
            chosen.
        method: The method, as for fit. 'diffclust sweep --method NAME --help' shows its options.
        overwrite: Replace the sweep in this folder.
        maps: Images on the maps by t-SNE in the chosen run's report, at most 2000; 0 for no maps.
        grids: Landmark grids to try, such as 3,5,7x5 (rows x columns).
    """

    clusters: Annotated[str, arg(name="k", aliases=["-k"], metavar="K-K|K,K,...")]
    out: Folder = "diffclust-sweep"
    grids: Grids = None


@dataclasses.dataclass(frozen=True)
class Export:
    """Export a run's results as tables, arrays, pictures, or one folder of images per cluster.

    Attributes:
        run: Folder of a run of 'diffclust fit' or 'diffclust predict'.
        what: assignments: the table (.csv, .npz). params: the numbers by which each sample, or its
            prototype, was moved (.csv, .npz). aligned: samples after registration and alignment
            (.npz, a folder of PNG files; shapes and series .csv). restored: each image's prototype,
            drawn where and as the image was (.npz, a folder). registration: the centre of each
            figure in pixels, its relative size and its slant (.csv), or all params (.npz).
            prototypes: .npz, one .png, or a folder; mean shapes and series .csv. folders: the
            images themselves, in a folder for each cluster.
        out: File or folder to write, new or empty.
        source: Where the samples are now, if they were moved since the run.
        link: With folders, make symbolic links instead of copies.
        overwrite: Replace the file, or the folder of an earlier export.
    """

    run: Annotated[Positional[str], arg(metavar="RUN")]
    what: What
    out: Annotated[str, arg(metavar="PATH")]
    source: Annotated[str | None, _optional("SOURCE")] = None
    link: Flag = False
    overwrite: Flag = False


@dataclasses.dataclass(frozen=True)
class Review:
    """Name, correct and export clusters in a browser on this machine.

    Prints the address to open. Every edit is saved and can be undone; Ctrl-C ends the server.

    Attributes:
        run: Folder of a run of 'diffclust fit' or 'diffclust predict'.
        out: Folder for edits and exports; by default the run's folder with .review appended to its
            name.
        source: Where the samples are now, if they were moved since the run.
    """

    run: Annotated[Positional[str], arg(metavar="RUN")]
    out: Annotated[str | None, _optional("DIR")] = None
    source: Annotated[str | None, _optional("SOURCE")] = None


@dataclasses.dataclass(frozen=True)
class Demo:
    """Cluster the 1,797 handwritten digits that scikit-learn bundles.

    Attributes:
        out: Folder to write; an earlier demo in it is replaced.
        seed: Random seed.
        resume: Continue an interrupted run.
    """

    out: Folder = "diffclust-demo"
    seed: int = 0
    resume: Flag = False


@dataclasses.dataclass(frozen=True)
class Align:
    """Align pictures to their common mean (congealing): K-means with one cluster.

    Attributes:
        source: What to align, as for 'diffclust fit'.
        out: Folder to write: mean.png, a picture of every image in aligned/, and the fit in run/.
        method: How images may be moved: by affine maps, or bent by splines.
        size: Resize and centre-crop to this many pixels, such as 28 or 28x32 (height x width).
        pad: With --size, do not crop pictures, but pad them with the colour of their borders.
        channels: 1 to make all images grey, 3 to make all RGB.
        mask: A picture of the images' size, black where pixels do not count and white where they
            do, or a .npy file; a picture is resized as the images are.
        limit: At most this many images, drawn at random.
        seed: Random seed.
        settings: Settings of the method.
        skip_bad: Leave out files that cannot be read, and blank images.
        overwrite: Replace what an earlier call wrote.
        resume: Continue an interrupted run.
    """

    source: Source
    out: Folder
    method: MovingMethodName = ALIGNING
    size: Size = None
    pad: Flag = False
    channels: Channels = None
    mask: File = None
    limit: Limit = None
    seed: int = 0
    settings: Settings = dataclasses.field(default_factory=dict)
    skip_bad: Flag = False
    overwrite: Flag = False
    resume: Flag = False


Options = Fit | Predict | Align | Compare | Sweep | Export | Review | Demo

COMMANDS: dict[str, type] = {kind.__name__.lower(): kind for kind in get_args(Options)}

_VALUE_TYPES: dict[str, tuple[type, str]] = {
    "integer": (int, "N"),
    "integers": (str, "N[,N...]"),
    "number": (float, "X"),
    "grid": (str, "ROWSxCOLUMNS"),
    "text": (str, "NAMES"),
}
"""What the values of options are parsed as, and called in the help."""


def option(field: str) -> str:
    """A field as it is written on the command line.

    Args:
        field: Its name, such as `max_passes`.

    Returns:
        For example `--max-passes`.
    """
    return f"--{field.replace('_', '-')}"


def field_of(name: str) -> str:
    """The field of an option, such as `max_passes` of `--max-passes`."""
    return name.removeprefix("--").replace("-", "_")


def current_arguments(arguments: Sequence[str]) -> list[str]:
    """The command line with methods' options of version 0.1 under the names that they have now.

    Args:
        arguments: What stands on the command line.

    Returns:
        The same with former names and values replaced; what to write is said on standard error.
    """
    now, setting = [], ""
    for word in arguments:
        name, equals, value = word.partition("=")
        new = VALUES.get((setting, word), word)
        if name.startswith("--"):
            setting = SETTINGS.get(field_of(name), field_of(name))
            renamed = option(setting) if field_of(name) in SETTINGS else name
            new = f"{renamed}{equals}{VALUES.get((setting, value), value)}"
        if new != word:
            print(f"{word} is now {new}; the former goes in diffclust 0.3", file=sys.stderr)
        now.append(new)
    return now


def with_method_options(command: type, method: str | None) -> type:
    """A command that also has the options of a method.

    Args:
        command: `Fit`, `Sweep` or `Align`.
        method: The method; None for a command without such options, as in its help.

    Returns:
        A subclass, whose field `settings` is of a class that is made of the method's table.
    """
    table = {} if method is None else method_options()[method]
    fields = [(field_of(name), *_typed(name, about)) for name, about in table.items()]
    kind = dataclasses.make_dataclass("settings", fields, frozen=True)
    settings = ("settings", Annotated[kind, arg(name=str(method))], kind())
    more = {"bases": (command,), "namespace": {"__doc__": command.__doc__}, "frozen": True}
    return dataclasses.make_dataclass(command.__name__, [settings], **more)


def _typed(name: str, about: dict[str, Any]) -> tuple[Any, Any]:
    """Type and default of an option's field; None and False stand for what is not given."""
    kind, default, choices = about["type"], about["default"], about.get("choices", ())
    if kind == "flag":
        # That what --no-... turns off is on by default goes without saying.
        hint = "(default: off)" if default is False else ""
        return Annotated[bool, arg(help=about["help"], help_behavior_hint=hint)], False
    typed, metavar = _VALUE_TYPES.get(kind) or (Literal[tuple(choices)], f"{{{','.join(choices)}}}")
    if isinstance(default, list):
        default = ("x" if kind == "grid" else ",").join(map(str, default))
    # What happens where it is not given, the help says.
    hint = "" if default is None else f"(default: {default})"
    described = arg(help=about["help"], metavar=metavar, help_behavior_hint=hint)
    return Annotated[(str if _is_list(name) else typed) | None, described], None


def _is_list(name: str) -> bool:
    """Whether an option takes several numbers with some method."""
    return any(table.get(name, {}).get("type") == "integers" for table in method_options().values())


def settings_from(method: str, options: object) -> Settings:
    """The settings of a method that were given.

    Args:
        method: The method.
        options: What `tyro` made of the class that `with_method_options` has given the command.

    Returns:
        Values by the names of the model's settings.

    Raises:
        ValueError: If landmarks are no grid, or a list is none.
    """
    settings = {}
    for name, about in method_options()[method].items():
        field, kind = field_of(name), about["type"]
        value = getattr(options, field)
        if value is None or value is False:
            continue
        if kind == "flag":
            value = not about["default"]
        elif kind == "grid":
            value = parse_grid(value, field, "6 or 6x4 (rows x columns)")
        elif _is_list(name):
            value = parse_counts(value, field)
            if kind == "integer" and len(value) != 1:
                raise ValueError(f"{name} must be one number for {method}, not {value}")
            value = value[0] if kind == "integer" else value
        settings[about["setting"]] = value
    return settings


def flags() -> set[str]:
    """The options of all commands and methods that take no value."""
    kinds = (*COMMANDS.values(), ProcessOptions)
    fields = itertools.chain.from_iterable(map(dataclasses.fields, kinds))
    common = {option(field.name) for field in fields if field.type == Flag}
    tables = method_options().values()
    return common.union(n for own in tables for n, about in own.items() if about["type"] == "flag")


def refuse_foreign_options(method: str, arguments: Sequence[str]) -> None:
    """Refuses options that other methods have and the chosen one has not.

    Args:
        method: The method.
        arguments: What stands on the command line.

    Raises:
        ValueError: With the options that the method has.
    """
    own = method_options()[method]
    every = {name for table in method_options().values() for name in table}
    given = [word.partition("=")[0].replace("_", "-") for word in arguments]
    if foreign := [name for name in dict.fromkeys(given) if name in every and name not in own]:
        raise ValueError(
            f"{method} has no option {', '.join(foreign)}; leave it out, or take of its own: "
            f"{', '.join(own)}"
        )


def parse_counts(text: str, name: str) -> tuple[int, ...]:
    """Reads `"5"` or `"5,8"`.

    Args:
        text: What was given.
        name: The option's name in messages.

    Returns:
        Whole numbers.

    Raises:
        ValueError: If it is something else.
    """
    if re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", text.strip()) is None:
        raise ValueError(f"{option(name)} must be like 5 or 5,8, not {text!r}")
    return tuple(int(part) for part in text.split(","))


def parse_grid(text: str, name: str, example: str) -> tuple[int, int]:
    """Reads `"28"` or `"28x32"`.

    Args:
        text: What was given.
        name: The option's name in messages.
        example: What would do.

    Returns:
        Two integers, twice the same where one was given.

    Raises:
        ValueError: If it is something else.
    """
    match = re.fullmatch(r"([0-9]{1,6})(?:[x×]([0-9]{1,6}))?", text.strip().lower())
    if match is None:
        raise ValueError(f"{option(name)} must be like {example}, not {text!r}")
    return int(match[1]), int(match[2] or match[1])
