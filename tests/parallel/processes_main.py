"""Fits that tests run by several processes and by one; as a program, one of the processes.

python tests/parallel/processes_main.py PROCESS PROCESSES PORT RESULTS NAMES...
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Read when JAX is first imported.
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import numpy as np
from jax.sharding import Mesh

from diffclust.models import (
    DeformationInvariantKMeans,
    DeformationInvariantSpectralClustering,
    DTIKMeans,
    GaussianMixture,
    KMeans,
    ProjectedScatteringSpectralClustering,
    ShapeKMeans,
    Training,
    TransformationInvariantKMeans,
)
from diffclust.parallel import data_mesh, start_processes
from diffclust.parallel.processes import ProcessError, own_share, raise_everywhere
from tests.registry import blobs

COUNT = 37
"""Samples, which neither two processes nor four devices can share evenly."""

TOLD = "told"
"""In place of a fit, an error in one of the processes."""

TRAINING = Training(steps=(6, 6, 2), batch_size=12)
CASES: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "kmeans": lambda: (KMeans(3, num_restarts=1), {"chunk_size": 5, "weighted": True}),
    # Ground and canvas are those of all images together.
    "kmeans-registered": lambda: (
        KMeans(3, num_restarts=1, register="auto"),
        {"chunk_size": 5, "weighted": True},
    ),
    "gmm": lambda: (
        # Long enough for moves on trial.
        GaussianMixture(3, training=Training(steps=(60, 6), batch_size=12, refill_every=2)),
        {"weighted": True},
    ),
    "shape-kmeans": lambda: (
        ShapeKMeans(3, num_restarts=2),
        {"chunk_size": 5, "weighted": True},
    ),
    "di-kmeans": lambda: (
        DeformationInvariantKMeans(
            3, num_restarts=1, landmarks=(2, 2), max_passes=4, penalty_rounds=1
        ),
        {"chunk_size": 5, "weighted": True},
    ),
    "dti-kmeans": lambda: (DTIKMeans(3, transforms="aff", training=TRAINING), {"weighted": True}),
    "ti-kmeans": lambda: (
        TransformationInvariantKMeans(3, transforms="aff", training=TRAINING, align_steps=3),
        {},
    ),
    "pssc": lambda: (
        ProjectedScatteringSpectralClustering(
            3, num_restarts=1, num_dimensions=10, num_neighbours=(4,)
        ),
        {"chunk_size": 5, "weighted": True},
    ),
    # Two frames, whose graphs are averaged. On this canvas the places of pixels are not rounded:
    # descents begin there, where rounding would decide to which side a slope is taken.
    "di-spectral-registered": lambda: (
        DeformationInvariantSpectralClustering(
            3, canvas=32, num_restarts=1, num_dimensions=10, num_neighbours=(4,), num_candidates=6
        ),
        {"chunk_size": 5, "weighted": True},
    ),
}


def samples_of(name: str) -> np.ndarray:
    images = blobs(COUNT)
    if "registered" in name:
        # Figures that grow from the first process's to the last's, on a light ground.
        made = np.ones((COUNT, 96, 96, 1))
        for number, (image, to) in enumerate(zip(images, made, strict=True)):
            larger = np.kron(image, np.ones((3 + 2 * (number // 12),) * 2 + (1,)))
            place = slice(8 + number % 5, 8 + number % 5 + len(larger))
            to[place, place] -= larger
        return made
    # Corners of the images, as shapes.
    return images.reshape(COUNT, 32, 2)[:, :6] + images[:, :6, :2, 0] if "shape" in name else images


def fitted(name: str, mesh: Mesh) -> dict[str, np.ndarray]:
    """What a fit and a prediction of this process's samples find, of all of them."""
    model, given = CASES[name]()
    own = own_share(COUNT, mesh)
    samples = samples_of(name)[own]
    if given.pop("weighted", False):
        weight = np.linspace(0.5, 2.0, COUNT)
        # Two of one process weigh nothing.
        weight[3:5] = 0
        given["sample_weight"] = weight[own]
    result = model.fit(samples, key=jax.random.key(3), mesh=mesh, **given)
    predicted = result.predict(samples, mesh=mesh)
    return {
        "assignments": result.assignments,
        "distances": result.distances,
        "params": result.outcome.assignment.params,
        "prototypes": result.prototypes,
        "history": np.asarray(result.history),
        "predicted": predicted.clusters,
    }


def told(mesh: Mesh) -> dict[str, np.ndarray]:
    """What each process says when only the second cannot go on."""
    try:
        with raise_everywhere(mesh):
            if jax.process_index() == 1:
                raise ValueError("cannot be read")
    except (ProcessError, ValueError) as error:
        return {"words": np.asarray(str(error))}
    return {}


def main() -> None:
    process, processes, port = map(int, sys.argv[1:4])
    jax.config.update("jax_enable_x64", True)
    start_processes(f"127.0.0.1:{port}", processes, process, timeout=60)
    mesh = data_mesh()
    for name in sys.argv[5:]:
        found = told(mesh) if name == TOLD else fitted(name, mesh)
        np.savez(f"{sys.argv[4]}.{name}.{process}.npz", **found)


if __name__ == "__main__":
    main()
