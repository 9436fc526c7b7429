"""The papers' figures of centroids, maps and photographs, on data that are here.

    python -m experiments.gallery.papers [--seed 0] [--only di-centroids di-maps dti-photographs]
        [--out docs/images] [--count 500] [--steps 300] [--quick]

`di-centroids`: where K-means, AI and DI K-means begin and end (DI K-means, Figs. 3 and 7).
`di-maps`: t-SNE of the digits as they came, after affine maps and after splines, coloured by what
they are (Fig. 4). `dti-photographs`: prototypes of DTI's mixture (`col-proj`, ResNet-18) beside
those of a plain one, and photographs with their prototypes as predicted (DTI clustering, Fig. 3),
on the made set `plain`. Labels colour the maps; no fit sees them.
"""

import functools
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from PIL import Image, ImageDraw

import diffclust
from diffclust.data import load
from diffclust.distances import SquaredEuclidean
from diffclust.models import MODELS, warped_prototypes
from diffclust.parallel.chunks import cut
from diffclust.plotting import displayable, neighbour_map
from diffclust.solvers import kmeans_plus_plus
from experiments.gallery.run import by_row, panels, saved, show
from experiments.harness import arguments, finish
from experiments.photographs import sets

ALIGNED = {
    "K-means": diffclust.KMeans,
    "AI K-means": diffclust.AffineInvariantKMeans,
    "DI K-means": diffclust.DeformationInvariantKMeans,
}
SHOWN = 8
"""Prototypes of photographs in a row."""


@functools.cache
def fits(count, seed):
    """Digits, ten of them drawn by k-means++, and what the three methods make of these."""
    data = load("mnist", split="test").limit(count, seed=seed)
    chunks = cut(data.images, None, size=512)
    key = jax.random.key(seed)
    start = chunks.gather(kmeans_plus_plus(chunks, 10, SquaredEuclidean().to_all, key=key))
    results = {
        name: kind(10).fit(data.images, key=key, prototypes=start) for name, kind in ALIGNED.items()
    }
    return data, start, results


def centroids(args):
    """Ten prototypes as they began, and after each method."""
    _, start, results = fits(args.count, args.seed)
    rows = {"start": start, **{name: result.prototypes for name, result in results.items()}}
    figure, axes = panels(len(rows), 10, left=0.8, above=0.0)
    for line, images in zip(axes, rows.values(), strict=True):
        for axis, image in zip(line, np.asarray(images), strict=True):
            show(axis, image, own_range=True)
    by_row(axes, rows)
    return figure


def maps(args):
    """Digits near each other where they are alike, before and after they are aligned."""
    data, _, results = fits(args.count, args.seed)
    versions = {"as they came": data.images}
    for name, title in (("AI K-means", "after affine maps"), ("DI K-means", "after splines")):
        result = results[name]
        versions[title] = result.align(data.images, result.outcome.assignment.params)
    figure, axes = panels(1, len(versions), side=2.6)
    for axis, (title, images) in zip(axes[0], versions.items(), strict=True):
        x, y = neighbour_map(np.asarray(images), seed=args.seed).T
        axis.scatter(x, y, c=data.labels, cmap="tab10", s=2, linewidths=0)
        axis.set_title(title)
    return figure


def photographs(args):
    """Prototypes of two mixtures; below, photographs and what the moving one predicts of them."""
    images, _ = sets.SETS["plain"](40 if args.quick else 300, args.seed)
    key = jax.random.key(args.seed)
    size = {"num_clusters": 10, "batch_size": 16}
    steps = 8 if args.quick else args.steps
    plain = MODELS["gmm"].from_settings({**size, "max_steps": max(10, 2 * steps)})
    moving = MODELS["dti-gmm"].from_settings(
        {**size, "max_steps": max(10, steps), "transforms": "col-proj", "backbone": "residual"}
    )
    results = [model.fit(images, key=key) for model in (plain, moving)]
    actual = results[1].outcome.assignment
    predicted = warped_prototypes(results[1], actual.clusters, actual.params)
    order = np.argsort(-results[1].counts, kind="stable")[:SHOWN]
    nearest = [
        np.argmin(np.where(results[1].assignments == k, results[1].distances, np.inf))
        for k in order
    ]
    both = [np.asarray(result.prototypes) for result in results]
    first = np.argsort(-results[0].counts, kind="stable")[:SHOWN]
    rows = [both[0][first], both[1][order], images[nearest], np.asarray(predicted)[nearest]]
    return sheet(rows, ["mixture", "DTI mixture", "photograph", "predicted"])


def sheet(rows, names, *, left=84):
    """Rows of pictures, pixel by pixel, with a name before each."""
    height, width = rows[0].shape[1:3]
    picture = Image.new("RGB", (left + len(rows[0]) * width, len(rows) * height), "white")
    for line, (name, images) in enumerate(zip(names, rows, strict=True)):
        ImageDraw.Draw(picture).text((4, (line + 0.5) * height - 6), name, fill="black")
        for column, image in enumerate(images):
            pixels = Image.fromarray(displayable(np.clip(image, 0.0, 1.0)))
            picture.paste(pixels, (left + column * width, line * height))
    return picture


PICTURES = {"di-centroids": centroids, "di-maps": maps, "dti-photographs": photographs}


def main():
    args = arguments(
        __doc__,
        only={"nargs": "+", "default": list(PICTURES), "choices": list(PICTURES)},
        out={"type": Path, "default": Path("docs/images")},
        count={"type": int, "default": 500, "help": "digits"},
        steps={"type": int, "default": 300, "help": "of the mixture that moves"},
    )
    with tempfile.TemporaryDirectory() as scratch:
        if args.quick:
            args.out, args.count = Path(scratch), 100
        args.out.mkdir(parents=True, exist_ok=True)
        figures = {}
        for name in args.only:
            start = time.perf_counter()
            size = saved(PICTURES[name](args), args.out / f"{name}.png")
            figures[name] = {"bytes": size, "seconds": round(time.perf_counter() - start, 1)}
            print(name, figures[name], flush=True)
    finish({"experiment": "gallery_papers", **figures})


if __name__ == "__main__":
    main()
