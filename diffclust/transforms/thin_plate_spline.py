"""Thin-plate splines: the smoothest maps that move a grid of landmarks to given places."""

import functools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust import _validation as check
from diffclust.linalg import one_blas_thread, product
from diffclust.sampling import Boundary
from diffclust.transforms.affine import displaced, mean_squared_displacement
from diffclust.transforms.base import AbstractSpatialTransform
from diffclust.types import Params, Points

# ∬ (f_uu² + 2 f_uv² + f_vv²) of Σ wᵢ U(|· - uᵢ|) is 16π wᵀ K w for U(r) = r² log r².
_ENERGY_OF_KERNEL = 16.0 * math.pi


def landmark_grid(rows: int, columns: int) -> Float[np.ndarray, "2 landmarks"]:
    """The source landmarks: a uniform grid over [-1, 1]², including the border, row by row.

    Args:
        rows: Number of rows.
        columns: Number of columns.

    Returns:
        Points of shape `(2, rows * columns)`.
    """
    y, x = np.meshgrid(np.linspace(-1, 1, rows), np.linspace(-1, 1, columns), indexing="ij")
    return np.stack([x.ravel(), y.ravel()])


@functools.lru_cache(maxsize=32)
def _solved_system(rows: int, columns: int, regularisation: float) -> tuple[np.ndarray, ...]:
    """Solves Eq. 12 once for a grid, in double precision.

    Returns:
        `weights` `(landmarks + 3, landmarks)`, which maps the landmarks' displacements to the
        kernel weights and the affine coefficients; `bending` `(landmarks, landmarks)`, whose
        squared product with the displacements is the bending energy; `projection` `(3, landmarks)`,
        which maps displacements to least-squares affine coefficients.
    """
    at = landmark_grid(rows, columns)
    count = at.shape[1]
    squared = ((at[:, :, None] - at[:, None, :]) ** 2).sum(0)
    kernel = squared * np.log(np.where(squared > 0, squared, 1.0))
    affine = np.concatenate([np.ones((1, count)), at]).T
    system = np.zeros((count + 3, count + 3))
    system[:count, :count] = kernel + _ENERGY_OF_KERNEL * regularisation * np.eye(count)
    system[:count, count:] = affine
    system[count:, :count] = affine.T
    with one_blas_thread():
        weights = np.linalg.solve(system, np.eye(count + 3))[:, :count]
        energy = _ENERGY_OF_KERNEL * weights[:count].T @ kernel @ weights[:count]
        values, vectors = np.linalg.eigh(0.5 * (energy + energy.T))
    bending = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    return weights, bending, np.linalg.pinv(affine)


class ThinPlateSpline(AbstractSpatialTransform):
    """Thin-plate-spline maps, whose params are the displacements of the landmarks.

    The params hold the landmarks' x displacements, then their y displacements, row by row, in units
    of [-1, 1]. The linear system is factorised once per grid, in double precision on the host, and
    applied as one matrix product. |·| is the Euclidean radius, as in the definition of thin-plate
    splines; the papers print an L1 norm.

    Attributes:
        landmarks: Rows and columns of the landmark grid, each at least 2.
        regularisation: λ of Eq. 9: 0 interpolates the landmarks, larger values smooth; affine parts
            are kept exactly.
        boundary: What lies outside the image: `"zero"`, `"edge"` or `"reflect"`.

    References:
        Cosentino et al., DI K-means, Eqs. 1, 9 to 12 (App. 10); Bookstein (1989), Principal warps.
    """

    landmarks: tuple[int, int] = eqx.field(static=True, default=(6, 6))
    regularisation: float = eqx.field(static=True, default=0.0, kw_only=True)
    boundary: Boundary = eqx.field(static=True, default="zero", kw_only=True)

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        """The affine and the bending term."""
        return ("affine", "bending")

    def __check_init__(self):
        """Refuses grids that do not determine a spline."""
        numbers = self.landmarks if isinstance(self.landmarks, tuple | list) else ()
        fine = [isinstance(n, int | np.integer) and n >= 2 for n in numbers]
        if fine != [True, True]:
            raise ValueError(
                f"landmarks must be (rows, columns) of at least 2 each, not {self.landmarks}"
            )
        check.positive(self.regularisation, "regularisation", least=0)

    @property
    def num_landmarks(self) -> int:
        """Number of landmarks, ℓ in the papers."""
        return self.landmarks[0] * self.landmarks[1]

    @property
    def num_params(self) -> int:
        """Two per landmark."""
        return 2 * self.num_landmarks

    def _system(self) -> tuple[np.ndarray, ...]:
        return _solved_system(*self.landmarks, self.regularisation)

    @property
    def affine_embedding(self) -> Float[Array, "params 6"] | None:
        """Displacements of the landmarks under each of `Affine`'s params."""
        x, y = landmark_grid(*self.landmarks)
        one, none = np.ones_like(x), np.zeros_like(x)
        horizontal = np.stack([x, y, none, none, one, none], axis=1)
        vertical = np.stack([none, none, x, y, none, one], axis=1)
        embedding = np.concatenate([horizontal, vertical])
        return jax.device_put(embedding.astype(jnp.result_type(float)))

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """Mean squared displacement of the affine part, and the bending energy ∬ |D²F|².

        The affine part is the least-squares affine fit to the landmarks' displacements; the
        bending energy is the integral of Eq. 9 over the whole plane, summed over x and y.

        Args:
            params: Parameters of shape `(num_params,)`.

        Returns:
            The two sizes; both are zero at the identity, the second for all affine maps.
        """
        _, bending, projection = (jnp.asarray(a, dtype=params.dtype) for a in self._system())
        displacement = params.reshape(2, -1)
        coefficients = product(displacement, projection.T)
        affine = mean_squared_displacement(coefficients[:, 1:], coefficients[:, 0])
        return jnp.stack([affine, jnp.sum(product(displacement, bending.T) ** 2)])

    def basis(self, points: Points) -> Float[Array, "landmarks *grid"]:
        """Displacement of each point when one landmark moves by one unit.

        Args:
            points: Points of shape `(2, ...)`.

        Returns:
            Cardinal functions of the landmarks at the points.
        """
        at = jnp.asarray(landmark_grid(*self.landmarks), dtype=points.dtype)
        weights = jnp.asarray(self._system()[0], dtype=points.dtype)
        x, y = points[0].reshape(-1), points[1].reshape(-1)
        squared = (x[None] - at[0][:, None]) ** 2 + (y[None] - at[1][:, None]) ** 2
        # log of a guarded argument: the kernel and its derivative are 0 at a landmark.
        kernel = squared * jnp.log(jnp.where(squared > 0, squared, 1.0))
        features = jnp.concatenate([kernel, jnp.ones_like(x)[None], x[None], y[None]])
        return product(weights.T, features).reshape(-1, *points.shape[1:])

    def bind_map(self, points: Points) -> Callable[[Params], Points]:
        coordinates = displaced(points, self.basis(points).reshape(self.num_landmarks, -1))
        return lambda params: coordinates(params.reshape(2, -1))
