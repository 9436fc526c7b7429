"""Photographs in grey, of which a ground is doubtful: what `register="auto"` makes of them.

    python -m experiments.photographs.grey [--seed 0] [--seeds 1] [--quick] [--limit 600]
        [--sets plain grounds paper textured noise polarities places planted] [--results FILE]

The photographs of `experiments.default_method` in grey, and MNIST's training digits on textures,
in noise, and in noise lighter or darker than their ground. PSSC by the ground that is found
(`found`, without trying others), with the ground kept, without registration, by `auto`, and by the
mean graph of the first three (`mean`). The rule was chosen on these sets, but for the last two:
noisy digits in the left or the right half, and noisy digits with copies of one of them. Labels
score, and nothing else.
"""

import functools
import time

import jax
import numpy as np

from diffclust import ProjectedScatteringSpectralClustering
from diffclust.data import load
from diffclust.metrics import scores
from diffclust.registration import ink_of
from experiments.default_method.run import SETS as PHOTOGRAPHS
from experiments.harness import RESULTS, arguments, asked_runs, finish
from experiments.photographs.views import cut_of_views
from experiments.registration.balance import COPIES
from experiments.registration.development import SETS as DIGITS

LUMA = np.array([0.299, 0.587, 0.114], np.float32)
FRAMES = {
    "found": {"register": "upright"},
    "kept": {"register": "place", "ground": "keep"},
    "none": {"register": "none"},
    "auto": {"register": "auto"},
}


def digits(name, limit, seed):
    given = load("mnist", split="train", limit=limit, seed=seed)
    return DIGITS[name](given.images, given.labels, seed), given.labels


def planted(limit, seed):
    """Moved digits, of which 28 are copies of one."""
    images, labels = digits("affnist", limit, seed)
    copies = np.random.default_rng(seed).choice(len(images), COPIES, replace=False)
    images, labels = images.copy(), labels.copy()
    images[copies], labels[copies] = images[copies[0]], labels[copies[0]]
    return images, labels


def noisy(figures, polarities, limit, seed):
    """Figures with noise of a tenth, on a dark ground or on one between."""
    draw = np.random.default_rng(seed)
    ink, labels = figures(limit, seed)
    sign = draw.choice([-0.4, 0.4], (len(ink), 1, 1, 1)) if polarities else 0.6
    made = (0.5 if polarities else 0.3) + sign * ink + 0.1 * draw.normal(size=ink.shape)
    return made.clip(0, 1).astype(np.float32), labels


def grey(name, limit, seed):
    images, labels = PHOTOGRAPHS[name](limit, seed)
    return (np.asarray(images) @ LUMA)[..., None], labels


SETS = {
    **{name: functools.partial(grey, name) for name in ("plain", "grounds", "paper")},
    "textured": functools.partial(digits, "textured"),
    "noise": functools.partial(noisy, functools.partial(digits, "affnist"), False),
    "polarities": functools.partial(noisy, functools.partial(digits, "affnist"), True),
    "places": functools.partial(noisy, functools.partial(digits, "two-places"), False),
    "planted": functools.partial(noisy, planted, False),
}


def settings_of(frame, images):
    """The settings of a frame, with the ground that is found."""
    found = {"ground": ink_of(images) or "none"} if frame == "found" else {}
    return {**FRAMES[frame], **found}


def mean_of_frames(images, labels, key):
    """Scores of the cut of the mean graph of three frames."""
    views = [settings_of(frame, images) for frame in ("found", "kept", "none")]
    cut = cut_of_views(images, len(np.unique(labels)), views, key)
    return {k: round(float(v), 4) for k, v in scores(labels, cut.points.assignments).items()}


def row_of(name, frame, limit, seed):
    """One fit, as a line of the results."""
    images, labels = SETS[name](limit, seed)
    start = time.perf_counter()
    if frame == "mean":
        figures = mean_of_frames(images, labels, jax.random.key(seed))
        return {**figures, "seconds": round(time.perf_counter() - start, 1)}
    settings = settings_of(frame, images)
    model = ProjectedScatteringSpectralClustering(len(np.unique(labels)), **settings)
    result = model.fit(images, key=jax.random.key(seed))
    figures = {**scores(labels, result.assignments), **result.outcome.figures}
    return {
        "register": result.model.register,
        "ground": result.model.ground,
        **{n: round(float(figures[n]), 4) for n in ("acc", "nmi", "ari", "stability")},
        "seconds": round(time.perf_counter() - start, 1),
    }


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 1, "help": "number of seeds"},
        limit={"type": int, "default": 600, "help": "images of each set"},
        sets={"nargs": "+", "default": list(SETS), "choices": list(SETS)},
        **RESULTS,
    )
    if args.quick:
        args.seeds, args.limit, args.sets = 1, 100, ["textured"]
    asked = [
        (name, frame, args.limit, seed)
        for name in args.sets
        for frame in (*FRAMES, "mean")
        for seed in range(args.seed, args.seed + args.seeds)
    ]
    rows = asked_runs(args.results, ("set", "frame", "limit", "seed"), asked, row_of)
    finish({"experiment": "photographs_grey", "runs": rows})


if __name__ == "__main__":
    main()
