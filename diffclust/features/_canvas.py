"""The periodic canvas that an image is put on before it is filtered, one axis at a time."""

from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float

Padding = Literal["reflect", "zero", "periodic"]
"""What lies outside the image: the image mirrored at the centres of its outermost pixels, black, or
the image repeated."""

PADDINGS: tuple[Padding, ...] = get_args(Padding)


class CanvasAxis(NamedTuple):
    """One axis of the canvas.

    Attributes:
        padding: Matrix that maps an axis of the image to the axis of the canvas.
        inside: Which of the averages, one every 2ᴶ pixels of the canvas, lie on the image.
    """

    padding: Float[np.ndarray, "canvas image"]
    inside: slice

    @property
    def size(self) -> int:
        """Pixels of the canvas, a multiple of 2ᴶ."""
        return len(self.padding)


def canvas_axis(size: int, num_scales: int, padding: Padding) -> CanvasAxis:
    """Margins as in kymatio: at least half of 2ᴶ on either side, and one average in each.

    Args:
        size: Pixels of the image.
        num_scales: J.
        padding: What lies outside; a periodic image that fits is its own canvas.

    Returns:
        The axis.
    """
    block = 2**num_scales
    if padding == "periodic" and size % block == 0:
        return CanvasAxis(np.eye(size), slice(None))
    excess = (size // block + 2) * block - size
    margins = (excess // 2, (excess + 1) // 2)
    if padding == "zero":
        matrix = np.pad(np.eye(size), (margins, (0, 0)))
    else:
        mode = "reflect" if padding == "reflect" else "wrap"
        matrix = np.eye(size)[np.pad(np.arange(size), margins, mode=mode)]
    return CanvasAxis(matrix, slice(1, -1))
