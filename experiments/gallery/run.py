"""Every picture of the documentation.

    python -m experiments.gallery.run [--seed 0] [--only aligned skulls ...] [--out docs/images]
        [--quick]

One function a picture; each fits what it shows. Images are MNIST's test digits, shapes the skulls
of rats, letters those of the fonts that matplotlib carries; words and series are made. No label is
looked at. `--quick` draws from few samples into a folder that is thrown away.
"""

import functools
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont

import diffclust
from diffclust.analysis import shape_hierarchy
from diffclust.data import load, load_landmarks
from diffclust.features import Scattering
from diffclust.models import Training, warped_prototypes
from diffclust.plotting import dendrogram, displayable, scattering_filters
from experiments.di_spectral import pictures
from experiments.harness import arguments, data_file, finish
from experiments.series.run import made
from experiments.spoken_digits.run import write_words

LARGEST = 150_000
"""Bytes of a picture: a page shows several."""

DIGITS = 10
LETTERS = "ABCDEFGH"
FONTS = "DejaVuSans[!D]*ttf", "DejaVuSerif[!D]*ttf", "STIXGeneral*.ttf", "cm[brst][!ey]*.ttf"
"""Those of matplotlib's fonts that have letters in the usual places."""

matplotlib.rcParams["font.size"] = 8


@functools.cache
def digits(count, seed):
    return load("mnist", split="test").limit(count, seed=seed).images


@functools.cache
def fitted(model, count, seed):
    return model.fit(digits(count, seed), key=jax.random.key(seed))


def panels(rows, columns, *, side=0.62, above=0.3, left=0.0):
    """A figure of small pictures without axes."""
    size = (columns * side + left, rows * side + above)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    return figure, axes


def show(axis, image, *, own_range=False):
    pixels = displayable(image, own_range=own_range)
    axis.imshow(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels, cmap="gray_r")


def by_row(axes, names):
    for axis, name in zip(axes[:, 0], names, strict=True):
        axis.set_ylabel(name, rotation=0, ha="right", va="center")


def nearest(result, cluster, count):
    """Members of a cluster, from the nearest to the farthest in even steps."""
    members = np.flatnonzero(result.assignments == cluster)
    order = members[np.argsort(result.distances[members])]
    return order[np.linspace(0, 0.9 * (len(order) - 1), count).astype(int)] if len(order) else order


def beside(result, images, noun, *, side=0.62):
    """Prototypes, and of each cluster three samples as they were and as they were aligned."""
    moved = result.align(images, result.outcome.assignment.params)
    figure, axes = panels(7, len(result.prototypes), left=0.6, side=side)
    for cluster, column in enumerate(axes.T):
        show(column[0], result.prototypes[cluster], own_range=True)
        for place, sample in enumerate(nearest(result, cluster, 3)):
            show(column[1 + 2 * place], images[sample])
            show(column[2 + 2 * place], moved[sample])
    by_row(axes, ["prototype", *[noun, "aligned"] * 3])
    return figure


def aligned(args):
    """Ten prototypes of DI K-means, and digits as they were and as they were aligned."""
    model = diffclust.DeformationInvariantKMeans(DIGITS)
    images = digits(args.count, args.seed)
    return beside(fitted(model, args.count, args.seed), images, "digit")


def methods(args):
    """Prototypes of four methods on the same digits, the largest cluster first."""
    steps = 40 if args.quick else 1500
    models = {
        "K-means": diffclust.KMeans(DIGITS),
        "AI K-means": diffclust.AffineInvariantKMeans(DIGITS),
        "DI K-means": diffclust.DeformationInvariantKMeans(DIGITS),
        "DTI K-means": dti(steps),
        "di-spectral": diffclust.DeformationInvariantSpectralClustering(DIGITS),
    }
    figure, axes = panels(len(models), DIGITS, left=0.8)
    for line, model in zip(axes, models.values(), strict=True):
        result = fitted(model, args.count, args.seed)
        for axis, cluster in zip(line, np.argsort(-result.counts, kind="stable"), strict=True):
            show(axis, result.prototypes[cluster], own_range=True)
            axis.set_xlabel(f"{result.counts[cluster]}", fontsize=7, labelpad=1)
    by_row(axes, models)
    return figure


def dti(steps):
    training = Training(max_steps=steps)
    return diffclust.DTIKMeans(
        DIGITS, transforms="aff-morpho-tps", boundary="zero", training=training
    )


def stages(args):
    """How DTI K-means moves a prototype onto a digit, one transform after the other."""
    result = fitted(dti(40 if args.quick else 1500), args.count, args.seed)
    actual, images = result.outcome.assignment, digits(args.count, args.seed)
    titles = ("prototype", "affine", "thickness", "spline", "digit")
    figure, axes = panels(6, len(titles), side=0.8)
    # Those whose prototypes had the longest way to go, without the worst fits of all.
    size = np.linalg.norm(actual.params[:, :6], axis=1)
    good = actual.distances < np.quantile(actual.distances, 0.6)
    order = np.argsort(-np.where(good, size, -np.inf))
    _, first = np.unique(actual.clusters[order], return_index=True)
    for line, sample in zip(axes, order[np.sort(first)][:6], strict=False):
        cluster, params = actual.clusters[[sample]], actual.params[[sample]]
        steps = [warped_prototypes(result, cluster, params, transforms=n)[0] for n in (1, 2, 3)]
        shown = [result.prototypes[cluster[0]], *steps, images[sample]]
        for axis, image in zip(line, shown, strict=True):
            show(axis, image)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title)
    return figure


def warps(args):
    """Where DI K-means reads the digits it aligns: the aligned image's canvas, drawn over each."""
    model = diffclust.DeformationInvariantKMeans(DIGITS)
    result = fitted(model, args.count, args.seed)
    images, params = digits(args.count, args.seed), result.outcome.assignment.params
    moved = result.align(images, params)
    figure, axes = panels(3, 8, side=0.9, left=0.5, above=0.0)
    bending = np.linalg.norm(params - params.mean(0), axis=1)
    chosen = [np.argmax(np.where(result.assignments == k, bending, -1)) for k in range(8)]
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-1, 1, 9)))
    read = jax.vmap(model.transform().bind_map(jnp.asarray(grid, params.dtype)))
    for column, sample, points in zip(
        axes.T, chosen, read(params[np.asarray(chosen)]), strict=True
    ):
        height, width = images.shape[1:3]
        x, y = (np.asarray(points) + 1) / 2 * np.reshape([width, height], (2, 1, 1)) - 0.5
        show(column[0], images[sample])
        column[0].plot(x, y, color="tab:red", linewidth=0.5)
        column[0].plot(x.T, y.T, color="tab:red", linewidth=0.5)
        column[0].set(xlim=(-10, width + 9), ylim=(height + 9, -10))
        show(column[1], moved[sample])
        show(column[2], result.prototypes[result.assignments[sample]], own_range=True)
    by_row(axes, ["digit", "aligned", "prototype"])
    return figure


def refinement(args):
    """Neighbours by scattering and by bending; the picture of the page on di-spectral."""
    rows, _ = pictures.rows_of(digits(200 if args.quick else 3000, args.seed), pictures.ROWS)
    with tempfile.NamedTemporaryFile(suffix=".png") as file:
        pictures.draw(rows, file.name)
        return Image.open(file.name).convert("RGB")


def rats():
    result = load_landmarks(data_file("rats.npz"))
    age = np.asarray(result.columns["age_days"], np.int64)
    young = np.isin(age, (7, 14, 60))
    return result.landmarks[young], age[young]


@functools.cache
def skull_clusters(seed):
    landmarks, _ = rats()
    return diffclust.ShapeKMeans(3).fit(landmarks, key=jax.random.key(seed))


def skulls(args):
    """Skulls as they were measured, and registered, with the outlines of the three mean shapes."""
    landmarks, _ = rats()
    result = skull_clusters(args.seed)
    registered = result.align(landmarks, result.outcome.assignment.params)
    figure = Figure(figsize=(7.0, 2.9), layout="constrained")
    axes = figure.subplots(1, 2)
    shown = ("as measured", landmarks), ("registered, with mean shapes", registered)
    for axis, (title, shapes) in zip(axes, shown, strict=True):
        for cluster in range(3):
            x, y = np.moveaxis(shapes[result.assignments == cluster], -1, 0)
            axis.plot(x.ravel(), y.ravel(), ".", color=f"C{cluster}", markersize=2.5)
        axis.set_aspect("equal")
        axis.set_title(title, fontsize=8)
        axis.set_axis_off()
    for cluster, mean in enumerate(result.prototypes):
        axes[1].fill(*mean.T, facecolor="none", edgecolor=f"C{cluster}", linewidth=0.8)
    return figure


def tree(args):
    """Which skulls of 7 and 14 days resemble each other, by Fisher–Rao distances."""
    landmarks, age = rats()
    chosen = age < 60
    model = diffclust.ShapeKMeans(1, distance="fisher-rao", variances="per_landmark")
    result = shape_hierarchy(landmarks[chosen], model=model, linkage="ward")
    return dendrogram(result, names=age[chosen])


def letter(character, font, rng):
    """A letter of a font, of any size and place within bounds, and turned by up to 20 degrees."""
    canvas = Image.new("L", (112, 112))
    face = ImageFont.truetype(font, int(rng.integers(64, 92)))
    place = tuple(56 + rng.uniform(-8, 8, 2))
    ImageDraw.Draw(canvas).text(place, character, fill=255, font=face, anchor="mm")
    turned = canvas.rotate(rng.uniform(-20, 20), Image.Resampling.BICUBIC)
    return np.asarray(turned.resize((28, 28), Image.Resampling.BOX), np.float32) / 255


def some_letters(each, rng, letters=LETTERS):
    """Pictures of every letter, in all fonts in turn, and their labels."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = sorted(font for pattern in FONTS for font in folder.glob(pattern))
    images = [letter(c, fonts[i % len(fonts)], rng) for i in range(each) for c in letters]
    return np.stack(images)[..., None], np.tile(np.arange(len(letters)), each)


def letters(args):
    """Letters of many fonts, in as many clusters as there are letters."""
    images, _ = some_letters(2 if args.quick else 42, np.random.default_rng(args.seed))
    model = diffclust.DeformationInvariantKMeans(len(LETTERS))
    return beside(model.fit(images, key=jax.random.key(args.seed)), images, "letter")


def words(args):
    """Recordings of made-up words, as pictures of time and pitch."""
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(args.seed)
        write_words(Path(folder), 3 if args.quick else 20, rng)
        images = load(folder, rate=48_000, seconds=1.0).images
    result = diffclust.AffineInvariantKMeans(10).fit(images, key=jax.random.key(args.seed))
    return beside(result, images, "word")


def series(args):
    """Series as they were made, and warped, with the mean of those."""
    samples, _ = made(40 if args.quick else 120, 64, args.seed)
    result = diffclust.SeriesKMeans(4).fit(samples, key=jax.random.key(args.seed))
    warped = result.align(samples, result.outcome.assignment.params)
    figure = Figure(figsize=(7.0, 3.2), layout="constrained")
    axes = figure.subplots(2, 4, sharex=True, sharey="row")
    for cluster, (above, below) in enumerate(axes.T):
        members = result.assignments == cluster
        above.plot(samples[members, :, 0].T, color=f"C{cluster}", linewidth=0.3)
        below.plot(warped[members, :, 0].T, color=f"C{cluster}", linewidth=0.3)
        below.plot(warped[members, :, 0].mean(0), color="black", linewidth=1.2)
        above.set_title(f"{members.sum()} series", fontsize=8)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    by_row(axes, ["as made", "warped,\nwith mean"])
    return figure


def wavelets(args):
    """What the scattering transform sees."""
    return scattering_filters(Scattering(32, 32, num_scales=2 if args.quick else 3))


PICTURES = (
    *(aligned, methods, stages, warps, refinement, wavelets),
    *(skulls, tree, letters, words, series),
)


def saved(picture, path):
    """Writes it, in few enough colours to be small."""
    if isinstance(picture, Figure):
        picture.savefig(path, dpi=130, facecolor="white")
        picture = Image.open(path).convert("RGB")
    picture.quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    assert size < LARGEST, f"{path.name} has {size} bytes, {LARGEST} at most"
    return size


def main():
    args = arguments(
        __doc__,
        only={"nargs": "+", "choices": [draw.__name__ for draw in PICTURES]},
        out={"type": Path, "default": Path("docs/images")},
        count={"type": int, "default": 1000, "help": "digits"},
    )
    chosen = [draw for draw in PICTURES if not args.only or draw.__name__ in args.only]
    with tempfile.TemporaryDirectory() as scratch:
        if args.quick:
            args.out, args.count = Path(scratch), 120
        args.out.mkdir(parents=True, exist_ok=True)
        figures = {}
        for draw in chosen:
            start = time.perf_counter()
            size = saved(draw(args), args.out / f"{draw.__name__}.png")
            seconds = round(time.perf_counter() - start, 1)
            figures[draw.__name__] = {"bytes": size, "seconds": seconds}
            print(draw.__name__, figures[draw.__name__], flush=True)
    finish({"experiment": "gallery", **figures})


if __name__ == "__main__":
    main()
