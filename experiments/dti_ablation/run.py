"""DTI clustering, Table 3: what each module and each trick of the training is worth.

    python -m experiments.dti_ablation.run [--seed 0] [--seeds N] [--set mnist-1k] [--rows ...]

All rows of the paper's table, on 1,000 MNIST digits where the paper took 70,000 (`--set mnist` for
those, on a GPU). Every row has the same number of steps, shared out over its phases.
"""

from experiments.dti import STEPS, data_of, model_of, run, summary
from experiments.harness import SOURCE, arguments, datasets, finish

ROWS = {
    "aff-morpho-tps": ("dti-kmeans", {"transforms": "aff-morpho-tps"}, 0.973),
    "ordering: aff-tps-morpho": ("dti-kmeans", {"transforms": "aff-tps-morpho"}, 0.955),
    "ordering: morpho-aff-tps": ("dti-kmeans", {"transforms": "morpho-aff-tps"}, 0.275),
    "without morphological": ("dti-kmeans", {"transforms": "aff-tps"}, 0.948),
    "without thin-plate spline": ("dti-kmeans", {"transforms": "aff-morpho"}, 0.900),
    "without affine": ("dti-kmeans", {"transforms": "morpho-tps"}, 0.851),
    "affine only": ("dti-kmeans", {"transforms": "aff"}, 0.901),
    "without refills": (
        "dti-kmeans",
        {"transforms": "aff-morpho-tps", "least_share": 0.0},
        0.809,
    ),
    "without curriculum": (
        "dti-kmeans",
        {"transforms": "aff-morpho-tps", "curriculum": False},
        0.839,
    ),
    "without split-and-merge (ours)": (
        "dti-kmeans",
        {"transforms": "aff-morpho-tps", "split_merge": False},
        None,
    ),
    "TI, aff-morpho-tps": ("ti-kmeans", {"transforms": "aff-morpho-tps"}, 0.263),
    "TI, affine only": ("ti-kmeans", {"transforms": "aff"}, 0.730),
}
"""Method, settings and the paper's mean accuracy over ten runs on MNIST; moves are not in it."""


def shared_out(total: int, transforms: str, curriculum: bool) -> tuple[int, ...]:
    """A tenth each for the first and the last phase, the rest for those between."""
    edge, count = total // 10, transforms.count("-") + 1
    if not curriculum:
        return (total - edge, edge)
    return (edge, *[(total - 2 * edge) // count] * count, edge)


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 5, "help": "number of seeds"},
        set={"default": "mnist-1k", "choices": ["mnist-1k", "mnist-test", "mnist"]},
        rows={"nargs": "+", "default": list(ROWS)},
        limit={"type": int, "default": None, "help": "at most so many images"},
        **SOURCE,
        steps={"type": int, "default": None, "help": "steps of a DTI run"},
        ti_steps={"type": int, "default": 400, "help": "steps of a TI run, which are slow"},
    )
    total = args.steps or sum(STEPS[args.set])
    if args.quick:
        args.seeds, args.limit, total, args.ti_steps = 1, 100, 20, 10
        args.rows = ["without morphological", "without curriculum", "TI, affine only"]
    [(name, data, k)] = datasets(args, lambda name: data_of(name, args.limit), [args.set])
    figures = {}
    for row in args.rows:
        method, settings, paper = ROWS[row]
        count = total if method == "dti-kmeans" else args.ti_steps
        curriculum = settings.get("curriculum", True)
        steps = shared_out(count, settings["transforms"], curriculum)
        model = model_of(method, name, num_clusters=k, **settings, steps=steps, shortlist=3)
        seeds = range(args.seed, args.seed + args.seeds)
        found = summary([run(model, data, seed, row) for seed in seeds])
        print(row, found, flush=True)
        figures[row] = {"steps": list(steps), **found, "paper (MNIST)": paper}
    finish({"experiment": "dti_ablation", "set": name, "seeds": args.seeds, **figures})


if __name__ == "__main__":
    main()
