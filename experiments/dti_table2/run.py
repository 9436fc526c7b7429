"""DTI clustering, Table 2: 1,000 digits, coloured digits, digits under random affine maps.

    python -m experiments.dti_table2.run [--seed 0] [--seeds N] [--sets ...] [--methods ...]

As `dti_table1`. The sets are made by `diffclust.data` from MNIST: `mnist-color` and `affnist-like`
are not the paper's files (which are not to be had, or of 320,000 images), but the like of them.
"""

from experiments.dti import STEPS, data_of, model_of, run, summary
from experiments.harness import arguments, finish

PAPER = {
    ("mnist-1k", "dti-kmeans"): {"acc": 0.798, "std": 0.069, "least_loss": 0.905},
    ("mnist-1k", "dti-gmm"): {"acc": 0.808, "std": 0.072, "least_loss": 0.871},
    ("mnist-color", "dti-kmeans"): {"acc": 0.967, "std": 0.001, "least_loss": 0.968},
    ("mnist-color", "dti-gmm"): {"acc": 0.960, "std": 0.002, "least_loss": 0.958},
    ("affnist-like", "dti-kmeans"): {"acc": 0.955, "std": 0.033, "least_loss": 0.970},
    ("affnist-like", "dti-gmm"): {"acc": 0.933, "std": 0.059, "least_loss": 0.970},
}


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 5, "help": "number of seeds"},
        sets={"nargs": "+", "default": ["mnist-1k"]},
        methods={"nargs": "+", "default": ["dti-kmeans", "dti-gmm"]},
        backbones={"nargs": "+", "default": ["quick"]},
        every={"type": float, "default": 60.0, "help": "seconds between two looks"},
        limit={"type": int, "default": None, "help": "at most so many images"},
        steps={"type": int, "nargs": 5, "default": None, "help": "steps of each phase"},
    )
    quick = {} if args.steps is None else {"steps": tuple(args.steps)}
    if args.quick:
        args.seeds, args.limit, args.methods = 1, 200, ["dti-kmeans"]
        quick = {"steps": (10, 10, 10, 10, 10)}
    figures = {}
    for name in args.sets:
        data = data_of(name, args.limit)
        for method in args.methods:
            for backbone in args.backbones:
                model = model_of(method, name, backbone=backbone, **quick)
                prefix = f"{name} {method} {backbone}"
                seeds = range(args.seed, args.seed + args.seeds)
                rows = [run(model, data, seed, prefix, every=args.every) for seed in seeds]
                found = summary(rows)
                print(prefix, found, flush=True)
                figures[prefix] = {
                    "n": len(data),
                    "steps": list(quick.get("steps", STEPS[name])),
                    **found,
                    "paper": PAPER.get((name, method)),
                }
    finish({"experiment": "dti_table2", "seeds": args.seeds, **figures})


if __name__ == "__main__":
    main()
