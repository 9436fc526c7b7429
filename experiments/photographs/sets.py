"""Three made sets of coloured photographs of objects, and a picture of them.

    python -m experiments.photographs.sets [--seed 0] [--quick] [--sets plain grounds paper]
        [--out FIGURE.png]

`plain`: ten kinds of solids, ray-traced as distance functions, on a plain ground that is unevenly
lit. `grounds`: ten other kinds on grounds of several colours, mildly textured. `paper`: ten
pictographs of DejaVu Sans, bevelled, lit and shadowed by another renderer, on papers. Within a kind
the proportions vary, and everywhere size, place, turn, view, light, colours, gloss, blur and noise.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import scipy.ndimage

from experiments.harness import arguments, finish

SIDE, FINE = 64, 96
"""Pixels of an image, and of what is rendered and then reduced."""


def length(*parts):
    return jnp.sqrt(sum(part**2 for part in parts) + 1e-12)


def box(x, y, z, a, b, c, r=0.02):
    """A box of half sides a, b, c about the origin, its edges rounded."""
    d = [jnp.abs(p) - (s - r) for p, s in zip((x, y, z), (a, b, c), strict=True)]
    outside = length(*(jnp.maximum(each, 0.0) for each in d))
    return outside + jnp.minimum(functools.reduce(jnp.maximum, d), 0.0) - r


def column(x, y, z, radius, low, high, r=0.02):
    """An upright cylinder from z = low to high."""
    a, b = length(x, y) - (radius - r), jnp.abs(z - 0.5 * (low + high)) - (0.5 * (high - low) - r)
    return (
        length(jnp.maximum(a, 0.0), jnp.maximum(b, 0.0)) + jnp.minimum(jnp.maximum(a, b), 0.0) - r
    )


def capsule(x, y, z, start, end, radius, tip=None):
    """A segment thickened to a radius, or to one that changes linearly to the tip's."""
    start, end = jnp.stack([*start]), jnp.stack([*end])
    along = end - start
    here = (x - start[0], y - start[1], z - start[2])
    share = sum(p * q for p, q in zip(here, along, strict=True)) / jnp.sum(along**2)
    share = jnp.clip(share, 0.0, 1.0)
    away = length(*(p - share * q for p, q in zip(here, along, strict=True)))
    return away - (radius if tip is None else radius + share * (tip - radius))


def torus(x, y, z, large, small):
    """About the z axis."""
    return length(length(x, y) - large, z) - small


def ellipsoid(x, y, z, a, b, c):
    one, two = length(x / a, y / b, z / c), length(x / a**2, y / b**2, z / c**2)
    return one * (one - 1.0) / jnp.maximum(two, 1e-3)


def joined(first, second, k=0.05):
    """The union of two solids, smooth within k."""
    h = jnp.maximum(k - jnp.abs(first - second), 0.0) / k
    return jnp.minimum(first, second) - h * h * k * 0.25


def between(v, low, high):
    return low + v * (high - low)


def bottle(x, y, z, v):
    radius, body = between(v[0], 0.16, 0.27), between(v[1], 0.5, 0.7)
    neck = between(v[2], 0.06, 0.09)
    solid = joined(column(x, y, z, radius, 0.0, body, 0.06), column(x, y, z, neck, 0.3, 0.95), 0.12)
    return solid, column(x, y, z, neck + 0.02, 0.92, 1.03)


def mug(x, y, z, v):
    radius, high = between(v[0], 0.27, 0.38), between(v[1], 0.55, 0.85)
    wall = jnp.maximum(
        column(x, y, z, radius, 0.0, high), -column(x, y, z, radius - 0.05, 0.06, 2.0)
    )
    ring = torus(x - radius, z - 0.5 * high, y, between(v[2], 0.15, 0.22), 0.045)
    return joined(wall, jnp.maximum(ring, radius - 0.05 - length(x, y)), 0.03), wall + 1.0


def vase(x, y, z, v):
    bend = between(v[0], 2.2, 3.0) * math.pi * 0.5
    radius = between(v[1], 0.15, 0.22) + between(v[2], 0.06, 0.1) * jnp.sin(bend * 1.6 * z + 0.3)
    shell = jnp.abs(length(x, y) - radius) - 0.02
    solid = 0.6 * jnp.maximum(shell, jnp.abs(z - 0.5) - 0.5)
    foot = column(x, y, z, between(v[3], 0.12, 0.2), 0.0, 0.05)
    return jnp.minimum(solid, foot), column(x, y, z, 0.17, 0.0, 0.03)


def bulb(x, y, z, v):
    radius, high = between(v[0], 0.24, 0.34), between(v[1], 0.4, 0.5)
    glass = joined(length(x, y, z - 0.95 + radius) - radius, column(x, y, z, 0.11, 0.2, high), 0.25)
    thread = 0.012 * jnp.sin(z * 90.0)
    return glass, 0.7 * (column(x, y, z, 0.12, 0.0, 0.24) + thread)


def doughnut(x, y, z, v):
    large, small = between(v[0], 0.26, 0.36), between(v[1], 0.11, 0.17)
    ring = torus(x, y, z - small, large, small)
    wave = 0.03 * jnp.sin(between(v[2], 4.0, 8.0) * jnp.arctan2(y, x))
    return ring, jnp.maximum(ring - 0.02, small + wave - z)


def hammer(x, y, z, v):
    long, thick = between(v[0], 0.4, 0.6), between(v[1], 0.035, 0.06)
    handle = capsule(x, y, z - 0.1, (-long, 0.0, 0.0), (0.4, 0.0, 0.0), thick, 0.8 * thick)
    head = box(x - 0.4, y, z - 0.1, 0.09, between(v[2], 0.2, 0.3), 0.09)
    face = box(x - 0.4, y - 0.22, z - 0.1, 0.12, between(v[3], 0.04, 0.08), 0.11)
    return handle, jnp.minimum(head, face)


def banana(x, y, z, v):
    large, thick = between(v[0], 0.4, 0.6), between(v[1], 0.09, 0.14)
    half = between(v[2], 0.8, 1.1)
    angle = jnp.arctan2(x, y)
    held = jnp.clip(angle, -half, half)
    radius = thick * (0.35 + 0.65 * jnp.cos(held / half * 1.3))
    cx, cy = large * jnp.sin(held), large * jnp.cos(held)
    body = 0.7 * (length(x - cx, y - cy, z - thick) - radius)
    ends = jnp.where(jnp.abs(held) > 0.93 * half, body - 0.004, 1.0)
    return body, ends


def apple(x, y, z, v):
    radius, dent = between(v[0], 0.36, 0.44), between(v[1], 0.1, 0.2)
    flat = between(v[2], 0.85, 1.05)
    away = length(x, y)
    lift = (z - radius) / flat
    body = 0.7 * (length(away, lift) - radius + dent * jnp.exp(-((away / 0.14) ** 2)))
    stem = capsule(x, y, z, (0.0, 0.0, 1.3 * radius), (0.06, 0.03, 2.2 * radius), 0.025)
    leaf = ellipsoid(x - 0.12, y - 0.05, z - 2.05 * radius, 0.13, 0.06, 0.03)
    return body, jnp.minimum(stem, leaf)


def book(x, y, z, v):
    a, b = between(v[0], 0.32, 0.42), between(v[1], 0.42, 0.55)
    c = between(v[2], 0.05, 0.14)
    pages = box(x - 0.03, y, z - c, a, b - 0.03, 0.8 * c, 0.005)
    solid = box(x, y, z - c, a + 0.02, b, c, 0.005)
    hollow = box(x - 0.06, y, z - c, a + 0.02, b + 0.1, 0.8 * c, 0.005)
    return jnp.maximum(solid, -hollow), pages


def scissors(x, y, z, v):
    opened, ring = between(v[0], 0.12, 0.4), between(v[1], 0.11, 0.15)
    grips, blades = [], []
    for side in (-1.0, 1.0):
        c, s = jnp.cos(side * opened), jnp.sin(side * opened)
        a, b = c * x - s * y, s * x + c * y
        blades.append(capsule(a, b, z - 0.06, (-0.15, 0.0, 0.0), (0.65, 0.0, 0.0), 0.06, 0.015))
        grips.append(torus(a + 0.3, b - side * 0.06, z - 0.06, ring, 0.04))
    return jnp.minimum(*grips), jnp.minimum(*blades)


def goblet(x, y, z, v):
    radius, stem = between(v[0], 0.2, 0.3), between(v[1], 0.3, 0.5)
    away = length(x, y)
    bowl = jnp.abs(ellipsoid(x, y, z - stem - 0.35, radius, radius, 0.38)) - 0.02
    bowl = 0.7 * jnp.maximum(bowl, z - stem - between(v[2], 0.3, 0.5))
    foot = column(x, y, z, between(v[3], 0.17, 0.24), 0.0, 0.04)
    rod = jnp.maximum(
        away - 0.035 - 0.03 * jnp.exp(-10.0 * z), jnp.abs(z - 0.5 * stem) - 0.5 * stem
    )
    return jnp.minimum(bowl, 0.8 * rod), foot


def mushroom(x, y, z, v):
    wide, high = between(v[0], 0.35, 0.48), between(v[1], 0.22, 0.38)
    stem = capsule(x, y, z, (0.0, 0.0, 0.1), (0.03, 0.0, 0.55), between(v[2], 0.12, 0.17), 0.1)
    cap = jnp.maximum(0.7 * ellipsoid(x, y, z - 0.5, wide, wide, high), 0.48 - z)
    return cap, stem


def chair(x, y, z, v):
    a, seat, back = between(v[0], 0.24, 0.3), between(v[1], 0.38, 0.48), between(v[2], 0.85, 1.05)
    leg = box(jnp.abs(x) - a + 0.03, jnp.abs(y) - a + 0.03, z - 0.5 * seat, 0.03, 0.03, 0.5 * seat)
    rest = box(x, y - a + 0.03, z - 0.5 * (back + seat), a, 0.03, 0.5 * (back - seat))
    return jnp.minimum(box(x, y, z - seat, a, a, 0.03), rest), leg


def spoon(x, y, z, v):
    long, wide = between(v[0], 0.4, 0.6), between(v[1], 0.12, 0.18)
    bowl = ellipsoid(x - 0.4, y, z - 0.08, between(v[2], 0.2, 0.26), wide, 0.08)
    bowl = 0.7 * jnp.maximum(bowl, -ellipsoid(x - 0.4, y, z - 0.14, 0.19, wide - 0.02, 0.08))
    handle = capsule(x, y, z - 0.1, (-long, 0.0, 0.0), (0.22, 0.0, 0.0), 0.045, 0.025)
    return joined(bowl, handle, 0.04), handle + 1.0


def leaf(x, y, z, v):
    long, wide = between(v[0], 0.4, 0.5), between(v[1], 0.18, 0.32)
    away = jnp.abs(y) - wide * (1.0 - (x / long) ** 2) * (1.0 + 0.5 * x)
    away = away + between(v[2], 0.0, 0.025) * jnp.sin(50.0 * x)
    curl = 0.04 + between(v[3], 0.0, 0.5) * y**2 + 0.06 * jnp.sin(4.0 * x)
    flat = 0.5 * jnp.maximum(jnp.maximum(away, jnp.abs(x) - long), jnp.abs(z - curl - 0.03) - 0.02)
    stalk = capsule(x, y, z - 0.07, (-long - 0.2, 0.0, 0.0), (0.8 * long, 0.0, 0.0), 0.022)
    return flat, stalk


def car(x, y, z, v):
    long, high = between(v[0], 0.45, 0.58), between(v[1], 0.13, 0.18)
    body = box(x, y, z - high - 0.05, long, 0.24, high, 0.07)
    cabin = box(x - between(v[2], -0.15, 0.1), y, z - 2 * high - 0.1, 0.26, 0.2, 0.13, 0.07)
    wheel = column(jnp.abs(x) - 0.6 * long, z - 0.11, jnp.abs(y), 0.11, 0.18, 0.27)
    return joined(body, cabin, 0.04), wheel


def dumbbell(x, y, z, v):
    long, radius = between(v[0], 0.3, 0.42), between(v[1], 0.16, 0.22)
    ends = length(jnp.abs(x) - long, y, z - radius) - radius
    return capsule(x, y, z - radius, (-long, 0.0, 0.0), (long, 0.0, 0.0), 0.06), ends


def latchkey(x, y, z, v):
    ring, long = between(v[0], 0.14, 0.2), between(v[1], 0.4, 0.55)
    bow = torus(x + 0.35, y, z - 0.06, ring, 0.05)
    shaft = capsule(x, y, z - 0.06, (-0.2, 0.0, 0.0), (long, 0.0, 0.0), 0.045)
    tooth = box(x - long + 0.02, y - 0.1, z - 0.06, 0.035, between(v[2], 0.08, 0.13), 0.04)
    other = box(x - long + 0.14, y - 0.08, z - 0.06, 0.035, between(v[3], 0.06, 0.12), 0.04)
    return jnp.minimum(jnp.minimum(bow, shaft), jnp.minimum(tooth, other)), bow + 1.0


def cactus(x, y, z, v):
    high, arm = between(v[0], 0.8, 1.0), between(v[1], 0.2, 0.28)
    trunk = capsule(x, y, z, (0.0, 0.0, 0.2), (0.0, 0.0, high), between(v[2], 0.09, 0.14))
    for side, low in ((-1.0, between(v[3], 0.35, 0.55)), (1.0, between(v[4], 0.35, 0.55))):
        reach = side * arm
        out = capsule(x, y, z, (0.0, 0.0, low), (reach, 0.0, low), 0.06)
        up = capsule(x, y, z, (reach, 0.0, low), (reach, 0.0, low + 0.25), 0.06)
        trunk = joined(trunk, jnp.minimum(out, up), 0.05)
    return trunk, column(x, y, z, 0.2, 0.0, 0.22)


def house(x, y, z, v):
    a, b, wall = between(v[0], 0.25, 0.36), between(v[1], 0.3, 0.45), between(v[2], 0.3, 0.5)
    peak = between(v[3], 0.25, 0.4)
    slope = (jnp.abs(x) * peak + (z - wall - peak) * (a + 0.05)) / jnp.sqrt(
        peak**2 + (a + 0.05) ** 2
    )
    roof = jnp.maximum(jnp.maximum(slope, wall - z), jnp.abs(y) - b - 0.04)
    chimney = box(x - 0.5 * a, y - 0.3 * b, z - wall - 0.6 * peak, 0.05, 0.05, 0.25)
    return box(x, y, z - 0.5 * wall, a, b, 0.5 * wall), jnp.minimum(roof, chimney)


PLAIN = {
    bottle: 0.33, mug: 0.6, vase: 0.55, bulb: 0.13, doughnut: 0.08,
    hammer: 0.08, banana: 0.14, apple: 0.0, book: 0.65, scissors: 0.02,
}  # fmt: skip
GROUNDS = {
    goblet: 0.55, mushroom: 0.05, chair: 0.08, spoon: 0.6, leaf: 0.3,
    car: 0.0, dumbbell: 0.7, latchkey: 0.13, cactus: 0.36, house: 0.06,
}  # fmt: skip
"""Kinds, and the hue that three of four are about."""


def hues(hue, saturation, value):
    """RGB of hue, saturation and value."""
    turns = (hue[..., None] * 6.0 + np.array([5.0, 3.0, 1.0])) % 6.0
    fall = np.clip(np.minimum(turns, 4.0 - turns), 0.0, 1.0)
    return value[..., None] * (1.0 - saturation[..., None] * fall)


def scenes(count, hue, draw):
    """What is drawn at random for each of some images of a kind."""

    def uniform(low, high, *shape):
        return draw.uniform(low, high, (count, *shape))

    typical = uniform(0, 1) < 0.75
    first = np.where(typical, hue + draw.normal(0, 0.03, count), uniform(0, 1)) % 1.0
    colours = np.stack(
        [
            hues(
                first, np.where(typical, uniform(0.5, 0.9), uniform(0.1, 0.9)), uniform(0.35, 0.95)
            ),
            hues(uniform(0, 1), uniform(0.0, 0.7), uniform(0.2, 0.9)),
        ],
        axis=1,
    )
    made = {
        "shape": uniform(0, 1, 5),
        "colours": colours,
        "turn": uniform(-0.5, 0.5),
        "elevation": uniform(0.6, 0.95),
        "roll": uniform(-0.15, 0.15),
        "place": uniform(-0.08, 0.08, 2),
        "size": uniform(1.05, 1.3),
        "light": np.stack([uniform(-math.pi, math.pi), uniform(0.6, 1.2)], axis=1),
        "ambient": uniform(0.3, 0.55),
        "gloss": np.stack([uniform(0.0, 0.5), uniform(8.0, 60.0)], axis=1),
    }
    return {name: np.asarray(each, np.float32) for name, each in made.items()}


@functools.partial(jax.jit, static_argnums=0)
def rendered(solid, scene, ground):
    """One scene of a solid on a ground `(FINE, FINE, 3)`."""

    def turned(p):
        c, s = jnp.cos(scene["turn"]), jnp.sin(scene["turn"])
        return c * p[0] - s * p[1], s * p[0] + c * p[1], p[2]

    def parts(p):
        return solid(*turned(p), scene["shape"])

    def distance(p):
        return jnp.minimum(*parts(p))

    up, roll = scene["elevation"], scene["roll"]
    back = jnp.stack([0.0 * up, -jnp.cos(up), jnp.sin(up)])
    right, above = jnp.array([1.0, 0.0, 0.0]), jnp.stack([0.0 * up, jnp.sin(up), jnp.cos(up)])
    right, above = (
        jnp.cos(roll) * right + jnp.sin(roll) * above,
        jnp.cos(roll) * above - jnp.sin(roll) * right,
    )
    axis = (2.0 * jnp.arange(FINE) + 1.0) / FINE - 1.0
    u = axis[None, :] / scene["size"] - scene["place"][0]
    w = -axis[:, None] / scene["size"] - scene["place"][1]
    origin = [
        u * a + w * b + 3.0 * c + d
        for a, b, c, d in zip(right, above, back, (0.0, 0.0, 0.4), strict=True)
    ]

    def at(t, start=origin, towards=-back):
        return [p + t * q for p, q in zip(start, towards, strict=True)]

    t = jax.lax.fori_loop(0, 56, lambda _, t: t + distance(at(t)), jnp.full((FINE, FINE), 1.2))
    floor = origin[2] / back[2]
    hit = (t < floor) & (jnp.abs(distance(at(t))) < 0.02)
    here = at(jnp.where(hit, t, floor))
    first, second = parts(here)
    step, normal = 0.004, [jnp.zeros((FINE, FINE))] * 3
    for sign in ((1, -1, -1), (-1, -1, 1), (-1, 1, -1), (1, 1, 1)):
        value = distance([p + step * s for p, s in zip(here, sign, strict=True)])
        normal = [n + s * value for n, s in zip(normal, sign, strict=True)]
    size = length(*normal)
    normal = [
        jnp.where(hit, n / size, flat) for n, flat in zip(normal, (0.0, 0.0, 1.0), strict=True)
    ]
    azimuth, height = scene["light"]
    light = jnp.stack(
        [jnp.cos(height) * jnp.cos(azimuth), jnp.cos(height) * jnp.sin(azimuth), jnp.sin(height)]
    )
    lifted = [p + 0.03 * n for p, n in zip(here, normal, strict=True)]

    def dim(_, carry):
        t, lit = carry
        d = distance(at(t, lifted, light))
        return t + jnp.clip(d, 0.02, 0.15), jnp.minimum(lit, 10.0 * d / t + 0.3)

    start = (jnp.full((FINE, FINE), 0.03), jnp.ones((FINE, FINE)))
    lit = jnp.clip(jax.lax.fori_loop(0, 24, dim, start)[1], 0.0, 1.0)
    diffuse = lit * jnp.maximum(sum(n * q for n, q in zip(normal, light, strict=True)), 0.0)
    halfway = (light + back) / length(*(light + back))
    shine = jnp.maximum(sum(n * q for n, q in zip(normal, halfway, strict=True)), 0.0)
    shine = jnp.where(hit, scene["gloss"][0] * lit * shine ** scene["gloss"][1], 0.0)
    paint = jnp.where((second < first)[..., None], scene["colours"][1], scene["colours"][0])
    flat = jnp.sin(height)
    shade = scene["ambient"] + (1.0 - scene["ambient"]) * diffuse / jnp.where(hit, 1.0, flat)
    seen = jnp.where(hit[..., None], paint, ground) * shade[..., None] + shine[..., None]
    return jax.image.resize(seen, (SIDE, SIDE, 3), "linear", antialias=True)


def solids(kinds, grounds, count, seed):
    """Images of some kinds, shuffled, with their kinds."""
    draw = np.random.default_rng(seed)
    images, labels = [], []
    for label, (solid, hue) in enumerate(kinds.items()):
        each = (count + label) // len(kinds)
        scene, ground = scenes(each, hue, draw), grounds(each, draw)
        render = functools.partial(rendered, solid)
        for i in range(each):
            images.append(np.asarray(render(jax.tree.map(lambda x, i=i: x[i], scene), ground[i])))
        labels += [label] * each
    return exposed(np.stack(images), np.array(labels), draw)


def exposed(images, labels, draw):
    """What a camera makes of it: uneven light, blur, noise and 8 bits; shuffled."""
    axis = ((2.0 * np.arange(SIDE) + 1.0) / SIDE - 1.0).astype(np.float32)
    x, y = np.meshgrid(axis, axis)
    result = np.empty(images.shape, np.float32)
    for image, to in zip(images, result, strict=True):
        towards, strength = draw.uniform(0, 2 * math.pi), draw.uniform(0.05, 0.3)
        light = 1.0 + strength * (math.cos(towards) * x + math.sin(towards) * y)
        light -= draw.uniform(0.05, 0.25) * (x * x + y * y)
        seen = scipy.ndimage.gaussian_filter(
            image * light[..., None], (*[draw.uniform(0.3, 0.8)] * 2, 0)
        )
        seen = draw.uniform(0.85, 1.1) * seen + draw.normal(
            0, draw.uniform(0.005, 0.025), seen.shape
        )
        to[...] = np.round(255.0 * np.clip(seen, 0.0, 1.0)) / 255.0
    order = draw.permutation(len(labels))
    return result[order], labels[order]


def plain_grounds(count, draw):
    """One table, in light of slightly different colours."""
    tint = draw.uniform(0.5, 0.75, (count, 1)) * (1.0 + draw.normal(0, 0.03, (count, 3)))
    return np.broadcast_to(tint[:, None, None], (count, FINE, FINE, 3)).astype(np.float32)


def several_grounds(count, draw):
    """Six colours, each with smooth noise or grain in one direction."""
    colours = np.array(
        [[0.75, 0.6, 0.42], [0.3, 0.42, 0.6], [0.55, 0.68, 0.5], [0.85, 0.84, 0.8],
         [0.32, 0.3, 0.32], [0.7, 0.42, 0.4]]
    )  # fmt: skip
    chosen = colours[draw.integers(len(colours), size=count)] + draw.normal(0, 0.03, (count, 3))
    made = np.empty((count, FINE, FINE, 3), np.float32)
    for colour, to in zip(chosen, made, strict=True):
        grain = (1.5, 12.0) if draw.uniform() < 0.5 else (3.0, 3.0)
        noise = scipy.ndimage.gaussian_filter(draw.normal(size=(FINE, FINE)), grain, mode="wrap")
        to[...] = colour * (1.0 + draw.uniform(0.01, 0.04) * noise / noise.std())[..., None]
    return np.clip(made, 0.0, 1.0)


PICTOGRAPHS = "★☂☎☠♞♥♣✈⚓☕"


@functools.lru_cache(maxsize=1)
def glyphs():
    """The pictographs as masks of 128×128 pixels, each brought to one size."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.path import Path
    from matplotlib.textpath import TextPath

    axis = (np.arange(128) + 0.5) / 64.0 - 1.0
    x, y = np.meshgrid(axis, -axis)
    made = []
    for each in PICTOGRAPHS:
        path = TextPath((0, 0), each, size=1.0, prop=FontProperties(family="DejaVu Sans"))
        low, high = path.get_extents().min, path.get_extents().max
        points = (path.vertices - 0.5 * (low + high)) / (0.5 * float((high - low).max())) * 0.6
        inside = np.zeros((128, 128), bool)
        for ring in Path(points, path.codes).to_polygons():
            around = Path(ring).contains_points(np.stack([x.ravel(), y.ravel()], axis=1))
            inside ^= around.reshape(128, 128)
        made.append(inside.astype(np.float32))
    return made


def papers(count, draw):
    """Papers: near white, brown, blue and grey, with fibres."""
    colours = np.array([[0.9, 0.88, 0.82], [0.72, 0.6, 0.46], [0.6, 0.68, 0.78], [0.5, 0.5, 0.5]])
    chosen = colours[draw.integers(len(colours), size=count)] + draw.normal(0, 0.02, (count, 3))
    made = np.empty((count, FINE, FINE, 3), np.float32)
    for colour, to in zip(chosen, made, strict=True):
        noise = scipy.ndimage.gaussian_filter(draw.normal(size=(FINE, FINE)), 0.8)
        to[...] = colour * (1.0 + draw.uniform(0.01, 0.05) * noise / noise.std())[..., None]
    return np.clip(made, 0.0, 1.0)


def pictographs(count, seed):
    """Bevelled figures that lie on paper, bent, turned, thick or thin."""
    draw = np.random.default_rng(seed)
    axis = (2.0 * np.arange(FINE) + 1.0) / FINE - 1.0
    x, y = np.meshgrid(axis, axis)
    images, labels = [], []
    for label, glyph in enumerate(glyphs()):
        hue = draw.uniform()
        for ground in papers((count + label) // 10, draw):
            turn, size = draw.normal(0, 0.35), draw.uniform(0.65, 1.05)
            shift, squeeze = draw.uniform(-0.2, 0.2, 2), draw.uniform(0.7, 1.0)
            bend = scipy.ndimage.gaussian_filter(draw.normal(size=(2, FINE, FINE)), (0, 14, 14))
            bend *= draw.uniform(0.0, 0.05) / bend.std()
            a, b = (x - shift[0]) / size, (y - shift[1]) / (size * squeeze)
            u = math.cos(turn) * a - math.sin(turn) * b + bend[0]
            v = math.sin(turn) * a + math.cos(turn) * b + bend[1]
            depth = scipy.ndimage.distance_transform_edt(glyph > 0.5)
            depth -= scipy.ndimage.distance_transform_edt(glyph < 0.5)
            depth = scipy.ndimage.map_coordinates(
                depth, [(v + 1) * 64 - 0.5, (u + 1) * 64 - 0.5], order=1, mode="nearest"
            )
            depth = (depth + draw.uniform(-1.5, 2.0)) * size * FINE / 128
            inside = 1.0 / (1.0 + np.exp(-3.0 * depth))
            bevel = draw.uniform(1.5, 5.0)
            height = bevel * np.sqrt(1.0 - (1.0 - np.clip(depth / bevel, 0.0, 1.0)) ** 2 + 1e-6)
            height = scipy.ndimage.gaussian_filter(height, 0.7)
            slope_y, slope_x = np.gradient(height)
            towards, lift = draw.uniform(0, 2 * math.pi), draw.uniform(0.6, 1.2)
            light = np.array(
                [
                    math.cos(towards) * math.cos(lift),
                    math.sin(towards) * math.cos(lift),
                    math.sin(lift),
                ]
            )
            norm = np.sqrt(slope_x**2 + slope_y**2 + 1.0)
            diffuse = np.maximum(-slope_x * light[0] - slope_y * light[1] + light[2], 0.0) / norm
            mirrored = 2.0 * diffuse / norm - light[2]
            gloss = draw.uniform(0.0, 0.5) * np.maximum(mirrored, 0.0) ** draw.uniform(8, 40)
            fall = -draw.uniform(2.0, 5.0) * light[:2] / light[2]
            shadow = scipy.ndimage.shift(inside, (fall[1], fall[0]), order=1)
            shadow = scipy.ndimage.gaussian_filter(shadow, draw.uniform(1.0, 2.5))
            typical = draw.uniform() < 0.5
            tone = hue + draw.normal(0, 0.03) if typical else draw.uniform()
            paint = hues(np.array(tone % 1.0), np.array(draw.uniform(0.3, 0.9)),
                         np.array(draw.uniform(0.3, 0.95)))  # fmt: skip
            ambient = draw.uniform(0.3, 0.55)
            figure = paint * (ambient + (1 - ambient) * diffuse)[..., None] + gloss[..., None]
            under = ground * (1.0 - draw.uniform(0.3, 0.6) * shadow)[..., None]
            seen = inside[..., None] * figure + (1.0 - inside[..., None]) * under
            images.append(jax.image.resize(seen, (SIDE, SIDE, 3), "linear", antialias=True))
            labels.append(label)
    return exposed(np.stack(images).astype(np.float32), np.array(labels), draw)


SETS = {
    "plain": functools.partial(solids, PLAIN, plain_grounds),
    "grounds": functools.partial(solids, GROUNDS, several_grounds),
    "paper": pictographs,
}


def main():
    args = arguments(
        __doc__,
        sets={"nargs": "+", "default": list(SETS), "choices": list(SETS)},
        out={"help": "file of the picture"},
    )
    count = 10 if args.quick else 120
    made = {name: SETS[name](count, args.seed) for name in args.sets}
    if args.out:
        draw_sets(made, args.out)
    finish(
        {"experiment": "photographs_sets", **{name: len(each[1]) for name, each in made.items()}}
    )


def draw_sets(made, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        4 * len(made), 20, figsize=(14, 2.9 * len(made)), layout="constrained", squeeze=False
    )
    for rows, (images, labels) in zip(np.split(axes, len(made)), made.values(), strict=True):
        for label in range(10):
            several = images[labels == label][:8]
            for i, axis in enumerate(rows[:, 2 * label : 2 * label + 2].ravel()):
                axis.axis("off")
                if i < len(several):
                    axis.imshow(several[i])
    figure.savefig(path, dpi=75)


if __name__ == "__main__":
    main()
