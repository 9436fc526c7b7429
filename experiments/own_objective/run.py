"""What the objective of docs/new-objective.md gives, whose code is run from that page.

    python -m experiments.own_objective.run [--seed 0] [--seeds 3] [--steps 1000] [--quick]

DTI K-means with affine maps on the bundled digits, with its own objective and with the page's, with
and without moves out of poor optima, from the same starts. Labels score, and do nothing else.
"""

import re
from pathlib import Path

import jax

from diffclust import DTIKMeans, Training
from diffclust.data import load
from diffclust.distances import SquaredEuclidean
from diffclust.metrics import scores
from diffclust.models import PrototypeObjective
from experiments.harness import arguments, finish, mean_and_std

PAGE = Path(__file__).parents[2] / "docs" / "new-objective.md"


def page_objective():
    """The page's class."""
    names = {}
    block = re.search(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    exec(compile(block[1], str(PAGE), "exec"), names)
    return names["Balanced"]


def main():
    args = arguments(
        __doc__, seeds={"type": int, "default": 3}, steps={"type": int, "default": 1000}
    )
    if args.quick:
        args.seeds, args.steps = 1, 20
    digits = load("digits", limit=200 if args.quick else None)
    objective = PrototypeObjective(SquaredEuclidean(), page_objective()(), followed=3)
    figures = {}
    for moves in (False, True):
        training = Training(max_steps=args.steps, split_merge=moves)
        for name, own in (("own", None), ("balanced", objective)):
            model = DTIKMeans(10, transforms="aff", training=training, own_objective=own)
            name += ", moves" if moves else ""
            actual = []
            for seed in range(args.seed, args.seed + args.seeds):
                result = model.fit(digits.images, key=jax.random.key(seed))
                score = scores(digits.labels, result.assignments)
                actual.append(score)
                words = " ".join(f"{k}={v:.3f}" for k, v in score.items())
                print(f"{name:16s} seed={seed} {words} sizes={result.counts.tolist()}", flush=True)
            figures[name] = {k: mean_and_std([each[k] for each in actual]) for k in ("acc", "nmi")}
    finish({"experiment": "own_objective", **figures})


if __name__ == "__main__":
    main()
