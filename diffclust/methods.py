"""The methods as data: one descriptor each, for whatever has to know a method by name.

The command line, reports, comparisons, estimates, the scikit-learn estimators and the documentation
read these descriptors; none of them tests the type of a model. Importing this module imports
neither JAX nor the models.
"""

import dataclasses
import functools
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Words:
    """The words for a method's figures.

    Attributes:
        criterion: What a fit minimises, such as `"loss"` or `"normalised cut"`.
        distance: What `Assignment.distances` holds.
        distance_short: The same in a word or two.
        nearest: What samples of small distance are called.
        farthest: What samples of large distance are called.
        is_density: Whether the distance is a negative log density, which may be negative.
        empty: Why a cluster without samples is empty.
        noun: What a sample is called.
        prototype: What a prototype is called.
        space: Where clusters were found, if not among the samples: a space of features, say.
    """

    criterion: str = "loss"
    distance: str = "squared distance to the prototype"
    distance_short: str = "distance"
    nearest: str = "nearest"
    farthest: str = "farthest"
    is_density: bool = False
    empty: str = "no image is nearest to this prototype"
    noun: str = "image"
    prototype: str = "prototype"
    space: str = ""

    @property
    def is_squared(self) -> bool:
        """Whether the distance is a squared one."""
        return self.distance.startswith("squared")


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of clustering.

    Attributes:
        name: Its name on the command line and in files.
        model: Name of its class in `diffclust.models`.
        title: Its name in a sentence.
        sample_kind: What it clusters: images, shapes given by landmarks, series over time, or any
            samples, as a model of one's own does.
        solver: What fits it: passes of Lloyd's algorithm, gradient steps, or the stages of a
            spectral method.
        moves: What is moved by the alignments that decide: the samples, the prototypes, or nothing.
        words: What its figures are called; a model's settings may change them (`model.words`).
        streams: Whether it clusters images that are read as they are needed.
        published: Whether its paper has settings of its own: the model's `as_published`.
        comparable: Whether it can be fitted from the k-means++ start of the others of that kind.
        takes_start: Whether a fit can start from given assignments.
        drops_weightless: Whether samples of weight zero are left out of a fit, and assigned as new
            ones.
        has_prototypes: Whether prototypes decide; otherwise they are the means of finished
            clusters.
        is_mixture: Whether clusters are the components of a mixture.
        selection: What speaks for a number of clusters: the elbow of the loss, or the widest gap
            between eigenvalues of the graph.
        has_evidence: Whether its warps are penalised, so that fits have an evidence.
        analogue: Name of the method for images that this one is for its kind of samples: the
            command line takes it, given such samples, for this one's own.
    """

    name: str
    model: str
    title: str
    sample_kind: Literal["image", "shape", "series", "any"] = "image"
    solver: Literal["lloyd", "gradient", "graph"] = "lloyd"
    moves: Literal["samples", "prototypes", "nothing"] = "samples"
    words: Words = Words()
    streams: bool = True
    published: bool = False
    comparable: bool = False
    takes_start: bool = True
    drops_weightless: bool = False
    has_prototypes: bool = True
    is_mixture: bool = False
    selection: Literal["elbow", "eigengap"] = "elbow"
    has_evidence: bool = False
    analogue: str | None = None


WARPED_WORDS = Words(distance="squared distance to the warped prototype")
DENSITY_WORDS = Words(
    distance="negative log density",
    distance_short="−log density",
    nearest="likeliest",
    farthest="least likely",
    is_density=True,
    empty="no image is likeliest in it",
)
_SHAPES = dataclasses.replace(
    DENSITY_WORDS,
    criterion="negative log-likelihood",
    empty="no shape is likeliest in it",
    noun="shape",
    prototype="mean shape",
)
_EMBEDDED = Words(
    criterion="normalised cut",
    distance="distance in the spectral embedding",
    empty="no image was put into it",
    space="spectral embedding",
)
_SERIES = Words(
    distance="squared distance to the mean series",
    empty="no series is nearest to this mean series",
    noun="series",
    prototype="mean series",
)
_FEATURES = dataclasses.replace(
    _EMBEDDED, criterion="loss", distance="distance in the feature space", space="feature space"
)

_invariant = functools.partial(Method, published=True, comparable=True, has_evidence=True)
_graph = functools.partial(
    Method,
    solver="graph",
    moves="nothing",
    streams=False,
    takes_start=False,
    drops_weightless=True,
    has_prototypes=False,
)
_spectral = functools.partial(_graph, words=_EMBEDDED, selection="eigengap")
_gradient = functools.partial(Method, solver="gradient", moves="prototypes")
_mixture = functools.partial(_gradient, words=DENSITY_WORDS, is_mixture=True)
_shapes = functools.partial(
    Method, sample_kind="shape", words=_SHAPES, streams=False, drops_weightless=True
)

DEFAULT, ALIGNING = "pssc", "di-kmeans"
"""Names of the methods that are taken where none is given: to find groups, and to align samples."""

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("kmeans", "KMeans", "K-means", moves="nothing", comparable=True),
        _invariant("ai-kmeans", "AffineInvariantKMeans", "AI K-means"),
        _invariant(ALIGNING, "DeformationInvariantKMeans", "DI K-means"),
        _graph(
            "scattering-kmeans", "ScatteringKMeans", "K-means in scattering space", words=_FEATURES
        ),
        _spectral(DEFAULT, "ProjectedScatteringSpectralClustering", "PSSC", published=True),
        _spectral(
            "di-spectral",
            "DeformationInvariantSpectralClustering",
            "deformation-invariant spectral clustering",
            moves="samples",
        ),
        _gradient("dti-kmeans", "DTIKMeans", "DTI K-means", words=WARPED_WORDS, published=True),
        _mixture("dti-gmm", "DTIGaussianMixture", "DTI Gaussian mixture", published=True),
        _gradient("ti-kmeans", "TransformationInvariantKMeans", "TI K-means", words=WARPED_WORDS),
        _mixture("gmm", "GaussianMixture", "Gaussian mixture", moves="nothing"),
        _shapes("shape-kmeans", "ShapeKMeans", "shape K-means", published=True),
        Method(
            "series-kmeans",
            "SeriesKMeans",
            "K-means of series",
            sample_kind="series",
            words=_SERIES,
            streams=False,
            analogue=ALIGNING,
        ),
        _spectral(
            "series-spectral",
            "SeriesSpectralClustering",
            "spectral clustering of series",
            sample_kind="series",
            moves="samples",
            words=dataclasses.replace(
                _EMBEDDED, empty="no series was put into it", noun="series", prototype="mean series"
            ),
            analogue="di-spectral",
        ),
    )
}
"""Every method by name."""

OWN = Method(
    "clustering",
    "Clustering",
    "clustering of one's own",
    sample_kind="any",
    words=Words(
        distance="distance to the prototype",
        empty="no sample is nearest to this prototype",
        noun="sample",
    ),
)
"""What a model of the user's own is called."""

OWN_GRAPH = _spectral(
    "spectral-clustering",
    "SpectralClustering",
    "spectral clustering of one's own",
    sample_kind="any",
    moves="samples",
    words=dataclasses.replace(_EMBEDDED, empty="no sample was put into it", noun="sample"),
)
"""The same of a graph of its own."""


def plural(one: str) -> str:
    """The word for several things.

    Args:
        one: The word for one of them.

    Returns:
        Such as `images`, `passes` or `series`.
    """
    if one.endswith("series"):
        return one
    return f"{one}es" if one.endswith("s") else f"{one}s"


def method_of(model: type) -> Method:
    """The method of a model.

    Args:
        model: Its class.

    Returns:
        Its descriptor, or that of the class that it is derived from.

    Raises:
        KeyError: If there is none.
    """
    every = {method.model: method for method in METHODS.values()}
    return every[next((kind.__name__ for kind in model.__mro__ if kind.__name__ in every), "")]


def methods_of_table(held: Literal["landmarks", "series"]) -> list[Method]:
    """The methods for what a file holds that is no file of images.

    Args:
        held: What `diffclust.data.landmarks.table_of` says of it.

    Returns:
        The methods, first that which is taken where none is named.
    """
    kind = "shape" if held == "landmarks" else held
    return [method for method in METHODS.values() if method.sample_kind == kind]
