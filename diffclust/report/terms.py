"""What a report calls things, which depends on the method."""

import dataclasses

from diffclust.models import AbstractGradientModel, AbstractPrototypeModel, Result, ShapeKMeans
from diffclust.prototypes import GaussianImages
from diffclust.report.selection import certainties

_METHODS = {
    "kmeans": "K-means",
    "ai-kmeans": "AI K-means",
    "di-kmeans": "DI K-means",
    "scattering-kmeans": "K-means in scattering space",
    "pssc": "PSSC",
    "di-spectral": "deformation-invariant spectral clustering",
    "dti-kmeans": "DTI K-means",
    "dti-gmm": "DTI Gaussian mixture",
    "ti-kmeans": "TI K-means",
    "gmm": "Gaussian mixture",
    "shape-kmeans": "shape K-means",
}

_SHAPE_DISTANCES = {
    "fisher-rao": "Fisher–Rao distance to the mean shape",
    "wasserstein": "Wasserstein distance to the mean shape",
    "squared-wasserstein": "squared Wasserstein distance to the mean shape",
    "printed-wasserstein": "Wasserstein distance to the mean shape, as the paper prints it",
}

_STEPS = {
    "aff": "moved, turned, scaled and sheared",
    "proj": "seen in perspective",
    "tps": "bent by a thin-plate spline",
    "col": "each channel's brightness and contrast changed",
    "fullcol": "its channels mixed anew",
    "morpho": "its strokes thickened or thinned",
}


@dataclasses.dataclass(frozen=True)
class Terms:
    """The words for one result.

    Attributes:
        method: Name of the method.
        by_prototypes: Whether prototypes decided; else they were made of the finished clusters.
        distance: What a sample's distance is.
        short: The same in few words.
        nearest: How samples of little distance are called.
        farthest: How samples of great distance are called.
        certainty: What tells how certain a sample's cluster is.
        place: What the distance is measured in where prototypes did not decide.
        empty: What is said of a cluster without samples.
        stages: Names of the transforms that move prototypes, in turn; empty where images are
            moved, or nothing.
        is_mixture: Whether clusters are Gaussians of a mixture.
        is_density: Whether the distance is a negative log density, which may be of either sign.
        noun: What a sample is called.
        prototype: What a prototype is called.
    """

    method: str
    by_prototypes: bool
    distance: str
    short: str = "distance"
    nearest: str = "nearest"
    farthest: str = "farthest"
    certainty: str = "margin"
    place: str = ""
    empty: str = "no image was put into it"
    stages: tuple[str, ...] = ()
    is_mixture: bool = False
    is_density: bool = False
    noun: str = "image"
    prototype: str = "prototype"


def terms_of(result: Result) -> Terms:
    """The words for a result.

    Args:
        result: A fitted model.

    Returns:
        The words.
    """
    model = result.model
    method = _METHODS.get(model.method, model.method)
    if isinstance(model, ShapeKMeans):
        return _of_shapes(method, model)
    empty = "no image is nearest to this prototype"
    if isinstance(model, AbstractGradientModel):
        stages = tuple(name for name in model.transforms.split("-") if name)
        if isinstance(result.outcome.learned.clusters.prototype, GaussianImages):
            return Terms(
                method,
                True,
                "negative log density",
                short="−log density",
                nearest="likeliest",
                farthest="least likely",
                certainty="margin" if certainties(result) is None else "responsibility",
                empty="no image is likeliest in it",
                stages=stages,
                is_mixture=True,
                is_density=True,
            )
        return Terms(method, True, "distance to the moved prototype", empty=empty, stages=stages)
    if isinstance(model, AbstractPrototypeModel):
        return Terms(method, True, "distance to the prototype", empty=empty)
    place = "spectral embedding" if "eigenvalues" in result.outcome.extras else "feature space"
    return Terms(method, False, f"distance in the {place}", place=place)


def _of_shapes(method: str, model: ShapeKMeans) -> Terms:
    if model.distance == "likelihood":
        return Terms(
            method,
            True,
            "negative log density",
            short="−log density",
            nearest="likeliest",
            farthest="least likely",
            empty="no shape is likeliest in it",
            is_density=True,
            noun="shape",
            prototype="mean shape",
        )
    return Terms(
        method,
        True,
        _SHAPE_DISTANCES[model.distance],
        empty="no shape is nearest to this mean shape",
        noun="shape",
        prototype="mean shape",
    )


def stage_meaning(name: str) -> str:
    """What a transform does to a prototype.

    Args:
        name: Its name in a sequence, such as `"aff"`.

    Returns:
        A few words.
    """
    return _STEPS.get(name, "transformed")
