"""Prints the lowest versions of all dependencies that pyproject.toml allows, as pip's constraints.

`make test-lowest` installs these.
"""

import re
import tomllib
from pathlib import Path


def constraints(text: str) -> list[str]:
    """The lowest version of each dependency, and of what an extra allows."""
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    # Of CUDA's plugins jax itself gives the versions; what prepares sets is not tested.
    used = ("audio", "series", "tfds", "docs", "test")
    listed = [*project["dependencies"], *(each for name in used for each in extras[name])]
    result = (re.match(r"([\w.-]+)(?:\[\w+\])?>=([\w.]+)", each) for each in listed)
    return [f"{match[1]}=={match[2]}" for match in result if match is not None]


if __name__ == "__main__":
    print("\n".join(constraints(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())))
