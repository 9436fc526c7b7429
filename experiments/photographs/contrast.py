"""PSSC on photographs by features of local contrast, of pictures as they are, and of both kinds.

    python -m experiments.photographs.contrast [--seed 0] [--seeds 3] [--quick] [--limit 1000]
        [--sets plain grounds paper ...] [--features ...] [--results FILE] [--out FIGURE.png]

Whole fits. `local` is the default where the ground is kept, `as they are` was the default before.
The sets are those of `experiments.default_method`. Labels score, and nothing else. With `--out`
nothing is fitted, and some pictures are drawn as they are, registered, and of local contrast.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from diffclust.features import local_contrast
from diffclust.metrics import scores
from diffclust.models import ProjectedScatteringSpectralClustering
from diffclust.registration import Frame
from experiments.default_method.run import SETS
from experiments.harness import RESULTS, arguments, finish, mean_and_std, missing_runs

FEATURES = {
    "as they are": {"contrast": "none"},
    "local": {"contrast": "local"},
    "local, not relative": {"contrast": "local", "relative": False},
    "local, relative": {"contrast": "local", "relative": True},
}


def row_of(name, features, seed, limit):
    """One fit, as a line of the results."""
    images, labels = SETS[name](limit, seed)
    model = ProjectedScatteringSpectralClustering(len(np.unique(labels)), **FEATURES[features])
    start = time.perf_counter()
    result = model.fit(images, key=jax.random.key(seed))
    return {
        "ground": result.model.ground,
        **{each: round(value, 4) for each, value in scores(labels, result.assignments).items()},
        "stability": round(result.outcome.figures["stability"], 4),
        "seconds": round(time.perf_counter() - start, 1),
    }


def draw(names, seed, path):
    """Some pictures of each set as they came, registered, and of local contrast."""
    kinds = []
    for name in names:
        images = SETS[name](8, seed)[0][:5]
        frame = Frame("place", "keep")
        registered = np.asarray(frame.registered(images))
        local = np.asarray(jax.vmap(local_contrast)(jnp.asarray(registered)))
        kinds.append((images, registered, np.clip(0.5 + local / 5, 0, 1)))
    rows = [np.concatenate(np.concatenate(row), axis=1) for row in zip(*kinds, strict=True)]
    # Noise does not pack; few colours do.
    Image.fromarray(np.uint8(255 * np.concatenate(rows).clip(0, 1))).quantize(96).save(path)


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 3, "help": "number of seeds, of sets and methods"},
        limit={"type": int, "default": 1000, "help": "images of a set"},
        sets={"nargs": "+", "default": ["plain", "grounds", "paper"], "choices": list(SETS)},
        features={"nargs": "+", "default": ["as they are", "local"], "choices": list(FEATURES)},
        out={"help": "file of a picture, in the place of results"},
        **RESULTS,
    )
    if args.out:
        draw(args.sets, args.seed, args.out)
        return
    if args.quick:
        args.seeds, args.limit, args.sets = 1, 60, ["plain"]
    seeds = range(args.seed, args.seed + args.seeds)
    asked = [(n, f, s) for s in seeds for n in args.sets for f in args.features]
    rows = missing_runs(
        args.results, ("set", "features", "seed"), asked, lambda *each: row_of(*each, args.limit)
    )
    figures = {}
    for row in rows:
        figures.setdefault(f"{row['set']}, {row['features']}", []).append(row)
    finish(
        {
            "experiment": "photographs_contrast",
            "limit": args.limit,
            **{
                place: {each: mean_and_std([row[each] for row in of]) for each in ("acc", "nmi")}
                for place, of in figures.items()
            },
        }
    )


if __name__ == "__main__":
    main()
