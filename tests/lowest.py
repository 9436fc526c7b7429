"""Prints the lowest versions of all dependencies that pyproject.toml allows, as pip's constraints.

`make test-lowest` installs these.
"""

import re
import tomllib
from pathlib import Path


def constraints(text: str) -> list[str]:
    """The lowest version of each dependency, of the extras for reading and testing too."""
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *extras["audio"], *extras["tfds"], *extras["test"]]
    result = (re.match(r"([\w.-]+)>=([\w.]+)", each) for each in listed)
    return [f"{match[1]}=={match[2]}" for match in result if match is not None]


if __name__ == "__main__":
    print("\n".join(constraints(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())))
