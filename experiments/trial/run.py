"""What somebody gets who gives `diffclust fit` a folder and a number of clusters, and nothing else.

    python -m experiments.trial.run [--seed 0] [--quick] [--limit 600] [--only photographs ...]

Folders of photographs, letters and recordings, pictures at any angle, a table of landmarks, a file
of series, few pictures, and a folder of damaged and oddly named files are made; each is clustered
by the command in a process of its own. Labels are the folders' names; they score, and nothing else.
"""

import csv
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from PIL import Image

from diffclust.data import simulated_shapes
from experiments.gallery.run import some_letters
from experiments.harness import arguments, finish
from experiments.photographs.sets import SETS as PHOTOGRAPHS
from experiments.spoken_digits.run import write_words


def write_pictures(folder, images, labels, suffix=".png"):
    """A subfolder a class."""
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / f"kind {label}" / f"{number:04d}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.round(np.clip(image, 0.0, 1.0) * 255).astype(np.uint8)
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(path)


def photographs(name, suffix=".png"):
    def write(folder, limit, seed):
        write_pictures(folder, *PHOTOGRAPHS[name](limit, seed), suffix)
        return [str(folder), "-k", "10"]

    return write


def letters(folder, limit, seed):
    images, labels = some_letters(limit // 8, np.random.default_rng(seed))
    write_pictures(folder, images, labels)
    return [str(folder), "-k", "8"]


def turned(folder, limit, seed):
    """Four letters, none of which is another one turned, at any angle."""
    rng = np.random.default_rng(seed)
    images, labels = some_letters(limit // 8, rng)
    kept = np.isin(labels, (0, 2, 4, 6))
    pictures = [Image.fromarray(np.uint8(255 * image[..., 0])) for image in images[kept]]
    bicubic = Image.Resampling.BICUBIC
    spun = [np.asarray(p.rotate(rng.uniform(0, 360), bicubic), np.float32) for p in pictures]
    write_pictures(folder, np.stack(spun)[..., None] / 255, labels[kept])
    return [str(folder), "-k", "4", "--method", "di-spectral", "--transforms", "turn-tps"]


def recordings(folder, limit, seed):
    write_words(folder, limit // 10, np.random.default_rng(seed))
    return [str(folder), "-k", "10"]


def landmarks(folder, limit, seed):
    """A table of three kinds of outline, each turned and shifted."""
    key = jax.random.key(seed)
    means = jax.random.normal(key, (3, 8, 2))
    shapes, labels = simulated_shapes(means, 0.25, per_group=limit // 10, key=key)
    with (folder / "shapes.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("shape", "landmark", "x", "y", "kind"))
        for number, (shape, label) in enumerate(zip(shapes, labels, strict=True)):
            rows.writerows(
                (number, place, float(x), float(y), f"kind {label}")
                for place, (x, y) in enumerate(shape)
            )
    return [str(folder / "shapes.csv"), "-k", "3", "--labels", "kind"]


def series(folder, limit, seed):
    """One bump, two or three, at warped times."""
    rng = np.random.default_rng(seed)
    labels = np.arange(limit // 4) % 3
    times = np.linspace(0, 1, 64)[None] ** np.exp(rng.normal(0, 0.25, (len(labels), 1)))
    values = np.sin((labels[:, None] + 1) * np.pi * times) ** 2
    values += rng.normal(0, 0.05, values.shape)
    np.savez(folder / "series.npz", series=values, labels=labels)
    return [str(folder / "series.npz"), "-k", "3"]


def few(folder, limit, seed):
    """29 letters."""
    images, labels = some_letters(10, np.random.default_rng(seed))
    kept = np.flatnonzero(np.isin(labels, (0, 2, 6)))[:29]
    write_pictures(folder, images[kept], labels[kept])
    return [str(folder), "-k", "3", "--method", "di-spectral"]


def damaged(folder, limit, seed):
    """Letters, among them what no reader takes, and names that no shell likes."""
    images, labels = some_letters(limit // 16, np.random.default_rng(seed))
    write_pictures(folder, images, labels)
    first = folder / "kind 0"
    whole = (first / "0000.png").read_bytes()
    (first / "cut off.png").write_bytes(whole[: len(whole) // 2])
    (first / "empty.png").write_bytes(b"")
    (first / "text.jpg").write_text("no picture")
    Image.new("L", (28, 28), 255).save(first / "blank.png")
    (first / "notes.txt").write_text("left alone")
    rgb = Image.open(first / "0000.png").convert("RGB")
    rgb.convert("CMYK").save(first / "-rf $HOME; 'x'.jpg")
    rgb.save(first / 'line\nbreak, "quoted" ☂.png')
    return [str(folder), "-k", "8", "--skip-bad"]


CASES = {
    "photographs, one ground": photographs("plain", ".jpg"),
    "photographs, several grounds": photographs("grounds", ".jpg"),
    "pictographs on paper": photographs("paper"),
    "letters": letters,
    "letters at any angle": turned,
    "recordings": recordings,
    "landmarks": landmarks,
    "series": series,
    "29 pictures": few,
    "damaged and odd files": damaged,
}


def row_of(write, limit, seed):
    """One command, and what came of it."""
    with tempfile.TemporaryDirectory() as place:
        folder, out = Path(place, "given"), Path(place, "run")
        folder.mkdir()
        words = write(folder, limit, seed)
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "diffclust", "fit", *words, "--out", str(out)],
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = round(time.perf_counter() - start, 1)
        if done.returncode:
            return {"status": done.returncode, "said": done.stderr.strip().splitlines()[-1]}
        summary = json.loads((out / "summary.json").read_text("utf-8"))
        warned = [line for line in done.stderr.splitlines() if re.match("skipped|warning", line)]
        return {
            "method": summary["method"],
            "n": summary["n"],
            **{name: round(summary[name], 3) for name in ("acc", "stability") if name in summary},
            "seconds": seconds,
            "report_mb": round((out / "report.html").stat().st_size / 2**20, 1),
            **({"warned": warned[0].partition(":")[0]} if warned else {}),
        }


def main():
    args = arguments(
        __doc__,
        limit={"type": int, "default": 600, "help": "pictures of a folder"},
        only={"nargs": "+", "default": list(CASES), "choices": CASES, "metavar": "CASE"},
    )
    if args.quick:
        args.limit, args.only = 80, ["29 pictures", "landmarks", "damaged and odd files"]
    rows = {}
    for name in args.only:
        rows[name] = row_of(CASES[name], args.limit, args.seed)
        print(f"{name:30s} {rows[name]}", flush=True)
    finish({"experiment": "trial", **rows})


if __name__ == "__main__":
    main()
