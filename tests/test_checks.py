"""Run-time types for users, behind a switch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USE = """
import jax.numpy as jnp
from diffclust.transforms import Affine
try:
    Affine().deformation(jnp.zeros((6, 1)))
except Exception as error:
    print(type(error).__name__, "params" in str(error))
"""


@pytest.mark.parametrize(
    ("first", "variable", "expected"),
    [
        ("import diffclust; diffclust.checks()", "0", "TypeCheckError True"),
        ("import diffclust", "1", "TypeCheckError True"),
        pytest.param("import diffclust", "", "", marks=pytest.mark.slow),
    ],
    ids=["function", "environment", "off"],
)
def test_switch(first: str, variable: str, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", first + USE],
        env={**os.environ, "DIFFCLUST_CHECKS": variable},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == expected


def test_too_late_is_an_error() -> None:
    import diffclust.types

    with pytest.raises(RuntimeError, match="right after 'import diffclust'"):
        diffclust.checks()
