"""Methods of scattering coefficients on photographs, of pictures as they are and of local contrast.

    python -m experiments.photographs.contrast [--seed 0] [--seeds 3] [--quick] [--limit 1000]
        [--sets plain grounds paper ...] [--methods pssc ...] [--results FILE] [--out FIGURE.png]

Whole fits with `--register auto`, by `contrast="none"` and `"local"`, which is the default where
the ground is kept. The sets are those of `experiments.default_method`. Labels score, and nothing
else. With `--out` nothing is fitted, and some pictures are drawn as they are, registered, and of
local contrast.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from diffclust.features import local_contrast
from diffclust.metrics import scores
from diffclust.models import MODELS
from diffclust.registration import Frame
from experiments.default_method.run import SETS
from experiments.harness import RESULTS, arguments, asked_runs, finish, mean_and_std
from experiments.photographs.views import LIMIT, OF_SETS


def row_of(name, method, contrast, seed, limit):
    """One fit, as a line of the results."""
    images, labels = SETS[name](limit, seed)
    settings = {"num_clusters": len(np.unique(labels)), "register": "auto", "contrast": contrast}
    start = time.perf_counter()
    result = MODELS[method].from_settings(settings).fit(images, key=jax.random.key(seed))
    figures = {**scores(labels, result.assignments), **result.outcome.figures}
    return {
        "ground": result.model.ground,
        **{n: round(figures[n], 4) for n in ("acc", "nmi", "ari", "stability") if n in figures},
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
    methods = [name for name, model in MODELS.items() if "contrast" in model.setting_types()]
    args = arguments(
        __doc__,
        methods={"nargs": "+", "default": ["pssc"], "choices": methods},
        out={"help": "file of a picture, in the place of results"},
        **OF_SETS,
        **RESULTS,
    )
    if args.out:
        draw(args.sets, args.seed, args.out)
        return
    if args.quick:
        args.seeds, args.limit, args.sets = 1, 60, ["plain"]
    seeds = range(args.seed, args.seed + args.seeds)
    kinds = [(n, m, c) for n in args.sets for m in args.methods for c in ("none", "local")]
    rows = asked_runs(
        args.results,
        ("set", "method", "contrast", "seed", "limit"),
        [(*kind, seed, args.limit) for seed in seeds for kind in kinds],
        row_of,
        {"limit": LIMIT},
    )
    figures = {}
    for row in rows:
        place = f"{row['set']}, {row['method']}, contrast {row['contrast']}"
        figures.setdefault(place, []).append(row)
    means = {
        place: {each: mean_and_std([row[each] for row in of]) for each in ("acc", "nmi")}
        for place, of in figures.items()
    }
    finish({"experiment": "photographs_contrast", "limit": args.limit, **means})


if __name__ == "__main__":
    main()
