"""A neighbour before and after the graph is refined, as pictures for the documentation.

    python -m experiments.di_spectral.pictures [--seed 0] [--quick] [--out FIGURE.png]

Of 3,000 MNIST test digits those whose nearest neighbour in scattering space falls farthest when
candidates are judged by bending; no label is looked at.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffclust
from diffclust.data import load
from diffclust.models.di_spectral import unit_norm
from diffclust.parallel import Data
from experiments.harness import arguments, finish

ROWS = 6


def rows_of(images, count):
    """Samples, their nearest by scattering and by bending, and the sample bent onto each."""
    # One list of candidates has one nearest.
    model = diffclust.DeformationInvariantSpectralClustering(10, num_removed=(2,))
    _, coordinates = model.project(Data(images))
    (candidates,) = model.neighbours(coordinates)
    (judged,) = model.rerank([candidates], images)
    units = unit_norm(images)
    distance = model.distance(units[:64])
    before, after = candidates.index[:, 0], judged.index[:, 0]
    place = (judged.index == before[:, None]).argmax(axis=1)
    cost = judged.distance[np.arange(len(images)), place]
    # How much dearer the old neighbour is than the new one.
    order = np.argsort(judged.distance[:, 0] / np.maximum(cost, 1e-6))
    bend = jax.jit(
        jax.vmap(lambda x, c: distance.energy.aligned(distance.align(x, c).params[0], x))
    )
    rows = []
    for i in order[:count]:
        bent = bend(jnp.asarray(units[[i, i]]), jnp.asarray(units[[before[i], after[i]]]))
        pictures = [
            units[i],
            units[before[i]],
            np.asarray(bent[0]),
            units[after[i]],
            np.asarray(bent[1]),
        ]
        rows.append((pictures, float(cost[i]), float(judged.distance[i, 0])))
    changed = float(np.mean(before != after))
    return rows, changed


def draw(rows, path):
    import matplotlib.pyplot as plt

    titles = ("sample", "nearest by\nscattering", "sample bent\nonto it", "nearest by\nbending")
    titles = (*titles, "sample bent\nonto it")
    figure, axes = plt.subplots(
        len(rows), 5, figsize=(6.2, 1.25 * len(rows) + 0.5), layout="constrained"
    )
    for line, (pictures, before, after) in zip(axes, rows, strict=True):
        for number, (axis, picture) in enumerate(zip(line, pictures, strict=True)):
            axis.imshow(picture[..., 0], cmap="gray_r")
            axis.set(xticks=[], yticks=[])
            if number in (2, 4):
                axis.set_xlabel(f"{before if number == 2 else after:.2f}", fontsize=8)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=8)
    figure.savefig(path, dpi=110)


def main():
    args = arguments(__doc__, out={"default": None, "help": "draw into this file"})
    data = load("mnist", split="test").limit(200 if args.quick else 3000, seed=args.seed)
    rows, changed = rows_of(data.images, ROWS)
    if args.out:
        draw(rows, args.out)
    finish(
        {
            "experiment": "di_spectral_pictures",
            "n": len(data),
            "share_with_another_nearest_neighbour": round(changed, 4),
            "distances": [[round(before, 3), round(after, 3)] for _, before, after in rows],
        }
    )


if __name__ == "__main__":
    main()
