"""What the stages of a spectral method or the like find, and the arrays that these are kept as."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from diffclust.solvers.rows import RowClusters

_EXTRA, _FIGURE = "extra_", "figure_"
_ROWS = tuple(field.name for field in dataclasses.fields(RowClusters))


@dataclasses.dataclass(frozen=True)
class Found:
    """What a spectral method or the like has found, before there are pictures of it.

    Attributes:
        rows: The assignment of samples to centres.
        loss: What was made small.
        extras: What assigning new samples needs, by name.
        figures: Numbers to tell, by name.
    """

    rows: RowClusters
    loss: float
    extras: dict[str, np.ndarray]
    figures: dict[str, float]

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it, by name."""
        return {
            **{name: getattr(self.rows, name) for name in _ROWS},
            "loss": np.asarray(self.loss),
            **{_EXTRA + name: array for name, array in self.extras.items()},
            **{_FIGURE + name: np.asarray(figure) for name, figure in self.figures.items()},
        }

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> "Found":
        """What was found, from its arrays.

        Args:
            arrays: As `arrays` gives them.

        Returns:
            The same.
        """

        def named(prefix: str) -> dict[str, np.ndarray]:
            return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}

        rows = RowClusters(*(arrays[name] for name in _ROWS))
        figures = {name: float(array) for name, array in named(_FIGURE).items()}
        return Found(rows, float(arrays["loss"]), named(_EXTRA), figures)
