"""What the experiments on DTI clustering share: settings by data set, runs watched on the way."""

import argparse
import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jax
import numpy as np

from diffclust.data import load
from diffclust.methods import METHODS
from diffclust.metrics import scores
from diffclust.models import MODELS
from diffclust.models.settings import BackboneName
from diffclust.parallel import Data
from diffclust.solvers import assign_softly
from diffclust.solvers.adam import BiasCorrection
from experiments.harness import (
    RESULTS,
    SCORED,
    SOURCE,
    arguments,
    asked_runs,
    finish,
    fitted_and_scored,
    source_words,
)
from experiments.registration.development import in_published_colours

SETS = {
    "mnist": ("mnist", "all", "aff-morpho-tps"),
    "mnist-test": ("mnist", "test", "aff-morpho-tps"),
    "mnist-1k": ("mnist-1k", "all", "aff-morpho-tps"),
    "usps": ("usps", "all", "col-aff-tps"),
    "mnist-color": ("mnist-color", "all", "col-aff-tps"),
    "color-published": ("mnist", "all", "col-aff-tps"),
    "affnist-like": ("affnist-like", "all", "aff-morpho-tps"),
    "digits": ("digits", "all", "col-aff-tps"),
}
"""Source, split and transforms of each data set (Table 4). Colours of `color-published` are drawn
as in the authors' code; `mnist-color` is our own set."""


STEPS = {
    "mnist": (500, 1500, 2000, 2000, 1000),
    "mnist-test": (300, 1200, 1200, 1500, 500),
    "mnist-1k": (300, 1000, 1000, 1000, 300),
    "usps": (500, 1000, 1500, 1500, 500),
    "mnist-color": (300, 1000, 1500, 1500, 500),
    "color-published": (300, 1000, 1500, 1500, 500),
    "affnist-like": (300, 2000, 1200, 1500, 500),
    "digits": (200, 500, 500, 500, 200),
}
"""Steps of each phase: without transforms, with one more each, with all at a lower rate.

A fifth to a quarter of the authors' steps, chosen by when the loss of a first run levelled off.
Fits of DTI clustering have their sum, shared out by the library, unless `--curriculum-start` says
that they begin without transforms.
"""


_AFFNIST = {"epochs": (5, 15, 5, 12, 8), "learning_rate": 1e-4, "refill_every": 400}
_FASHION = {"epochs": (5, 10, 10, 10, 5), "refill_every": 50}

PUBLISHED: dict[str, dict[str, Any]] = {
    "mnist": {"epochs": (5, 10, 5, 15, 5)},
    "mnist-test": {"epochs": (50, 100, 50, 80, 20)},
    "mnist-1k": {"epochs": (100, 400, 200, 500, 500), "batch_size": 100, "refill_every": 40},
    "usps": {"epochs": (60, 60, 80, 50, 20), "boundary": "zero"},
    "mnist-color": {"epochs": (5, 10, 15, 15, 5)},
    "color-published": {"epochs": (5, 10, 15, 15, 5)},
    "affnist-like": _AFFNIST,
    "affnist-test.npz": _AFFNIST,
    "tfds:fashion_mnist": _FASHION,
    "fashion.npz": _FASHION,
    "frgc": {"epochs": (50, 150, 200, 250, 50), "refill_every": 20},
    "svhn.npz": {"epochs": (2, 16, 12, 3), "refill_every": 100},
}
"""What the authors' configurations have beside `as_published`, for a set or the name of a source.

Those of affNIST are for 320,000 images, those of Fashion-MNIST for 70,000. Transforms that are not
in `SETS` are options of the commands, which are in docs/papers.md; epochs of photographs are there,
too.
"""


INITIAL_VARIANCE = MODELS["dti-gmm"](1).initial_variance
"""The default of DTI mixtures."""

CHANGED: dict[str, dict[str, Any]] = {
    "bias_correction": {
        "default": "array",
        "choices": get_args(BiasCorrection),
        "help": "from when Adam counts steps; not as published",
    },
    "initial_variance": {
        "type": float,
        "default": INITIAL_VARIANCE,
        "help": "of DTI mixtures; not as published",
    },
    "variance_curriculum": {
        "action": argparse.BooleanOptionalAction,
        "default": True,
        "help": "of DTI mixtures; not as published",
    },
}
"""Options of commands that fit DTI models, whose defaults changed on 30 November 2026: rows from
before have `fit`, and mixtures 0.25 and no curriculum of variances."""


def changed_of(args: argparse.Namespace, method: str) -> dict[str, Any]:
    """The settings that these options ask of a method."""
    if getattr(args, "as_published", False):
        return {}
    names = CHANGED if method == "dti-gmm" else ["bias_correction"]
    return {name: getattr(args, name) for name in names}


def changed_words(args: argparse.Namespace, method: str) -> list[str]:
    """What tells runs with other values from those with the defaults."""
    given = changed_of(args, method)
    words = ["bias correction fit"] * (given.get("bias_correction") == "fit")
    variance = given.get("initial_variance", INITIAL_VARIANCE)
    words += [f"initial variance {variance:g}"] * (variance != INITIAL_VARIANCE)
    late = given.get("variance_curriculum", True)
    return words if late else [*words, "variances learned from the start"]


def data_of(name: str, limit: int | None = None):
    source, split, _ = SETS[name]
    data = load(source, split=split, limit=limit, seed=0)
    if name == "color-published":
        images = in_published_colours(data.images, data.labels, 0)
        return dataclasses.replace(data, images=images)
    return data


def steps_of(name: str) -> tuple[int, ...]:
    """The steps of a set's phases, of another set those of the MNIST test digits."""
    return STEPS.get(name, STEPS["mnist-test"])


def model_of(
    method: str, name: str, *, num_clusters: int = 10, as_published: bool = False, **settings: Any
):
    """A DTI model with the paper's transforms for a data set, or K-means or a mixture.

    As published, it has the authors' configuration of the set, and a mixture is exact.
    """
    kind, (_, _, transforms) = MODELS[method], SETS.get(name, ("", "", "col-aff-tps"))
    known = kind.setting_types()
    given: dict[str, Any] = {"transforms": transforms, **settings}
    if as_published:
        published = getattr(kind, "as_published", None)
        base = {} if published is None else published(num_clusters).settings()
        plain = {"followed": None, "split_merge": False, "num_restarts": 1, "refill_every": 50}
        given = {**plain, **base, **PUBLISHED.get(name, {}), **given}
    else:
        boundary = "zero" if name in ("usps", "digits") else "edge"
        counts = steps_of(name)
        planned = {"max_steps": sum(counts)} if "transforms" in known else {"steps": counts}
        given = {"boundary": boundary, **planned, **given}
    if "transforms" not in known:
        # Two phases: at the learning rate, and at a tenth of it.
        for name in ("steps", "epochs"):
            *first, last = given.get(name) or (0,)
            given[name] = (sum(first), last) if first else None
    given = {setting: value for setting, value in given.items() if setting in known}
    return kind.from_settings({**given, "num_clusters": num_clusters})


class Watch:
    """Assigns all samples now and then, and notes accuracy and loss against the time trained.

    Given to a fit as its snapshots, it is shown every state, and saves none.
    """

    def __init__(self, model, images, labels, *, every: float, prefix: str) -> None:
        self.model, self.images, self.labels = model, model.preprocessed(images), labels
        self.every, self.prefix = every, prefix
        self.begun, self.paused, self.looked = time.perf_counter(), 0.0, 0.0
        self.trace: list[dict[str, float]] = []

    @property
    def trained(self) -> float:
        return time.perf_counter() - self.begun - self.paused

    def latest(self, like: Callable[[dict[str, Any]], Any]) -> None:
        del like

    def last(self) -> None:
        return None

    def save(self, state: Callable[[], tuple[Any, dict[str, Any]]]) -> None:
        if self.trained - self.looked < self.every:
            return
        (arrays, _), stopped = state(), time.perf_counter()
        run, training = arrays.run, arrays.run.state
        if training is None:
            # A restart has ended.
            return
        self.looked = self.trained
        plan = self.model.training_plan(Data(self.images).description)
        phase = min(run.phase, len(plan.phases) - 1)
        solver = self.model.solver(plan.phases[phase].solver, self.images.shape[3])
        data = Data(self.images, chunk_size=512)
        result, losses, _ = assign_softly(solver, training.learned, data)
        row = {
            "seconds": round(self.looked, 1),
            "step": int(training.step),
            "phase": run.phase,
            "moves": run.moves,
            "loss": float(np.mean(losses, dtype=np.float64)),
            **scores(self.labels, result.clusters),
        }
        self.trace.append(row)
        words = [f"{k}={v:.4f}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()]
        print(self.prefix, *words, flush=True)
        self.paused += time.perf_counter() - stopped


def run(
    model,
    data,
    seed: int,
    prefix: str,
    *,
    every: float | None = None,
    start: str | None = None,
    scored: Any = None,
) -> dict[str, Any]:
    """One fit: its loss a sample, its scores, and how long it took without looking on.

    Of other images than were fitted (`scored`), the scores are those of what is predicted; those
    that were fitted need no labels then, and are not watched.
    """
    watch, scored = None, data if scored is None else scored
    every = every if scored is data else None
    if every is not None and model.descriptor.solver == "gradient":
        watch = Watch(model, data.images, data.labels, every=every, prefix=f"{prefix} seed={seed}")
    started, key, assignments = time.perf_counter(), jax.random.key(seed), None
    if start is not None:
        given = {"num_clusters": model.num_clusters, "register": "none"}
        first = MODELS[start].from_settings(given)
        assignments = first.fit(data.images, key=key).assignments
        if data.labels is not None:
            actual = {k: round(v, 4) for k, v in scores(data.labels, assignments).items()}
            print(prefix, start, actual, f"seconds={time.perf_counter() - started:.1f}", flush=True)
    result = model.fit(data.images, key=key, snapshots=watch, assignments=assignments)
    seconds = time.perf_counter() - started - (watch.paused if watch else 0.0)
    clusters = result.assignments if scored is data else result.predict(scored.images).clusters
    row = {
        "seed": seed,
        "n": len(data),
        "n_scored": len(scored),
        "loss": result.loss / len(data),
        **scores(scored.labels, clusters),
        **{name: int(result.outcome.figures.get(name, 0)) for name in ("refills", "moves")},
        "seconds": round(seconds, 1),
    }
    words = [f"{k}={v:.4f}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()]
    print(prefix, "done", *words, flush=True)
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean, deviation, least, median and greatest of the scores, and the run of least loss."""
    result: dict[str, Any] = {}
    for name in ("acc", "nmi"):
        values = np.asarray([row[name] for row in rows])
        result[name] = {
            "mean": round(float(values.mean()), 4),
            "std": round(float(values.std()), 4),
            "min": round(float(values.min()), 4),
            "median": round(float(np.median(values)), 4),
            "max": round(float(values.max()), 4),
        }
    least = min(rows, key=lambda row: row["loss"])
    result["least_loss"] = {k: round(float(least[k]), 4) for k in ("seed", "loss", "acc", "nmi")}
    result["seconds"] = round(float(np.mean([row["seconds"] for row in rows])), 1)
    return result


NAMES = ("set", "method", "settings", "limit", "seed")
"""What tells the runs of a table apart."""


def _begins_without(args: argparse.Namespace, method: str) -> bool:
    """Whether training begins without transforms though no steps are given."""
    planned = args.as_published or args.steps is not None or args.epochs is not None
    moves = METHODS[method].moves == "prototypes"
    return args.curriculum_start == "identity" and moves and not planned


def _settings(args: argparse.Namespace, method: str, backbone: str, name: str) -> dict[str, Any]:
    """The settings that a table's options ask of a method."""
    given: dict[str, Any] = {} if args.transforms is None else {"transforms": args.transforms}
    if _begins_without(args, method):
        given |= {"steps": steps_of(name)}
    for name in ("register", "window"):
        if (value := getattr(args, name)) is not None:
            given[name] = value
    if args.steps is not None:
        given |= {"steps": tuple(args.steps), "epochs": None}
    if args.epochs is not None:
        given |= {"steps": None, "epochs": tuple(args.epochs)}
    if args.as_published:
        return given
    return given | {
        "backbone": backbone,
        "split_merge": not args.no_moves,
        "shortlist": args.shortlist,
        "num_starts": args.starts,
        **changed_of(args, method),
    }


def _words(args: argparse.Namespace, method: str, backbone: str) -> str:
    """The same settings in words, which tell runs apart."""
    words = ["as published"] if args.as_published else [backbone] if backbone else []
    if not args.as_published:
        words += ["no moves"] * args.no_moves
        words += [f"{args.starts} starts"] * (args.starts > 1)
        words += [f"short list {args.shortlist}"] * (args.shortlist is not None)
        words += changed_words(args, method)
        words += ["begun without transforms"] * _begins_without(args, method)
    for name in ("steps", "epochs"):
        if (counts := getattr(args, name)) is not None:
            words.append(f"{name} {' '.join(map(str, counts))}")
    if args.start is not None:
        words.append(f"from {args.start}")
    words += [args.transforms] if args.transforms else []
    words += [f"register {args.register}"] if args.register else []
    words += [f"window {args.window}"] if args.window else []
    return ", ".join([*words, *source_words(args)]) or "default"


TABLED = ("dti-kmeans", "dti-gmm", "ti-kmeans", "kmeans", "gmm")
"""The methods of the tables."""

_OPTIONS: dict[str, dict[str, Any]] = {
    "seeds": {"type": int, "default": 5, "help": "number of seeds"},
    "methods": {"nargs": "+", "default": ["dti-kmeans", "dti-gmm"], "choices": TABLED},
    "backbones": {"nargs": "+", "default": ["strided"], "choices": get_args(BackboneName)},
    "every": {"type": float, "default": 60.0, "help": "seconds between two looks"},
    "limit": {"type": int, "default": None, "help": "at most so many images"},
    "steps": {"type": int, "nargs": "+", "default": None, "help": "steps of each phase"},
    "shortlist": {"type": int, "default": None, "help": "judge so many clusters at the end"},
    "start": {"default": None, "help": "begin with this method's assignments"},
    "no_moves": {"action": "store_true", "help": "without split-and-merge moves"},
    "epochs": {"type": int, "nargs": "+", "default": None, "help": "epochs of each phase"},
    "starts": {"type": int, "default": 1, "help": "starts that race"},
    **CHANGED,
    "curriculum_start": {
        "default": "spatial",
        "choices": ["spatial", "identity"],
        "help": "where training begins if neither steps nor epochs are given",
    },
    "window": {"type": float, "default": None, "help": "as the models' setting"},
    "register": {"default": None, "help": "as the models' setting, if not their default"},
    "transforms": {"default": None, "help": "in the place of the set's"},
    "as_published": {"action": "store_true", "help": "the authors' settings"},
    **SOURCE,
    **SCORED,
    **RESULTS,
}
"""Of a table's command, beside its sets."""


def table(
    experiment: str, description: str, paper: dict[tuple[str, str], Any], sets: list[str]
) -> None:
    """Fits every set with every method, backbone and seed, and prints all of it."""
    given = {"nargs": "+", "default": sets, "choices": list(SETS)}
    args = arguments(description, sets=given, **_OPTIONS)
    if args.quick:
        args.seeds, args.limit, args.methods = 1, 200, ["dti-kmeans", "kmeans", "gmm"]
        args.sets, args.steps = args.sets[:1], (10, 10, 10, 10, 10)
    names = args.sets if args.source is None else [args.source]
    made: dict[str, Any] = {}

    @functools.lru_cache(maxsize=1)
    def read(name: str):
        if args.source is not None:
            return fitted_and_scored(args, args.limit)
        data = data_of(name, args.limit)
        return data, data, 10

    def one(name: str, method: str, settings: str, limit: int | None, seed: int):
        del limit
        data, scored, k = read(name)
        given = _settings(args, method, backbones[settings], Path(name).name)
        given |= {"num_clusters": k, "as_published": args.as_published}
        model = model_of(method, Path(name).name, **given)
        prefix = f"{name} {method} {settings}"
        made[prefix] = model.settings()
        watched = {"every": args.every, "start": args.start, "scored": scored}
        return run(model, data, seed, prefix, **watched)

    backbones = {
        _words(args, method, backbone): backbone
        for method in args.methods
        for backbone in ["", *args.backbones]
    }
    asked = [
        (name, method, _words(args, method, backbone), args.limit, seed)
        for name in names
        for method in args.methods
        for backbone in (args.backbones if METHODS[method].moves == "prototypes" else [""])
        for seed in range(args.seed, args.seed + args.seeds)
    ]
    rows = asked_runs(args.results, NAMES, asked, one)
    figures = {}
    for each in dict.fromkeys(call[:3] for call in asked):
        prefix = " ".join(each)
        result = summary(
            [row for row in rows if (row["set"], row["method"], row["settings"]) == each]
        )
        print(prefix, result, flush=True)
        figures[prefix] = {
            "settings": made.get(prefix),
            **result,
            "paper": paper.get((each[0], each[1])),
        }
    finish({"experiment": experiment, "seeds": args.seeds, **figures})
