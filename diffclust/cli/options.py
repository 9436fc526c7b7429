"""What each command may be told, in types that need neither JAX nor the models.

`tyro` makes the parser and the help from these classes and their docstrings.
"""

import dataclasses
from typing import Annotated, Any, Literal

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
    Run,
    Size,
    Source,
    Split,
)
from diffclust.cli.parsing import option, parse_counts, parse_grid
from diffclust.cli.process_options import ALONE, ProcessOptions

Method = Literal[
    "kmeans",
    "ai-kmeans",
    "di-kmeans",
    "scattering-kmeans",
    "pssc",
    "di-spectral",
    "dti-kmeans",
    "dti-gmm",
    "ti-kmeans",
    "gmm",
    "shape-kmeans",
]
"""The keys of `diffclust.models.MODELS`."""

_NAMES = {
    name: f"num_{name}"
    for name in (
        "restarts",
        "removed",
        "neighbours",
        "dimensions",
        "scales",
        "angles",
        "representatives",
        "candidates",
    )
}
"""Fields of models that have another name on the command line."""

_OWN = "(default: the method's)"
_Number = Annotated[float | None, arg(metavar="X", help_behavior_hint=_OWN)]
_Count = Annotated[int | None, arg(metavar="N", help_behavior_hint=_OWN)]
_Counts = Annotated[str | None, arg(metavar="N[,N...]", help_behavior_hint=_OWN)]
_Rate = Annotated[int | None, arg(metavar="HZ", help_behavior_hint="(default: 48000)")]
_Seconds = Annotated[float | None, arg(metavar="S", help_behavior_hint="(default: 1)")]


@dataclasses.dataclass(frozen=True)
class MethodOptions:
    """Settings of methods; each method has some of them.

    Attributes:
        restarts: Runs from different seeds, of which the one of least loss is kept.
        max_passes: Most passes over the samples in a run.
        tolerance: Least relative fall of the loss that is worth another pass.
        no_split_merge: Do not leave poor optima by splitting one cluster and removing another.
        landmarks: Rows and columns of the landmark grid, such as 6x6.
        affine_penalty: Weight of the mean squared displacement by the affine part of a warp.
        bending_penalty: Weight of the bending energy of a warp.
        regularisation: Smoothing of the thin-plate spline.
        no_unit_norm: Take images and prototypes as they are, not scaled to unit norm.
        boundary: What lies outside of an image.
        pixel_weights: Whether the distance is the papers' or symmetric in image and prototype.
        weight_rounds: Rounds in which the penalties' weights are learned from the images.
        weights_per_cluster: Learn weights for each cluster of its own.
        affinity: Compare all images with each other (graph) or with a few representatives.
        neighbours: Neighbours of an image in the graph; with several, such as 5,8, their mean.
        removed: Leading principal directions of the scattering coefficients that are removed, or
            several numbers such as 1,2,3,4 for the mean of several graphs.
        dimensions: Principal directions that are kept after them.
        normalisation: What is done to scattering coefficients before that.
        scales: Scales of the scattering transform.
        angles: Angles of the scattering transform.
        representatives: How many representatives there are.
        candidates: Images that representatives are made of; with di-spectral, neighbours that are
            judged for each image.
        direction: Whether an image is moved onto its neighbours, or both ways are compared.
        transforms: How prototypes may be moved, in the order in which it is learned, such as
            aff-morpho-tps; out of aff, proj, tps, col, fullcol and morpho.
        backbone: The network that reads an image; residual is the paper's.
        window: Weigh pixels by a Gaussian of this width around the centre, as a fraction of the
            shorter side.
        deformation_penalty: Weight of the sizes of all deformations.
        refine_steps: Steps of descent that improve on predicted alignments in the end.
        align_steps: Steps of descent for each image and step.
        initial_variance: Variance of every pixel before the first step.
        min_deviation: A standard deviation whose square is added to all variances.
        steps: Most steps of each phase, such as 500,1000,1000,2000,500: without transforms, with
            one more each, and with all at a tenth of the learning rate.
        max_steps: Most steps of a run, where they are not given for each phase.
        no_curriculum: Have all transforms from the start.
        batch_size: Images a step.
        learning_rate: Learning rate of prototypes and networks.
        distance: What lies between a shape and a mean shape: how unlikely it is, or the
            Fisher-Rao or a Wasserstein distance of their landmarks.
        variances: What has a variance of its own: all landmarks together, each landmark, or each
            landmark in each cluster.
        covariances: Whether a landmark's coordinates vary by themselves or together.
        norm: Whether distances of landmarks are summed, or their squares.
        centres: Whether centres are means of coordinates, or Frechet means.
        registration: What is taken out of shapes: scale, rotation and place; no scale; nothing.
        reflection: Mirrored shapes are the same.
        seeding: How runs begin.
        prior: How many shapes the variances of all count as, in those of a cluster.
        min_variance: The least variance, as a fraction of the mean one.
        shortlist: Judge only so many clusters of an image after all transforms while training.
        least_share: Refill clusters that hold less than this share of an even one.
    """

    restarts: _Count = None
    max_passes: _Count = None
    tolerance: _Number = None
    no_split_merge: Flag = False
    landmarks: Annotated[str | None, arg(metavar="ROWSxCOLUMNS", help_behavior_hint=_OWN)] = None
    affine_penalty: _Number = None
    bending_penalty: _Number = None
    regularisation: _Number = None
    no_unit_norm: Flag = False
    boundary: Annotated[
        Literal["zero", "edge", "reflect"] | None,
        arg(metavar="{zero,edge,reflect}", help_behavior_hint=_OWN),
    ] = None
    pixel_weights: Annotated[
        Literal["uniform", "jacobian"] | None,
        arg(metavar="{uniform,jacobian}", help_behavior_hint=_OWN),
    ] = None
    weight_rounds: _Count = None
    weights_per_cluster: Flag = False
    affinity: Annotated[
        Literal["auto", "graph", "representatives"] | None,
        arg(metavar="{auto,graph,representatives}", help_behavior_hint=_OWN),
    ] = None
    neighbours: _Counts = None
    removed: _Counts = None
    dimensions: _Count = None
    normalisation: Annotated[
        Literal["none", "largest", "root", "standardise"] | None,
        arg(metavar="{none,largest,root,standardise}", help_behavior_hint=_OWN),
    ] = None
    scales: _Count = None
    angles: _Count = None
    representatives: _Count = None
    candidates: _Count = None
    direction: Annotated[
        Literal["forward", "min", "mean"] | None,
        arg(metavar="{forward,min,mean}", help_behavior_hint=_OWN),
    ] = None
    transforms: Annotated[str | None, arg(metavar="NAMES", help_behavior_hint=_OWN)] = None
    backbone: Annotated[
        Literal["quick", "residual"] | None,
        arg(metavar="{quick,residual}", help_behavior_hint=_OWN),
    ] = None
    window: _Number = None
    deformation_penalty: _Number = None
    refine_steps: _Count = None
    align_steps: _Count = None
    initial_variance: _Number = None
    min_deviation: _Number = None
    steps: _Counts = None
    max_steps: _Count = None
    no_curriculum: Flag = False
    batch_size: _Count = None
    learning_rate: _Number = None
    shortlist: _Count = None
    distance: Annotated[
        Literal[
            "likelihood", "fisher-rao", "wasserstein", "squared-wasserstein", "printed-wasserstein"
        ]
        | None,
        arg(
            metavar="{likelihood,fisher-rao,wasserstein,squared-wasserstein,printed-wasserstein}",
            help_behavior_hint=_OWN,
        ),
    ] = None
    variances: Annotated[
        Literal["round", "per_landmark", "per_cluster"] | None,
        arg(metavar="{round,per_landmark,per_cluster}", help_behavior_hint=_OWN),
    ] = None
    covariances: Annotated[
        Literal["diagonal", "full"] | None,
        arg(metavar="{diagonal,full}", help_behavior_hint=_OWN),
    ] = None
    norm: Annotated[Literal["l1", "l2"] | None, arg(metavar="{l1,l2}", help_behavior_hint=_OWN)] = (
        None
    )
    centres: Annotated[
        Literal["mean", "frechet"] | None, arg(metavar="{mean,frechet}", help_behavior_hint=_OWN)
    ] = None
    registration: Annotated[
        Literal["similarity", "rigid", "none"] | None,
        arg(metavar="{similarity,rigid,none}", help_behavior_hint=_OWN),
    ] = None
    reflection: Flag = False
    seeding: Annotated[
        Literal["random", "k-means++"] | None,
        arg(metavar="{random,k-means++}", help_behavior_hint=_OWN),
    ] = None
    prior: _Number = None
    min_variance: _Number = None
    least_share: _Number = None

    def given(self) -> dict[str, tuple[str, Any]]:
        """What was asked for.

        Returns:
            The option and the value for each field of a model that is to be set.

        Raises:
            ValueError: If the landmarks are no grid, or a list is none.
        """
        found = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None or value is False:
                continue
            name = field.name.removeprefix("no_")
            if name != field.name:
                value = False
            elif name == "landmarks":
                value = parse_grid(value, "landmarks", "6 or 6x4 (rows x columns)")
            elif name in ("neighbours", "removed", "steps"):
                value = parse_counts(value, name)
            found[_NAMES.get(name, name)] = (option(field.name), value)
        return found


@dataclasses.dataclass(frozen=True)
class Fit:
    """Cluster images or shapes, and write assignments, prototypes, a report and the model.

    Attributes:
        source: What to cluster: digits, mnist, usps, affine-mnist, diffeo-mnist, mnist-1k,
            mnist-color or affnist-like, a folder of pictures or of recordings, a .npy, .npz or IDX
            file, or tfds: and the name of a prepared set of TensorFlow Datasets; with shape-kmeans
             a table of landmarks, .npz, .csv or .tps.
        clusters: Number of clusters.
        out: Folder to write, new or empty.
        method: How to cluster.
        seed: Seed of all that is random.
        split: Which part of the source.
        labels: Column of a table of landmarks that holds the classes; for scores only.
        limit: At most so many images or shapes, drawn at random.
        size: Resize and centre-crop to this many pixels, such as 28 or 28x32 (height x width).
        channels: 1 to make all images grey, 3 to make all RGB.
        rate: Samples a second that recordings are resampled to.
        seconds: Length of what is read of each recording, about its middle.
        weights: A .npy file with the weight of each sample of the source.
        start: Folder of an earlier run of the same source with as many clusters; the fit begins
            with those, whatever method found them.
        mask: A picture of the images' size, black where pixels do not count and white where they
            do, or a .npy file; a picture is resized as the images are.
        options: Settings of the method.
        chunk_size: Images or shapes that are in memory at once.
        checkpoint_every: Seconds between two saved states of a long fit.
        checkpoints_kept: How many saved states are kept; the one before is there where the last
            one is damaged.
        resume: Go on with a fit that was broken off.
        stream: Read images as they are needed, never all at once: of a .npy or an uncompressed .npz
            file, or a folder of pictures. Without being asked to where, as 32-bit numbers, they
            would take more than half of the memory.
        skip_bad: Leave out files that cannot be read.
        overwrite: Replace the run that the folder holds, or a fit that was broken off.
        compare_with: Let these methods, such as kmeans,ai-kmeans, begin with the same prototypes,
            and lay theirs beside those of the fit in the report; with kmeans, ai-kmeans and
            di-kmeans. Each takes another run.
        maps: Images on the report's maps by t-SNE, at most 2000; 0 for no maps.
        no_report: Do not write report.html.
        dry_run: Say how long it would take and how much memory, and write nothing.
        sharing: One fit by several processes.
    """

    source: Source
    clusters: Annotated[int, arg(name="k", aliases=["-k"], metavar="K")]
    out: Folder
    method: Method = "di-kmeans"
    seed: int = 0
    split: Split = "all"
    labels: Labels = None
    limit: Limit = None
    size: Size = None
    channels: Channels = None
    rate: _Rate = None
    seconds: _Seconds = None
    weights: File = None
    start: Run = None
    mask: File = None
    options: Annotated[MethodOptions, arg(name="")] = MethodOptions()
    chunk_size: ChunkSize = None
    checkpoint_every: Annotated[float, arg(metavar="SECONDS")] = 60.0
    checkpoints_kept: Annotated[int, arg(metavar="N")] = 2
    resume: Flag = False
    stream: Flag = False
    skip_bad: Flag = False
    overwrite: Flag = False
    compare_with: Annotated[
        str | None, arg(metavar="METHOD[,METHOD...]", help_behavior_hint="")
    ] = None
    maps: Maps = 1_000
    no_report: Flag = False
    dry_run: Flag = False
    sharing: Annotated[ProcessOptions, arg(name="")] = ALONE


@dataclasses.dataclass(frozen=True)
class Predict:
    """Assign images or shapes to the clusters of a model, whose prototypes stay as they are.

    Attributes:
        model: Folder of a run of 'diffclust fit', or of a saved model.
        source: What to assign, as for 'diffclust fit'. Images are resized, centre-cropped and made
            grey or RGB like those that were fitted.
        out: Folder to write, new or empty.
        split: Which part of the source.
        labels: Column of a table of landmarks that holds the classes; for scores only.
        limit: At most so many images or shapes, drawn at random.
        seed: Seed of that draw, and of the examples in the report.
        rate: Samples a second that recordings are resampled to; by default as for the fit.
        seconds: Length of what is read of each recording; by default as for the fit.
        stream: Read images as they are needed, never all at once: of a .npy or an uncompressed .npz
            file, or a folder of pictures. Without being asked to where, as 32-bit numbers, they
            would take more than half of the memory.
        skip_bad: Leave out files that cannot be read.
        overwrite: Replace the run that the folder holds.
        maps: Images on the report's maps by t-SNE, at most 2000; 0 for no maps.
        no_report: Do not write report.html.
    """

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    source: Source
    out: Folder
    split: Split = "all"
    labels: Labels = None
    limit: Limit = None
    seed: int = 0
    rate: Annotated[int | None, arg(metavar="HZ", help_behavior_hint="")] = None
    seconds: Annotated[float | None, arg(metavar="S", help_behavior_hint="")] = None
    stream: Flag = False
    skip_bad: Flag = False
    overwrite: Flag = False
    maps: Maps = 1_000
    no_report: Flag = False


@dataclasses.dataclass(frozen=True)
class Demo:
    """Cluster the 1,797 handwritten digits that scikit-learn bundles with DI K-means.

    Attributes:
        out: Folder to write; an earlier demo in it is replaced.
        seed: Seed of all that is random.
    """

    out: Folder = "diffclust-demo"
    seed: int = 0
