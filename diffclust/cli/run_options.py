"""What the commands around runs may be told, in types that need neither JAX nor the models."""

import dataclasses
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from diffclust.cli.option_types import (
    Channels,
    ChunkSize,
    File,
    Flag,
    Folder,
    Labels,
    Limit,
    Maps,
    Size,
    Source,
    Split,
)
from diffclust.cli.options import Method, MethodOptions

_NONE = MethodOptions()

What = Literal["assignments", "aligned", "params", "prototypes", "folders"]


@dataclasses.dataclass(frozen=True)
class Compare:
    """Compare runs: their scores, their losses where these can be compared, and how they agree.

    Attributes:
        runs: Folders of runs, at least two.
        out: Write the comparison too: a page (.html), a picture (.png) or a table (.csv).
        overwrite: Replace that file.
    """

    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="RUN RUN ...")]
    out: File = None
    overwrite: Flag = False


@dataclasses.dataclass(frozen=True)
class Export:
    """Write what a run found in other forms: tables, arrays, pictures, or a folder a cluster.

    Attributes:
        run: Folder of a run of 'diffclust fit' or 'diffclust predict'.
        what: assignments and params as .csv or .npz; aligned samples as .npz or a folder of PNG
            files; prototypes as .npz, as one .png, or a folder of PNG files; folders: the images
            themselves, in a folder for each cluster.
        out: File or folder to write, new or empty.
        source: Where the samples are now, if they have been moved since.
        link: With folders, make symbolic links instead of copies.
        overwrite: Replace the file, or the folder of an earlier export.
    """

    run: Annotated[Positional[str], arg(metavar="RUN")]
    what: What
    out: Annotated[str, arg(metavar="PATH")]
    source: Annotated[str | None, arg(metavar="SOURCE", help_behavior_hint="")] = None
    link: Flag = False
    overwrite: Flag = False


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Try several numbers of clusters, or landmark grids, and choose one without labels.

    Numbers of clusters are chosen at the elbow of the loss, with spectral methods at the widest
    eigengap; landmark grids by the evidence.

    Attributes:
        source: What to cluster, as for 'diffclust fit'.
        clusters: Numbers of clusters, such as 2-12 or 2,4,8; one number where grids are tried.
        out: Folder to write, new or empty: a report, a curve, a table, and the run that was
            chosen.
        grids: Landmark grids to try, such as 3,5,7x5 (rows x columns), with di-kmeans.
        method: How to cluster.
        seed: Seed of all that is random.
        split: Which part of the source.
        labels: Column of a table of landmarks that holds the classes; for scores only.
        limit: At most so many images or shapes, drawn at random.
        size: Resize and centre-crop to this many pixels, such as 28 or 28x32 (height x width).
        channels: 1 to make all images grey, 3 to make all RGB.
        mask: A picture, black where pixels of the images do not count, or a .npy file.
        options: Settings of the method.
        chunk_size: Images or shapes that are in memory at once.
        skip_bad: Leave out files that cannot be read.
        overwrite: Replace the sweep that the folder holds.
        maps: Images on the maps by t-SNE in the chosen run's report, at most 2000; 0 for no maps.
    """

    source: Source
    clusters: Annotated[str, arg(name="k", aliases=["-k"], metavar="K-K|K,K,...")]
    out: Folder
    grids: Annotated[str | None, arg(metavar="GRID[,GRID...]", help_behavior_hint="")] = None
    method: Method = "di-kmeans"
    seed: int = 0
    split: Split = "all"
    labels: Labels = None
    limit: Limit = None
    size: Size = None
    channels: Channels = None
    mask: File = None
    options: Annotated[MethodOptions, arg(name="")] = _NONE
    chunk_size: ChunkSize = None
    skip_bad: Flag = False
    overwrite: Flag = False
    maps: Maps = 1_000
