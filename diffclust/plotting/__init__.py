"""Pictures of a result, made on the host: sheets of prototypes, shapes, grids, curves.

Everything comes back as arrays, as SVG text or as a matplotlib figure, so that a report, a notebook
and a file show the same thing.
"""

from diffclust.plotting.bend import elbow
from diffclust.plotting.charts import criterion_chart, eigenvalue_chart, line_chart, loss_curve
from diffclust.plotting.course import Course, course_of, training_curve
from diffclust.plotting.dendrogram import dendrogram
from diffclust.plotting.figures import (
    criterion_curve,
    loss_against_k,
    scattering_filters,
    survey_curves,
)
from diffclust.plotting.film import Film, Frame
from diffclust.plotting.grids import warped_grids
from diffclust.plotting.neighbour_map import map_svg, neighbour_map
from diffclust.plotting.pictures import displayable, prototype_sheet, save_prototypes
from diffclust.plotting.shape_sheet import shape_sheet
from diffclust.plotting.shapes import ShapeFrame, landmark_covariances, shape_frame, shape_svg

__all__ = [
    "Course",
    "Film",
    "Frame",
    "ShapeFrame",
    "course_of",
    "criterion_chart",
    "criterion_curve",
    "dendrogram",
    "displayable",
    "eigenvalue_chart",
    "elbow",
    "landmark_covariances",
    "line_chart",
    "loss_against_k",
    "loss_curve",
    "map_svg",
    "neighbour_map",
    "prototype_sheet",
    "save_prototypes",
    "scattering_filters",
    "shape_frame",
    "shape_sheet",
    "shape_svg",
    "survey_curves",
    "training_curve",
    "warped_grids",
]
