"""Pictures of a result, made on the host: sheets of prototypes, shapes, grids, curves.

Everything comes back as arrays, as SVG text or as a matplotlib figure, so that a report, a notebook
and a file show the same thing.
"""

from diffclust.plotting.charts import criterion_chart, eigenvalue_chart, loss_curve
from diffclust.plotting.figures import criterion_curve, dendrogram, scattering_filters
from diffclust.plotting.film import Film, Frame
from diffclust.plotting.grids import warped_grids
from diffclust.plotting.maps import map_svg, neighbour_map
from diffclust.plotting.pictures import (
    as_picture,
    displayable,
    prototype_sheet,
    result_html,
    save_prototypes,
    shape_sheet,
)
from diffclust.plotting.series import CurveFrame
from diffclust.plotting.shapes import ShapeFrame, landmark_covariances, shape_frame
from diffclust.plotting.training import LossHistory, loss_history, training_curve

__all__ = [
    "CurveFrame",
    "Film",
    "Frame",
    "LossHistory",
    "ShapeFrame",
    "as_picture",
    "criterion_chart",
    "criterion_curve",
    "dendrogram",
    "displayable",
    "eigenvalue_chart",
    "landmark_covariances",
    "loss_curve",
    "loss_history",
    "map_svg",
    "neighbour_map",
    "prototype_sheet",
    "result_html",
    "save_prototypes",
    "scattering_filters",
    "shape_frame",
    "shape_sheet",
    "training_curve",
    "warped_grids",
]
