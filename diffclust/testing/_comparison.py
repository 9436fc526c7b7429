"""How the laws compare: AssertionErrors that name the law."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def rounding(array: Array | np.ndarray) -> float:
    """The machine epsilon of an array's dtype."""
    return float(jnp.finfo(array.dtype).eps)


def require(holds: bool, law: str) -> None:
    """Raises where a law does not hold; an `assert` would be gone under `python -O`."""
    if not holds:
        raise AssertionError(f"broken law: {law}")


def agree(law: str, got: Any, expected: Any, tolerance: float) -> None:
    """Raises where two arrays differ in shape, dtype, or by more than the tolerance."""
    np.testing.assert_allclose(
        np.asarray(got),
        np.asarray(expected),
        rtol=0.0,
        atol=tolerance,
        equal_nan=False,
        err_msg=f"broken law: {law}",
        strict=True,
    )
