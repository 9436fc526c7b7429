"""Drawn garments: silhouettes of ten kinds with textures, flat on black, and a picture of them.

    python -m experiments.default_method.clothes [--seed 0] [--quick] [--out FIGURE.png]

Made here, of polygons alone, because photographs of clothes are not at hand; like the usual sets of
clothes they are grey, 28 pixels a side, centred and upright, but for a small tilt. Within a kind
proportions, brightness and texture vary: plain, striped, chequered, dotted, or fading.
"""

import numpy as np
from PIL import Image, ImageDraw

from experiments.harness import arguments, finish

SIDE, FINE = 28, 8
"""Pixels of an image, and how many times finer it is drawn."""


def mirrored(*right):
    """A symmetric outline from its right half, top to bottom."""
    return [*right, *((-x, y) for x, y in reversed(right))]


def top(v, sleeve, hem):
    """A garment for the upper body: how far down sleeves and hem reach."""
    shoulder, chest, width = 0.5 + 0.1 * v[0], 0.36 + 0.08 * v[1], 0.13 + 0.05 * v[2]
    reach = 0.75 + 0.1 * v[3]
    return [
        mirrored(
            (0.14, -0.85), (shoulder, -0.75), (reach, sleeve), (reach - 1.6 * width, sleeve + 0.06),
            (chest, -0.3), (chest, hem), (0.0, hem),
        )
    ]  # fmt: skip


def t_shirt(v):
    return top(v, -0.3 + 0.1 * v[4], 0.75 + 0.1 * v[5])


def pullover(v):
    return top(v, 0.55 + 0.2 * v[4], 0.7 + 0.15 * v[5])


def coat(v):
    (body,) = top(v, 0.45 + 0.2 * v[4], 0.92)
    return [body, None, [(-0.02, -0.7), (0.04, -0.7), (0.04, 0.95), (-0.02, 0.95)]]


def dress(v):
    waist, hem = 0.2 + 0.07 * v[0], 0.4 + 0.25 * v[1]
    return [mirrored((0.12, -0.9), (0.3, -0.85), (waist, -0.2), (hem, 0.92), (0.0, 0.92))]


def skirt(v):
    waist, hem = 0.28 + 0.08 * v[0], 0.45 + 0.35 * v[1]
    return [mirrored((waist, -0.6), (hem, 0.5 + 0.3 * v[2]), (0.0, 0.55 + 0.3 * v[2]))]


def trousers(v):
    waist, leg = 0.28 + 0.08 * v[0], 0.13 + 0.08 * v[1]
    foot = waist + 0.08 * v[2]
    return [
        mirrored((waist, -0.9), (foot, 0.92), (foot - 1.6 * leg, 0.92), (0.0, -0.35 + 0.2 * v[3]))
    ]


def shoe(v):
    low, tip = 0.15 + 0.1 * v[0], 0.85 + 0.1 * v[1]
    return [
        [(-0.8, -low), (-0.35, -low - 0.02), (0.1, 0.05), (tip, 0.2), (tip, 0.42), (-0.82, 0.42)]
    ]


def boot(v):
    high, wide = 0.85 - 0.3 * v[0], 0.1 + 0.15 * v[1]
    return [
        [
            (-0.6, -high),
            (wide - 0.1, -high),
            (wide - 0.05, 0.2),
            (0.75, 0.4),
            (0.8, 0.75),
            (-0.6, 0.75),
        ]
    ]


def bag(v):
    wide, high = 0.65 + 0.2 * v[0], 0.3 + 0.2 * v[1]
    body = mirrored((wide - 0.08, -high + 0.2), (wide, high + 0.2), (0.0, high + 0.2))
    arch = 0.3 + 0.2 * v[2]
    angles = np.linspace(0, np.pi, 12)
    outer = [(arch * np.cos(a), 0.2 - high - 0.45 * np.sin(a)) for a in angles]
    inner = [((arch - 0.1) * np.cos(a), 0.2 - high - 0.35 * np.sin(a)) for a in angles]
    return [body, [*outer, *reversed(inner)]]


def cap(v):
    angles = np.linspace(0, np.pi, 14)
    crown = [(0.55 * np.cos(a) - 0.1, 0.2 - (0.5 + 0.2 * v[0]) * np.sin(a)) for a in angles]
    return [crown, [(0.35, 0.1), (0.7 + 0.25 * v[1], 0.25), (0.7 + 0.25 * v[1], 0.33), (0.3, 0.28)]]


KINDS = (t_shirt, pullover, coat, dress, skirt, trousers, shoe, boot, bag, cap)


def texture(random):
    """A pattern of the canvas, in [0, 1]."""
    side = SIDE * FINE
    x, y = np.meshgrid(*2 * [np.linspace(-1, 1, side)])
    angle, waves = random.choice([0.0, np.pi / 2, np.pi / 4]), random.uniform(5.0, 11.0)
    along = np.cos(angle) * x + np.sin(angle) * y
    across = np.cos(angle) * y - np.sin(angle) * x
    stripes, others = (0.5 + 0.5 * np.sin(waves * np.pi * each) for each in (along, across))
    patterns = (
        np.ones_like(x),
        stripes,
        stripes * others,
        0.5 + 0.5 * y,
        1 - (stripes * others > 0.6),
    )
    return patterns[random.integers(len(patterns))]


def garment(kind, random):
    """One image of a kind."""
    side, angle, size = SIDE * FINE, np.radians(random.normal(0.0, 4.0)), random.uniform(0.85, 1.0)
    turn = size * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    canvas, ink = Image.new("L", (side, side)), 255
    draw = ImageDraw.Draw(canvas)
    for outline in kind(random.uniform(size=8)):
        if outline is None:  # what follows is cut out
            ink = 0
            continue
        points = (np.asarray(outline) @ turn.T + 1.0) * side / 2
        draw.polygon([tuple(point) for point in points.tolist()], fill=ink)
    strength, light = random.uniform(0.0, 0.6), random.uniform(0.45, 1.0)
    cloth = light * (1.0 - strength * (1.0 - texture(random)))
    fine = np.asarray(canvas) / 255.0 * cloth
    image = fine.reshape(SIDE, FINE, SIDE, FINE).mean((1, 3))
    noisy = image + (image > 0) * random.normal(0.0, 0.03, image.shape)
    return np.clip(noisy, 0.0, 1.0).astype(np.float32)[..., None]


def clothes(limit, seed):
    """Images and labels, as many of each kind."""
    random = np.random.default_rng(seed)
    labels = np.arange(limit) % len(KINDS)
    return np.stack([garment(KINDS[label], random) for label in labels]), labels


def main():
    args = arguments(__doc__, out={"default": None, "help": "draw a sheet of some to this file"})
    images, labels = clothes(40 if args.quick else 120, args.seed)
    if args.out:
        order = np.argsort(labels, kind="stable")
        sheet = images[order].reshape(len(KINDS), -1, SIDE, SIDE).transpose(0, 2, 1, 3)
        pixels = sheet.reshape(len(KINDS) * SIDE, -1)
        Image.fromarray((255 * pixels).astype(np.uint8)).save(args.out)
    finish({"experiment": "default_method.clothes", "images": len(images), "kinds": len(KINDS)})


if __name__ == "__main__":
    main()
