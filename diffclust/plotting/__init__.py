"""Pictures of a result, made on the host: sheets of prototypes, warped grids, curves, figures.

Everything comes back as arrays, as SVG text or as a matplotlib figure, so that a report, a notebook
and a file show the same thing.
"""

from diffclust.plotting.bend import elbow
from diffclust.plotting.charts import eigenvalue_chart, line_chart, loss_curve
from diffclust.plotting.course import Course, course_of, training_curve
from diffclust.plotting.figures import loss_against_k, scattering_filters, survey_curves
from diffclust.plotting.grids import warped_grids
from diffclust.plotting.pictures import displayable, prototype_sheet, save_prototypes

__all__ = [
    "Course",
    "course_of",
    "displayable",
    "eigenvalue_chart",
    "elbow",
    "line_chart",
    "loss_against_k",
    "loss_curve",
    "prototype_sheet",
    "save_prototypes",
    "scattering_filters",
    "survey_curves",
    "training_curve",
    "warped_grids",
]
