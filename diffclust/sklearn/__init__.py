"""The library's methods as scikit-learn's estimators.

Take these in a `Pipeline` or a `GridSearchCV`, or where a program expects `fit_predict`. Everything
else (reports, saving, several devices) is offered by the fitted `result_`.
"""

from diffclust.sklearn.checks import EXPECTED_FAILURES, ExpectedFailures, expected_failed_checks
from diffclust.sklearn.estimators import (
    AffineInvariantKMeans,
    DeformationInvariantKMeans,
    DeformationInvariantSpectralClustering,
    DTIGaussianMixture,
    DTIKMeans,
    GaussianMixture,
    KMeans,
    ModelClusterer,
    ProjectedScatteringSpectralClustering,
    ScatteringKMeans,
    SeriesKMeans,
    SeriesSpectralClustering,
    ShapeKMeans,
    TransformationInvariantKMeans,
)

__all__ = [
    "EXPECTED_FAILURES",
    "AffineInvariantKMeans",
    "DTIGaussianMixture",
    "DTIKMeans",
    "DeformationInvariantKMeans",
    "DeformationInvariantSpectralClustering",
    "ExpectedFailures",
    "GaussianMixture",
    "KMeans",
    "ModelClusterer",
    "ProjectedScatteringSpectralClustering",
    "ScatteringKMeans",
    "SeriesKMeans",
    "SeriesSpectralClustering",
    "ShapeKMeans",
    "TransformationInvariantKMeans",
    "expected_failed_checks",
]
