"""Points in three dimensions that spectral methods stumble over."""

import numpy as np
import pytest

each_odd_case = pytest.mark.parametrize("case", ["constant", "duplicates", "outlier", "few"])


def odd_points(case: str, points: np.ndarray) -> np.ndarray:
    """Points `(n, 3)` of a case; it is made of 60 that are nothing out of the common."""
    return {
        "constant": np.ones((60, 3), np.float32),
        "duplicates": np.repeat(points[:6], 10, axis=0),
        "outlier": np.concatenate([points, [[1e6, 0, 0]]]).astype(np.float32),
        "few": points[:3],
    }[case]
