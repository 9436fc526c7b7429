"""Clustering that is invariant to transformations, in pure JAX.

`diffclust.models` holds the named methods; everything else is what they are composed of.
"""

import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

from diffclust._renamed import install
from diffclust._version import __version__

if TYPE_CHECKING:
    from diffclust.models import (
        AffineInvariantKMeans,
        DeformationInvariantKMeans,
        DeformationInvariantSpectralClustering,
        DTIGaussianMixture,
        DTIKMeans,
        GaussianMixture,
        KMeans,
        ProjectedScatteringSpectralClustering,
        Result,
        ScatteringKMeans,
        SeriesKMeans,
        SeriesSpectralClustering,
        ShapeKMeans,
        Training,
        TransformationInvariantKMeans,
    )
    from diffclust.storage import load, save

__all__ = [
    "AffineInvariantKMeans",
    "DTIGaussianMixture",
    "DTIKMeans",
    "DeformationInvariantKMeans",
    "DeformationInvariantSpectralClustering",
    "GaussianMixture",
    "KMeans",
    "ProjectedScatteringSpectralClustering",
    "Result",
    "ScatteringKMeans",
    "SeriesKMeans",
    "SeriesSpectralClustering",
    "ShapeKMeans",
    "Training",
    "TransformationInvariantKMeans",
    "__version__",
    "checks",
    "load",
    "save",
]

install()


def checks() -> None:
    """Checks the shapes and dtypes of arrays at run time, in every function from now on.

    To be called before anything else of diffclust is used; `DIFFCLUST_CHECKS=1` in the environment
    does it at the import. An array that is not what an annotation says raises
    `jaxtyping.TypeCheckError`, which names the function, the parameter and both shapes. Functions
    are checked while they are traced, so that compiled programs run as fast as before.

    Raises:
        RuntimeError: If parts of diffclust have been imported already.
    """
    late = [name for name in sys.modules if name.startswith(f"{__name__}.types")]
    if late:
        raise RuntimeError(
            "diffclust.checks() must be called before anything else of diffclust is used; call it "
            "right after 'import diffclust', or set DIFFCLUST_CHECKS=1"
        )
    from jaxtyping import install_import_hook

    install_import_hook(__name__, "beartype.beartype")


if os.environ.get("DIFFCLUST_CHECKS", "0") not in ("", "0"):
    checks()


def __getattr__(name: str) -> Any:
    # JAX and the models take a second or two to import, which help and `--version` need not wait
    # for; so they are imported when the first of them is used.
    if name in __all__:
        place = "storage" if name in ("load", "save") else "models"
        return getattr(importlib.import_module(f"{__name__}.{place}"), name)
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
