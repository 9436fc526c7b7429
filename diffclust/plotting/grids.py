"""Warped grids: where alignments read the images."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from diffclust.models import Result
from diffclust.parallel.mesh import map_in_chunks
from diffclust.plotting.shapes import polyline

_AT_ONCE = 64
"""Grids that are warped by one program."""


def warped_grids(
    result: Result, params: np.ndarray, *, lines: int = 7, longest: int = 1000
) -> list[str]:
    """Maps a regular grid to where alignments read the images.

    Drawn over a sample, the outer frame of the grid is the canvas of the aligned image, and a
    crossing of two lines lies where the aligned image reads its crossing of the regular grid.

    Args:
        result: A fitted model.
        params: Params of m samples, `(m, params)`, as in `Assignment.params`.
        lines: Lines in either direction, at least two.
        longest: Units of the drawing along the longer side of the image, whose top left corner is
            the origin.

    Returns:
        For each sample the `d` attribute of an SVG path, in integer units.

    Raises:
        ValueError: If the model's transform is not a map of coordinates, or there are fewer than
            two lines.
    """
    spatial = result.model.spatial_transform
    if spatial is None:
        raise ValueError(
            f"{result.model.method} moves no image by a map of coordinates, so there are no warped "
            "grids; draw those of a spatial transform"
        )
    if lines < 2:
        raise ValueError(f"a grid needs at least 2 lines, not {lines}")
    params = np.asarray(params)
    if len(params) == 0:
        return []
    along, across = np.linspace(-1, 1, 2 * (lines - 1) + 1), np.linspace(-1, 1, lines)
    horizontal = np.stack(np.broadcast_arrays(along[None, :], across[:, None]))
    points = np.concatenate([horizontal, horizontal[::-1]], axis=1)
    warp = eqx.Partial(spatial.warp, points=jnp.asarray(points.astype(params.dtype)))
    warped = map_in_chunks(warp, _AT_ONCE, params)
    height, width = result.sample_shape[:2]
    side = np.array([width, height]) * (longest / max(height, width))
    drawn = (warped + 1) / 2 * side[:, None, None]
    # A map may throw points far away, where digits would only fill the file.
    rounded = np.round(np.clip(drawn, -10 * longest, 10 * longest)).astype(int)
    return ["".join(map(_grid_line, np.moveaxis(grid, 0, -1))) for grid in rounded]


def _grid_line(points: np.ndarray) -> str:
    """Points of shape `(points, 2)` as an SVG path; of a straight line only its ends."""
    chord = np.linspace(points[0], points[-1], len(points))
    is_straight = np.abs(points - chord).max() <= 2
    return polyline(points[[0, -1]] if is_straight else points)
