"""DTI clustering, Table 3: what each module and each trick of the training is worth.

    python -m experiments.dti_ablation.run [--seed 0] [--seeds N] [--set mnist-1k] [--rows ...]
        [--no-moves] [--shortlist M] [--as-published] [--mixture | --training] [--results FILE]

All rows of the paper's table, on 1,000 MNIST digits where the paper took 70,000 (`--set mnist` for
those, on a GPU). Every row has the same number of steps, shared out over its phases; as published,
the authors' epochs. `--mixture` has other rows: what a mixture loses when it follows three
components of an image, not all, and transforms of colour scale variances; `--training` trains the
whole model with other rates, batches, schedules and temperatures. FILE (JSON lines) keeps every
run, and those that it has are not run again. Labels score, and nothing else.
"""

import dataclasses

from diffclust.distances import SquaredEuclidean
from diffclust.energies import Entropic
from diffclust.models import PrototypeObjective
from experiments.dti import (
    CHANGED,
    PUBLISHED,
    SETS,
    STEPS,
    changed_of,
    changed_words,
    data_of,
    model_of,
    run,
    summary,
)
from experiments.harness import (
    RESULTS,
    SOURCE,
    arguments,
    asked_runs,
    datasets,
    finish,
    source_words,
)

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
    "without refills and split-and-merge (ours)": (
        "dti-kmeans",
        {"transforms": "aff-morpho-tps", "least_share": 0.0, "split_merge": False},
        None,
    ),
    "with a short list of three (ours)": (
        "dti-kmeans",
        {"transforms": "aff-morpho-tps", "shortlist": 3},
        None,
    ),
    "TI, aff-morpho-tps": ("ti-kmeans", {"transforms": "aff-morpho-tps"}, 0.263),
    "TI, affine only": ("ti-kmeans", {"transforms": "aff"}, 0.730),
}
"""Method, settings and the paper's mean accuracy over ten runs on MNIST; moves are not in it."""


MIXTURE = {
    f"mixture, {components}, {variances}": (
        "dti-gmm",
        {"followed": followed, "variance_transforms": kind, "shortlist": None},
        None,
    )
    for components, followed in (("three components", 3), ("all components", None))
    for variances, kind in (("scaled variances", "all"), ("spatial variances", "spatial"))
}
"""The short form of a mixture and the exact one, with each set's transforms."""

TRAINING = {
    "learning rate 0.0003": {"learning_rate": 3e-4},
    "learning rate 0.003": {"learning_rate": 3e-3},
    "batches of 64": {"batch_size": 64},
    "batches of 256": {"batch_size": 256},
    "longer without transforms": {"shares": (0.4, 0.2, 0.15, 0.15, 0.1)},
    "longer at the lower rate": {"shares": (0.1, 0.2, 0.15, 0.15, 0.4)},
    "soft minimum, temperature 0.3": {"temperature": 0.3},
    "soft minimum, temperature 3": {"temperature": 3.0},
}
"""Other ways to train the whole model: settings, shares of the phases in the steps, or the
temperature of a soft minimum, whose loss is no distortion, in the place of the minimum."""

NAMES = ("set", "settings", "row", "limit", "steps", "seed")
"""What tells runs apart; the number of steps is None as published."""


def shared_out(total: int, transforms: str, curriculum: bool) -> tuple[int, ...]:
    """A tenth each for the first and the last phase, the rest for those between."""
    edge, count = total // 10, transforms.count("-") + 1
    if not curriculum:
        return (total - edge, edge)
    return (edge, *[(total - 2 * edge) // count] * count, edge)


def published(name: str, transforms: str, curriculum: bool) -> tuple[int, ...]:
    """The authors' epochs of a set, for other transforms than theirs.

    The paper does not say. Here every row has as many as the whole model: another order keeps the
    epochs of each place, those of a transform that is left out go to the phase before, and without
    a curriculum all but the last phase are one.
    """
    *epochs, last = PUBLISHED.get(name, PUBLISHED["mnist-test"])["epochs"]
    if not curriculum:
        return (sum(epochs), last)
    whole = SETS.get(name, SETS["mnist-test"])[2].split("-")
    if len(whole) == transforms.count("-") + 1:
        return (*epochs, last)
    shared = epochs[:1]
    for transform, count in zip(whole, epochs[1:], strict=True):
        if transform in transforms.split("-"):
            shared.append(count)
        else:
            shared[-1] += count
    return (*shared, last)


def settings_of(args, name, row):
    """Method and settings of a row."""
    if row in TRAINING:
        settings = dict(TRAINING[row])
        shares = settings.pop("shares", None)
        method, given = settings_of(args, name, "aff-morpho-tps")
        if shares is not None:
            name, total = "steps", args.steps
            if args.as_published:
                name, total = "epochs", sum(given["epochs"])
            given[name] = tuple(max(1, round(share * total)) for share in shares)
        return method, {**given, **settings}
    method, settings, _ = (ROWS | MIXTURE)[row]
    settings = {"transforms": SETS.get(name, SETS["mnist-test"])[2], **settings}
    phases = settings["transforms"], settings.get("curriculum", True)
    if args.as_published:
        epochs = published(name, *phases)
        return method, {**settings, "epochs": (1,) * len(epochs) if args.quick else epochs}
    steps = shared_out(args.ti_steps if method == "ti-kmeans" else args.steps, *phases)
    shortlist = {"shortlist": args.shortlist}
    moves = {"split_merge": False} if args.no_moves else {}
    return method, {**shortlist, **moves, **settings, "steps": steps}


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 5, "help": "number of seeds"},
        set={"default": "mnist-1k", "choices": list(SETS)},
        rows={"nargs": "+", "choices": [*ROWS, *MIXTURE, *TRAINING], "metavar": "ROW"},
        limit={"type": int, "default": None, "help": "at most so many images"},
        **SOURCE,
        steps={"type": int, "default": None, "help": "steps of a DTI run"},
        ti_steps={"type": int, "default": 400, "help": "steps of a TI run, which are slow"},
        no_moves={"action": "store_true", "help": "without split-and-merge moves"},
        shortlist={
            "type": int,
            "default": None,
            "help": "clusters of a short list; none if not given",
        },
        as_published={"action": "store_true", "help": "the authors' settings"},
        **CHANGED,
        mixture={"action": "store_true", "help": "the rows of a mixture"},
        training={"action": "store_true", "help": "other rates, batches, schedules, temperatures"},
        **RESULTS,
    )
    args.steps = args.steps or sum(STEPS[args.set])
    rows = [row for row in ROWS if not (args.as_published and row.endswith("(ours)"))]
    names = args.rows or list(MIXTURE if args.mixture else TRAINING if args.training else rows)
    if args.quick:
        args.seeds, args.limit, args.steps, args.ti_steps = 1, 100, 20, 10
        if not (args.mixture or args.training or args.rows):
            names = ["without morphological", "without curriculum", "TI, affine only"]
    [(name, data, k)] = datasets(args, lambda name: data_of(name, args.limit), [args.set])
    words = ["no moves"] * args.no_moves
    words += [f"short list {args.shortlist}"] * (args.shortlist is not None)
    words += changed_words(args, "dti-gmm" if MIXTURE.keys() & names else "dti-kmeans")
    words = ["as published"] if args.as_published else words or ["default"]
    label = ", ".join([*words, *source_words(args)])

    def one(name, label, row, limit, steps, seed):
        method, settings = settings_of(args, name, row)
        temperature = settings.pop("temperature", None)
        given = {"num_clusters": k, "as_published": args.as_published, **settings}
        given |= changed_of(args, method)
        model = model_of(method, name, **given)
        if temperature is not None:
            soft = PrototypeObjective(SquaredEuclidean(), Entropic(temperature), followed=3)
            model = dataclasses.replace(model, own_objective=soft)
        return run(model, data, seed, row)

    def steps_of(row):
        if args.as_published:
            return None
        return args.ti_steps if row.startswith("TI") else args.steps

    asked = [
        (name, label, row, args.limit, steps_of(row), seed)
        for seed in range(args.seed, args.seed + args.seeds)
        for row in names
    ]
    rows = asked_runs(args.results, NAMES, asked, one)
    figures = {}
    for row in names:
        result = summary([each for each in rows if each["row"] == row])
        print(row, result, flush=True)
        paper = (ROWS | MIXTURE)[row][2] if row not in TRAINING else None
        figures[row] = {"steps": steps_of(row), **result, "paper (MNIST)": paper}
    finish({"experiment": "dti_ablation", "set": name, "seeds": args.seeds, **figures})


if __name__ == "__main__":
    main()
