"""The Gaussian window of DTI clustering, on digits with clutter beside them.

    python -m experiments.registration.window [--seed 0] [--seeds 3] [--quick] [--limit 1000]
        [--sets street cluttered] [--windows none 0.25] [--results FILE]

`street`: test digits off the centre by up to two pixels, between two others that the canvas cuts,
as house numbers lie in SVHN's crops. `cluttered`: moved over 40×40 pixels, with four scraps of
others (`experiments.registration.run`). DTI K-means under affine maps, with no window or the
paper's of a quarter of the side (Sec. 5.1). Nothing was chosen by labels, which score. FILE (JSON
lines) keeps every run, and those that it has are not run again.
"""

import numpy as np

from diffclust.data import Dataset, load
from diffclust.models import DTIKMeans
from experiments.dti import CHANGED, run, summary
from experiments.harness import RESULTS, arguments, asked_runs, finish
from experiments.registration.development import cluttered

NAMES = ("set", "window", "limit", "steps", "seed", "phases", "bias_correction")
"""What tells runs apart."""

STEPS = (100, 400, 100)
"""Steps of each phase, where nothing else is asked for."""


def street(images, labels, seed):
    """With two other digits beside it, of which the canvas leaves about a third."""
    del labels
    draw = np.random.default_rng(seed)
    made = np.zeros_like(images)
    for image, to in zip(images, made, strict=True):
        left, right = images[draw.integers(len(images), size=2)]
        for part, apart in ((image, 0), (left, -18), (right, 18)):
            y, x = draw.integers(-2, 3, 2) + np.array([0, apart])
            place = to[max(y, 0) : 28 + y, max(x, 0) : 28 + x]
            seen = part[max(-y, 0) : 28 - y, max(-x, 0) : 28 - x]
            np.maximum(place, seen, out=place)
    return made


SETS = {"street": street, "cluttered": cluttered}


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 3, "help": "number of seeds"},
        limit={"type": int, "default": 1000, "help": "images, drawn with seed 0"},
        sets={"nargs": "+", "default": list(SETS), "choices": list(SETS)},
        windows={"nargs": "+", "default": ["none", "0.25"], "help": "fractions of the side"},
        steps={"type": int, "nargs": 3, "default": STEPS, "help": "of each phase"},
        bias_correction=CHANGED["bias_correction"],
        **RESULTS,
    )
    if args.quick:
        args.limit, args.sets, args.seeds, args.steps = 128, ["street"], 1, [5, 5, 5]

    def one(name, window, limit, steps, seed, phases, bias_correction):
        del steps, phases
        data = load("mnist", split="test", limit=limit, seed=0)
        images = SETS[name](data.images, data.labels, 0)
        made = Dataset(images, data.labels, data.label_names, name=name)
        width = None if window == "none" else float(window)
        given = {"num_clusters": 10, "transforms": "aff", "window": width}
        given |= {"steps": tuple(args.steps), "bias_correction": bias_correction}
        model = DTIKMeans.from_settings(given)
        return run(model, made, seed, f"{name} window {window}")

    phases = " ".join(map(str, args.steps))
    asked = [
        (name, window, args.limit, sum(args.steps), seed, phases, args.bias_correction)
        for seed in range(args.seed, args.seed + args.seeds)
        for name in args.sets
        for window in args.windows
    ]
    lacking = {"phases": " ".join(map(str, STEPS)), "bias_correction": "fit"}
    rows = asked_runs(args.results, NAMES, asked, one, lacking)
    figures = {}
    for name in args.sets:
        for window in args.windows:
            runs = [row for row in rows if (row["set"], row["window"]) == (name, window)]
            figures[f"{name} window {window}"] = summary(runs)
            print(name, window, figures[f"{name} window {window}"], flush=True)
    finish({"experiment": "registration_window", "seeds": args.seeds, **figures})


if __name__ == "__main__":
    main()
