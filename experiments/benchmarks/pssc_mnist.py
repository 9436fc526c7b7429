"""PSSC on the whole of MNIST, from pixels to assignments, stage by stage.

    python -m experiments.benchmarks.pssc_mnist [--seed 0] [--quick] [--limit N] [--source ...]

U-SPEC with the paper's preset and the library's default, in one process, compilation included.
The last stage (alignments: prototypes, and every image aligned to its own) is not part of PSSC and
is told apart.
"""

import functools
import time

import jax

import diffclust
from diffclust.data import load
from diffclust.metrics import scores
from experiments.harness import SOURCE, arguments, datasets, finish, peak_memory_mb

PSSC = diffclust.ProjectedScatteringSpectralClustering


def stages_of(model, images, seed):
    """Seconds up to the end of each stage's last chunk, and the result."""
    ends = {}
    start = time.perf_counter()

    def clock(progress):
        ends[progress.stage] = time.perf_counter() - start

    result = model.fit(images, key=jax.random.key(seed), callback=clock)
    spent, last = {}, 0.0
    for stage, end in ends.items():
        # What follows a stage's last report belongs to the next one's.
        spent[stage] = round(end - last, 1)
        last = end
    return spent, result


def main():
    args = arguments(__doc__, limit={"type": int, "help": "most images, drawn"}, **SOURCE)
    if args.quick:
        args.limit = 1500
    named = functools.partial(load, limit=args.limit, seed=args.seed)
    [(name, data, k)] = datasets(args, named, ["mnist"])
    figures = {}
    default = PSSC(k, affinity="graph", register="none")
    models = {"U-SPEC": PSSC.as_published(k), "default": default}
    for title, model in models.items():
        spent, result = stages_of(model, data.images, args.seed)
        alignments = spent["alignments"]
        figures[title] = {
            "seconds": round(result.outcome.seconds - alignments, 1),
            "alignments_seconds": alignments,
            "stages": spent,
            **{k: round(v, 4) for k, v in scores(data.labels, result.assignments).items()},
            "peak_memory_mb": round(peak_memory_mb()),
        }
        print(title, figures[title], flush=True)
    finish({"benchmark": "pssc_mnist", "set": name, "n": len(data), "seed": args.seed, **figures})


if __name__ == "__main__":
    main()
