"""What a report calls things, which depends on the method."""

import dataclasses

from diffclust.models import AbstractPrototypeModel, Result

_METHODS = {
    "kmeans": "K-means",
    "ai-kmeans": "AI K-means",
    "di-kmeans": "DI K-means",
    "scattering-kmeans": "K-means in scattering space",
    "pssc": "PSSC",
    "di-spectral": "deformation-invariant spectral clustering",
}


@dataclasses.dataclass(frozen=True)
class Terms:
    """The words for one result.

    Attributes:
        method: Name of the method.
        by_prototypes: Whether prototypes decided; else they were made of the finished clusters.
        distance: What an image's distance is.
        place: What the distance is measured in where prototypes did not decide.
        empty: What is said of a cluster without images.
    """

    method: str
    by_prototypes: bool
    distance: str
    place: str
    empty: str


def terms_of(result: Result) -> Terms:
    """The words for a result.

    Args:
        result: A fitted model.

    Returns:
        The words.
    """
    model = result.model
    method = _METHODS.get(model.method, model.method)
    if isinstance(model, AbstractPrototypeModel):
        empty = "no image is nearest to this prototype"
        return Terms(method, True, "distance to the prototype", "", empty)
    place = "spectral embedding" if "eigenvalues" in result.outcome.extras else "feature space"
    return Terms(method, False, f"distance in the {place}", place, "no image was put into it")
