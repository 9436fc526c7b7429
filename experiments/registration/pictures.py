"""Images before and after registration, as a picture for the documentation.

    python -m experiments.registration.pictures [--seed 0] [--quick] [--out FIGURE.png]
        [--restored FIGURE.png]

Training digits of MNIST, made into sets of several kinds; what ink is, is found from 256 of each.
The last two rows are what registration is not for. `--restored` draws another picture: moved
digits, and under each its prototype by DI K-means where it was.
"""

import jax
import numpy as np

from diffclust import DeformationInvariantKMeans
from diffclust.data import load
from diffclust.models import restored, unaligned
from diffclust.registration import Frame, ink_of
from experiments.harness import arguments, finish
from experiments.registration.development import SETS

ROWS = {
    "mnist": "as they are",
    "affnist": "moved",
    "color": "in colours",
    "gradient": "on gradients",
    "white": "dark on white",
    "cut": "cut by the border",
    "cluttered": "with clutter",
}
SHOWN = 5


def main():
    args = arguments(
        __doc__,
        out={"help": "file of the picture"},
        restored={"help": "file of the picture of moved digits and their prototypes"},
    )
    rows, inks = {}, {}
    digits = load("mnist", split="train", limit=16 if args.quick else 256, seed=args.seed)
    for name in ROWS:
        images = SETS[name](digits.images, digits.labels, args.seed)
        inks[name] = ink_of(images) or "none"
        shown = images[:SHOWN]
        placed, upright = (
            np.asarray(Frame(place, inks[name]).registered(shown)) for place in ("place", "upright")
        )
        rows[name] = (shown, placed, upright)
    if args.out:
        draw(rows, args.out)
    if args.restored:
        draw_restored(args, args.restored)
    finish({"experiment": "registration_pictures", "ink": inks})


def draw_restored(args, path, columns=14):
    """Moved digits in the upper rows, and below each its prototype as the digit was."""
    import matplotlib.pyplot as plt

    digits = load("mnist", split="train", limit=60 if args.quick else 600, seed=args.seed)
    images = SETS["affnist"](digits.images, digits.labels, args.seed)
    model = DeformationInvariantKMeans(10, register="upright")
    result = model.fit(images, key=jax.random.key(args.seed))
    shown, params = images[: 2 * columns], result.outcome.assignment.params[: 2 * columns]
    drawn = unaligned(result, params, result.prototypes[result.assignments[: 2 * columns]])
    pairs = np.stack([shown, restored(result, shown, drawn)], axis=1).squeeze(-1)
    figure, axes = plt.subplots(4, columns, figsize=(11, 3.3), layout="constrained")
    lines = pairs.reshape(2, columns, 2, *pairs.shape[2:]).swapaxes(1, 2)
    for axis, image in zip(axes.ravel(), lines.reshape(-1, *pairs.shape[2:]), strict=True):
        axis.imshow(image, cmap="gray", vmin=0, vmax=1)
        axis.axis("off")
    figure.savefig(path, dpi=75)


def draw(rows, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(rows), 3 * SHOWN + 2, figsize=(11, 0.68 * len(rows) + 0.4), layout="constrained"
    )
    for axis in axes.ravel():
        axis.axis("off")
    for line, (name, groups) in zip(axes, rows.items(), strict=True):
        for group, images in enumerate(groups):
            for i, image in enumerate(images):
                line[group * (SHOWN + 1) + i].imshow(image.squeeze(), cmap="gray", vmin=0, vmax=1)
        line[0].text(-0.15, 0.5, ROWS[name], ha="right", va="center", transform=line[0].transAxes)
    for group, title in enumerate(("as they came", "placed", "upright")):
        axes[0, group * (SHOWN + 1) + SHOWN // 2].set_title(title)
    figure.savefig(path, dpi=75)


if __name__ == "__main__":
    main()
