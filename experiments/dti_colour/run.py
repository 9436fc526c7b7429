"""DTI clustering, App. C.4: a full colour matrix hides several patterns in one prototype.

    python -m experiments.dti_colour.run [--seed 0] [--out FILE.png]

Zeros and ones of MNIST in random colours, and a single prototype. A diagonal colour map (`col`) can
only blur them together; a full one (`fullcol`, 12 params) keeps the one kind in one channel and the
other in another, and picks between them by its matrix: the loss falls and the channels of the
prototype no longer look alike, which the correlations between them tell.
"""

import jax
import numpy as np

from diffclust.data import load
from diffclust.models import DTIKMeans, Training
from experiments.harness import arguments, finish


def coloured_digits(seed: int, limit: int) -> np.ndarray:
    data = load("mnist", split="test")
    kept = np.flatnonzero(np.isin(data.labels, [0, 1]))[:limit]
    colours = np.random.default_rng(seed).uniform(0.4, 1.0, (len(kept), 1, 1, 3))
    return (data.images[kept] * colours).astype(np.float32)


def channel_correlations(prototype: np.ndarray) -> list[float]:
    matrix = np.corrcoef(prototype.reshape(-1, 3).T)
    return [round(float(matrix[i, j]), 3) for i, j in ((0, 1), (0, 2), (1, 2))]


def picture(prototypes: dict[str, np.ndarray], path: str) -> None:
    """The prototype and its channels, a row for each colour map."""
    from PIL import Image

    rows = []
    for prototype in prototypes.values():
        channels = [np.repeat(prototype[..., c : c + 1], 3, axis=2) for c in range(3)]
        low = [channel - channel.min() for channel in channels]
        scaled = [channel / max(1e-6, channel.max()) for channel in low]
        rows.append(np.concatenate([np.clip(prototype, 0, 1), *scaled], axis=1))
    pixels = (255 * np.concatenate(rows)).round().astype(np.uint8)
    Image.fromarray(pixels).resize((4 * pixels.shape[1], 4 * pixels.shape[0])).save(path)


def main():
    args = arguments(
        __doc__,
        steps={"type": int, "default": 2000, "help": "steps of each fit"},
        out={"default": None, "help": "PNG with the prototypes and their channels"},
    )
    limit = 1000
    if args.quick:
        args.steps, limit = 40, 60
    images = coloured_digits(args.seed, limit)
    figures, prototypes = {}, {}
    for names in ("col", "fullcol"):
        steps = (args.steps // 10, args.steps * 7 // 10, args.steps // 5)
        model = DTIKMeans(1, transforms=names, training=Training(steps=steps))
        result = model.fit(images, key=jax.random.key(args.seed))
        prototypes[names] = result.prototypes[0]
        figures[names] = {
            "loss": round(result.loss / len(images), 3),
            "correlations of channels": channel_correlations(result.prototypes[0]),
        }
        print(names, figures[names], flush=True)
    if args.out:
        picture(prototypes, args.out)
    finish({"experiment": "dti_colour", "n": len(images), "steps": args.steps, **figures})


if __name__ == "__main__":
    main()
