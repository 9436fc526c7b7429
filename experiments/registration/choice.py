"""Would a choice by stability between `register="none"` and `"auto"` be better than `"auto"`?

    python -m experiments.registration.choice [--results experiments/registration/whole.jsonl]
        [--margins 0 0.01 0.02 0.05]

The rule: the steadier of the two by the median over seeds is taken; `auto` where they differ by no
more than the deviation over seeds and a margin. Nothing is fitted: accuracies and stabilities are
those of the runs in the file. Labels score, and nothing else.
"""

from pathlib import Path

import numpy as np

from experiments.harness import arguments, finish, kept_runs

METHODS = ("pssc", "di-spectral")
CONTROLS = ("two-places", "two-grounds")
"""A nuisance that is steady itself was put into these sets."""


def choices(rows, method):
    """For each set that was run both ways: median stabilities, their deviation, and accuracies."""
    runs = {}
    for row in rows:
        if row["method"] == method and row.get("draw") is None and "stability" in row:
            runs.setdefault(row["set"], {}).setdefault(row["register"], []).append(row)
    result = {}
    for name, both in runs.items():
        if set(both) == {"none", "auto"}:
            stability = {k: [row["stability"] for row in each] for k, each in both.items()}
            result[name] = {
                "stability": {k: float(np.median(each)) for k, each in stability.items()},
                "spread": max(float(np.std(each)) for each in stability.values()),
                "acc": {k: float(np.mean([r["acc"] for r in each])) for k, each in both.items()},
            }
    return result


def chosen(row, margin):
    """What the rule takes."""
    gain = row["stability"]["none"] - row["stability"]["auto"]
    return "none" if gain > row["spread"] + margin else "auto"


def main():
    args = arguments(
        __doc__,
        results={"default": str(Path(__file__).with_name("whole.jsonl")), "help": "JSON lines"},
        margins={"type": float, "nargs": "+", "default": [0.0, 0.01, 0.02, 0.05]},
    )
    rows, figures = kept_runs(args.results), {}
    for method in METHODS:
        sets = choices(rows, method)
        for name, row in sets.items():
            if chosen(row, 0.0) == "none":
                said = [
                    f"{k} {row['stability'][k]:.3f}, accuracy {row['acc'][k]:.4f}"
                    for k in ("none", "auto")
                ]
                print(f"{method}, {name}, stability: {'; '.join(said)}", flush=True)
        for words, left in (("all sets", ()), ("without the controls", CONTROLS)):
            kept = [row for name, row in sets.items() if name not in left]
            means = {
                "auto": np.mean([row["acc"]["auto"] for row in kept]),
                **{
                    f"by stability, margin {margin:g}": np.mean(
                        [row["acc"][chosen(row, margin)] for row in kept]
                    )
                    for margin in args.margins
                },
                "the better by labels": np.mean([max(row["acc"].values()) for row in kept]),
            }
            place = f"{method}, {words}"
            figures[place] = {
                "sets": len(kept),
                **{k: round(float(v), 4) for k, v in means.items()},
            }
            print(place, figures[place], flush=True)
    finish({"experiment": "registration_choice", **figures})


if __name__ == "__main__":
    main()
