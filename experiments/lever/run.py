"""Compositions of one's own: pages of the docs, and scripts beside this file, run as they stand.

    python -m experiments.lever.run [--quick]  # pages and scripts have seeds of their own

Prints of each its lines of code, the seconds (compiling included), and figures. `--quick` runs all
of them on fewer samples and steps.
"""

import contextlib
import dataclasses
import io
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docs.notebooks import notebook
from experiments.harness import arguments, finish

HERE = Path(__file__).parent
Names = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Composition:
    """Some pages or scripts, of which each goes on with the names of those before.

    Attributes:
        sources: Pages by their names, scripts by theirs with `.py`.
        figures: What is read from the names that they define.
        quick: What `--quick` writes in the place of what.
    """

    sources: tuple[str, ...]
    figures: Callable[[Names], dict[str, Any]]
    quick: dict[str, str] = dataclasses.field(default_factory=dict)


def code_of(source: str) -> str:
    """The code of a script, or of a page as its notebook has it."""
    if source.endswith(".py"):
        return (HERE / "scripts" / source).read_text("utf-8")
    page = json.loads(notebook(HERE.parents[1] / "docs" / f"{source}.md") or "")
    return "\n".join("".join(c["source"]) for c in page["cells"] if c["cell_type"] == "code")


def run(composition: Composition, *, quick: bool = False) -> dict[str, Any]:
    """Runs a composition in an empty folder.

    Args:
        composition: The composition.
        quick: Whether it is cut short.

    Returns:
        Lines of code, seconds, and its figures.
    """
    code = "\n".join(code_of(source) for source in composition.sources)
    lines = sum(bool(line.strip()) for line in code.splitlines())
    for whole, short in composition.quick.items() if quick else ():
        if whole not in code:
            raise ValueError(f"{composition.sources} no longer have {whole!r}")
        code = code.replace(whole, short)
    names: Names = {"__name__": "composition"}
    start = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        exec(compile(code, " ".join(composition.sources), "exec"), names)
        figures = composition.figures(names)
    return {"lines": lines, "seconds": round(time.perf_counter() - start, 1), **figures}


def numbers(values: Any) -> Any:
    """Numbers of at most four digits, which JSON can hold."""
    import numpy as np

    return np.vectorize(lambda value: float(f"{value:.4g}"))(np.asarray(values)).tolist()


def agreement(names: Names, assignments: Any) -> float:
    """The adjusted Rand index with the two kinds of the page on series."""
    from diffclust.metrics import adjusted_rand_index

    size = len(names["series"])
    return round(adjusted_rand_index([2 * i // size for i in range(size)], assignments), 3)


def in_kmeans_and_graph(distance: str, images: str) -> Callable[[Names], dict[str, Any]]:
    """Accuracy with a distance, beside that of the squared Euclidean one."""
    return lambda names: {
        type(each).__name__: names["accuracy"](each, names[images])
        for each in (*names["compared"], names[distance]())
    }


ONE_RUN = {"num_restarts=2": "num_restarts=1, split_merge=False", "max_passes=10": "max_passes=2"}
ON_A_GRID = {
    **ONE_RUN,
    "limit=500": "limit=60",
    "import Descent, InvariantDistance, Stage": "import GridSearch, InvariantDistance",
    "Descent((Stage(8, affine=True), Stage(8)))": "GridSearch(0.25 * jnp.eye(2))",
    "import ThinPlateSpline": "import Translation",
    "ThinPlateSpline((3, 3)), (SquaredEuclidean(),)": "Translation(), ()",
    "(0.5, 0.015)": "(0.5,)",
}
COMPOSITIONS = {
    "rotations": Composition(
        ("rotations.py",),
        lambda n: {name: round(value, 3) for name, value in n["accuracy"].items()},
        {
            "limit=500": "limit=60",
            "grid(32)": "grid(8)",
            "Sequential(search, Descent((Stage(4),)))": "search",
            "check_transform(Rotation(), key=key)\n": "",
            "check_aligner(GridSearch(grid, fourier=False), energy, key=key, grid=grid)": "",
            "check_aligner(aligner, energy, key=key)\n": "",
            '"max_passes": 10, "num_restarts": 2': '"max_passes": 2, "num_restarts": 1',
        },
    ),
    "series": Composition(
        ("series",),
        lambda n: {
            "K-means": agreement(n, n["result"].assignments),
            "graph": agreement(n, n["graph"].assignments),
        },
        {
            "max_passes=5": "max_passes=5, warps=False, split_merge=False",
            "SpectralClustering(2)": "SpectralClustering(2, warps=False)",
        },
    ),
    "Huber": Composition(
        ("own-distance", "kmeans_and_graph.py"),
        in_kmeans_and_graph("Huber", "broken"),
        {
            **ON_A_GRID,
            "check_distance(Huber(), key=key)\n": "",
            "check_family(energy.family, energy, key=key)": "",
            "import Affine": "import Translation as Affine",
            "[:200]": "[:40]",
            "import Descent, Stage": "import NoAlignment",
            "Descent((Stage(8),))": "NoAlignment()",
            "max_passes=5, num_restarts=1": "max_passes=2, num_restarts=1, split_merge=False",
        },
    ),
    "sliced Wasserstein": Composition(
        ("sliced_wasserstein.py", "kmeans_and_graph.py"),
        in_kmeans_and_graph("SlicedWasserstein", "clean"),
        {
            **ON_A_GRID,
            "import Affine": "import Translation as Affine",
            "check_distance(SlicedWasserstein(), key=key)\n": "",
            "check_family(energy.family, energy, key=key)": "",
        },
    ),
    "trimmed and annealed": Composition(
        ("own-reduction",),
        lambda n: {
            "largest coordinate": numbers(n["result"].prototypes.max()),
            "threshold": numbers(n["result"].outcome.learned.objective.threshold),
            "annealed": n["annealed"].counts.tolist(),
            "threshold by gradients": numbers(n["again"].outcome.learned.objective.threshold),
        },
        {
            "steps=(150, 50)": "steps=(30, 0), split_merge=False",
            "num_restarts=8": "num_restarts=4",
            "max_passes=60": "max_passes=60, num_restarts=1, split_merge=False",
        },
    ),
    "aligner and its law": Composition(
        ("own-aligner",),
        lambda n: {"distance": numbers(n["distance"]), "aligned": numbers(n["aligned"])},
        {
            "import Affine": "import Translation as Affine",
            "check_aligner(RandomSearch(), energy, key=key)": "",
        },
    ),
    "whole fits under vmap": Composition(
        ("bootstrap", "bilevel"),
        lambda n: {
            "steadiness": numbers([n["steady"].min(), n["steady"].mean()]),
            "loss and slope": numbers(n["found"]),
        },
        {
            "images[:300]": "images[:60]",
            "(300": "(60",
            "0, 300": "0, 60",
            "import Affine": "import Translation as Affine",
            "import Descent, Stage\n": "import Descent, OptaxMinimiser, Stage\nimport optax\n",
            "Stage(8),)": "Stage(8),), minimiser=OptaxMinimiser(optax.sgd(0.02))",
        },
    ),
    "devices": Composition(
        ("devices",),
        lambda n: {
            "devices": n["mesh"].size,
            "loss": numbers(n["result"].loss),
            "prototypes": list(n["state"].learned.clusters.prototype.shape),
        },
        {
            "AffineInvariantKMeans": "KMeans",
            "limit=300": "limit=40",
            "num_restarts=2": "num_restarts=1, max_passes=2, split_merge=False",
        },
    ),
    "kind of sample": Composition(
        ("own-sample",),
        lambda n: {name: n[name].counts.tolist() for name in ("result", "moved")},
        {
            "NoAlignment()))": "NoAlignment()), num_restarts=1, split_merge=False)",
            "(0.5,))": "(0.5,), num_restarts=1, max_passes=3, split_merge=False)",
        },
    ),
    "model": Composition(
        ("own-model",),
        lambda n: {"loss": numbers(n["result"].loss)},
        {
            "[:200]": "[:40]",
            "import Descent, Stage": "import NoAlignment",
            "Descent((Stage(8),))": "NoAlignment(candidates=3)",
            "num_restarts=1": "num_restarts=1, split_merge=False",
        },
    ),
    "learned objective": Composition(
        ("new-objective",),
        lambda n: {"counts": n["result"].counts.tolist()},
        {
            'load("digits")': 'load("digits", limit=60)',
            'transforms="aff"': 'transforms=""',
            "max_steps=1000": "max_steps=20, batch_size=20, split_merge=False",
        },
    ),
}


def main() -> None:
    quick, result = arguments(__doc__ or "").quick, {}
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    for name, composition in COMPOSITIONS.items():
        result[name] = run(composition, quick=quick)
        print(f"{name:24}", json.dumps(result[name]), flush=True)
    finish({"experiment": "lever", **result})


if __name__ == "__main__":
    main()
