"""The papers' figures of centroids, maps and photographs, on data that are here.

    python -m experiments.gallery.papers [--seed 0] [--only di-centroids di-maps ...]
        [--out docs/images] [--count 500] [--steps 300] [--quick]

`di-centroids`: where K-means, AI and DI K-means begin and end (DI K-means, Figs. 3 and 7).
`di-maps`: t-SNE of the digits as they came, after affine maps and after splines, coloured by what
they are (Fig. 4). `dti-photographs`: prototypes of DTI's mixture (`col-proj`, ResNet-18) beside
those of a plain one, and photographs with their prototypes as predicted (DTI clustering, Fig. 3),
on the made set `plain`. `dti-prototypes`: prototypes of a mixture, of DTI K-means and of DTI's
mixture (Fig. 2a); `dti-predicted`: all prototypes of DTI K-means as they are predicted for one
digit (Fig. 2b), both with five times `--steps`. `shape-samples`: simulated skulls of three
covariances (shape K-means, Figs. 1 to 3). Labels colour the maps; no fit sees them.
"""

import functools
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageDraw

import diffclust
from diffclust.data import load, simulated_shapes
from diffclust.distances import SquaredEuclidean
from diffclust.models import MODELS, warped_prototypes
from diffclust.parallel.chunks import cut
from diffclust.plotting import displayable, neighbour_map
from diffclust.registration import generalised_procrustes
from diffclust.solvers import kmeans_plus_plus
from experiments.gallery.run import by_row, panels, saved, show
from experiments.harness import arguments, finish
from experiments.photographs import sets
from experiments.shape_kmeans_simulation.run import PER_GROUP, deviations, entries, mean_skulls

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
    steps = args.steps
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


MIXTURES = {"mixture": "gmm", "DTI K-means": "dti-kmeans", "DTI mixture": "dti-gmm"}


@functools.cache
def trained(method, count, seed, steps):
    """A gradient method on the digits."""
    data, _, _ = fits(count, seed)
    settings = {"num_clusters": 10, "max_steps": steps, "split_merge": steps > 100}
    if method != "gmm":
        settings["transforms"] = "aff-morpho-tps"
    return MODELS[method].from_settings(settings).fit(data.images, key=jax.random.key(seed))


def moving_prototypes(args):
    """Ten prototypes of each, the largest cluster first."""
    figure, axes = panels(len(MIXTURES), 10, left=0.8, above=0.0)
    for line, method in zip(axes, MIXTURES.values(), strict=True):
        result = trained(method, args.count, args.seed, 5 * args.steps)
        for axis, cluster in zip(line, np.argsort(-result.counts, kind="stable"), strict=True):
            show(axis, result.prototypes[cluster], own_range=True)
    by_row(axes, MIXTURES)
    return figure


def predicted(args):
    """All ten prototypes, and how each is warped onto one digit: the nearest of four clusters."""
    result = trained("dti-kmeans", args.count, args.seed, 5 * args.steps)
    images, learned = fits(args.count, args.seed)[0].images, result.outcome.learned
    order = np.argsort(-result.counts, kind="stable")
    figure, axes = panels(5, 11, left=0.0, above=0.0)
    for axis, cluster in zip(axes[0, 1:], order, strict=True):
        show(axis, result.prototypes[cluster], own_range=True)
    aligner = result.model.final_solver(images.shape[3]).aligner
    for line, cluster in zip(axes[1:], order[:4], strict=True):
        members = np.flatnonzero(result.assignments == cluster)
        digit = images[members[np.argmin(result.distances[members])]]
        params = aligner.predict(digit, learned.clusters, learned.shared)[order]
        show(line[0], digit)
        for axis, image in zip(line[1:], warped_prototypes(result, order, params), strict=True):
            show(axis, image, own_range=True)
    return figure


def shape_samples(args):
    """One sample of each covariance, both groups registered, with the mean of each."""
    means, keys = mean_skulls(), jax.random.split(jax.random.key(args.seed))
    figure = Figure(figsize=(7.0, 3.6), layout="constrained")
    cases = ("isotropic", "heteroscedastic", "anisotropic")
    for column, case in zip(figure.subplots(2, 3).T, cases, strict=True):
        deviation = deviations(entries(case, "printed", keys[0]), "deviation")
        shapes, groups = simulated_shapes(means, deviation, per_group=PER_GROUP, key=keys[1])
        for group, axis in enumerate(column):
            # Each was turned by any angle.
            laid = generalised_procrustes(shapes[groups == group], scaling=False)
            axis.scatter(*np.asarray(laid.registered).T, s=2, linewidths=0, color="C0")
            axis.plot(*np.asarray(laid.consensus).T, "k+", markersize=5)
            axis.set(aspect="equal", xticks=[], yticks=[])
        column[0].set_title(case)
        column[0].set_ylabel("7 days" if case == cases[0] else "")
        column[1].set_ylabel("14 days" if case == cases[0] else "")
    return figure


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


PICTURES = {
    "di-centroids": centroids,
    "di-maps": maps,
    "dti-photographs": photographs,
    "dti-prototypes": moving_prototypes,
    "dti-predicted": predicted,
    "shape-samples": shape_samples,
}


def main():
    args = arguments(
        __doc__,
        only={"nargs": "+", "default": list(PICTURES), "choices": list(PICTURES)},
        out={"type": Path, "default": Path("docs/images")},
        count={"type": int, "default": 500, "help": "digits"},
        steps={"type": int, "default": 300, "help": "of the mixture of photographs"},
    )
    with tempfile.TemporaryDirectory() as scratch:
        if args.quick:
            args.out, args.count, args.steps = Path(scratch), 100, 4
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
