"""DTI clustering, Table 1: USPS and the MNIST test digits, K-means and mixture.

    python -m experiments.dti_table1.run [--seed 0] [--seeds N] [--sets ...] [--methods ...]

Prints accuracy and loss against the seconds trained, then each run's end, then mean, deviation,
least, median, greatest and the run of least loss. Labels are used to score and for nothing else.
"""

from experiments.dti import STEPS, data_of, model_of, run, summary
from experiments.harness import arguments, finish

PAPER = {
    ("usps", "dti-kmeans"): {"acc": 0.864, "nmi": 0.882, "least_loss": 0.898},
    ("usps", "dti-gmm"): {"acc": 0.845, "nmi": 0.872, "least_loss": 0.873},
    ("mnist-test", "dti-kmeans"): {"acc": 0.966, "nmi": 0.946, "least_loss": 0.980},
    ("mnist-test", "dti-gmm"): {"acc": 0.978, "nmi": 0.947, "least_loss": 0.980},
    ("mnist", "dti-kmeans"): {"acc": 0.973, "nmi": 0.940, "least_loss": 0.972},
    ("mnist", "dti-gmm"): {"acc": 0.959, "nmi": 0.932, "least_loss": 0.971},
}


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 5, "help": "number of seeds"},
        sets={"nargs": "+", "default": ["usps", "mnist-test"]},
        methods={"nargs": "+", "default": ["dti-kmeans", "dti-gmm"]},
        every={"type": float, "default": 60.0, "help": "seconds between two looks"},
        backbone={"default": "quick", "choices": ["quick", "residual"]},
    )
    limit, quick = None, {}
    if args.quick:
        args.seeds, args.sets, limit = 1, ["usps"], 300
        quick = {"steps": (20, 20, 20, 20, 20)}
    figures = {}
    for name in args.sets:
        data = data_of(name, limit)
        for method in args.methods:
            model = model_of(method, name, backbone=args.backbone, **quick)
            prefix = f"{name} {method}"
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
    finish({"experiment": "dti_table1", "seeds": args.seeds, **figures})


if __name__ == "__main__":
    main()
