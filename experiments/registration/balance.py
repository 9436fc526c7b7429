"""Near-duplicates and groups of unequal size: what becomes of them, and remedies that were tried.

    python -m experiments.registration.balance [--seed 0] [--draws 3] [--quick] [--results FILE]
        [--sets plain unequal ...] [--methods pssc di-spectral] [--remedies ...]
    python -m experiments.registration.balance --results FILE --table
    python -m experiments.registration.balance --stabilities [--register none] [--sets ...]

All sets but `SEEN` are made of MNIST's training digits, most of them shrunk to 8×8 pixels as the
bundled digits are. Every remedy changes one thing of a method that is otherwise as it comes. `SEEN`
are the sets on which the choice is tried once, after it has been made. Labels score, no more.
FILE (JSON lines) keeps the scores by each remedy, and those that it has are not computed again;
`--quick` keeps none. `--stabilities` prints of the two cuts that the library makes how steady and
how accurate each is.

The rule, written down before the grid was run: a remedy is taken if its mean F1 over classes is at
least 0.01 above `as it is` on the planted sets, and nowhere on the others more than 0.005 below it,
with both methods; of several the one with the largest mean.
"""

import dataclasses
from unittest import mock

import jax
import numpy as np
import scipy.optimize
import scipy.sparse

from diffclust._random import split_key
from diffclust.data import load
from diffclust.features import drop_leading
from diffclust.graphs import (
    mean_graph,
    normalised_cut,
    refine,
    spectral_embedding,
)
from diffclust.graphs.embedding import degrees, normalised_rows, safe_inverse
from diffclust.metrics import accuracy
from diffclust.models import MODELS, cuts_of_mean_graph, self_tuning_graphs
from diffclust.parallel import Data
from diffclust.solvers import kmeans
from experiments.harness import RESULTS, arguments, asked_runs, finish, kept_runs
from experiments.registration.run import data_of

COPIES = 28
"""Near-copies that are planted, about as many as there are of one 1 among the bundled digits."""

LARGEST, LEAST = 600, 20
"""Sizes of groups fall from the one to the other by equal ratios: 1:30."""


def shrunk(images):
    """Means of 3×3 pixels: 8×8 of the inner 24×24, the largest value 1."""
    inner = images[:, 2:26, 2:26, 0].reshape(-1, 8, 3, 8, 3).mean(axis=(2, 4))
    return (inner / inner.max(axis=(1, 2), keepdims=True))[..., None]


def plain(seed, quick):
    digits = load("mnist", split="train", limit=300 if quick else 1797, seed=seed)
    return digits.images, digits.labels


def planted(share, seed, quick):
    """`COPIES` mixtures of one digit with so large a share of another of its class, each."""
    images, labels = plain(seed, quick)
    draw = np.random.default_rng(seed)
    first = draw.integers(COPIES, len(images))
    others = draw.choice(np.flatnonzero(labels == labels[first]), COPIES)
    images, labels = images.copy(), labels.copy()
    images[:COPIES] = (1 - share) * images[first] + share * images[others]
    labels[:COPIES] = labels[first]
    return images, labels


def copied(count, seed, quick):
    """2,000 digits, and a number of copies of one of them with a little noise."""
    digits = load("mnist", split="train", limit=300 if quick else 2000, seed=seed)
    draw = np.random.default_rng(seed)
    first = draw.integers(len(digits))
    noise = draw.normal(scale=0.02, size=(count, *digits.images.shape[1:]))
    copies = np.clip(digits.images[first] + noise, 0.0, 1.0).astype(np.float32)
    labels = np.concatenate([digits.labels, np.repeat(digits.labels[first], count)])
    return np.concatenate([digits.images, copies]), labels


def unequal(seed, quick):
    """Ten classes in an order that is drawn, the first 30 times as large as the last."""
    digits = load("mnist", split="train", limit=3000 if quick else 12000, seed=seed)
    sizes = np.geomspace(LARGEST, LEAST, 10) / (3 if quick else 1)
    order = np.random.default_rng(seed).permutation(10)
    kept = np.concatenate(
        [
            np.flatnonzero(digits.labels == label)[: round(size)]
            for label, size in zip(order, sizes, strict=True)
        ]
    )
    return digits.images[kept], digits.labels[kept]


def small(made):
    """The same set, shrunk."""
    return lambda seed, quick: (lambda images, labels: (shrunk(images), labels))(*made(seed, quick))


def of_share(share):
    return lambda seed, quick: planted(share, seed, quick)


def of_count(count):
    return lambda seed, quick: copied(count, seed, quick)


def seen(name):
    return lambda seed, quick: data_of(name, seed, 200 if quick else None)


SETS = {
    "plain 8×8": small(plain),
    **{f"planted {share} 8×8": small(of_share(share)) for share in (0.1, 0.2, 0.3, 0.4)},
    "unequal 8×8": small(unequal),
    "unequal": unequal,
    "30 copies": of_count(30),
    "100 copies": of_count(100),
}
SEEN = {name: seen(name) for name in ("digits", "mnist-1k", "usps", "mnist-test", "mnist")}

GRAPHS = {
    "as it is": {},
    "no rule for near-duplicates": {"near": 0.0},
    "near-duplicates up to 0.3": {"near": 0.3},
    "near-duplicates up to 0.45": {"near": 0.45},
    "net of 0.3": {"net": 0.3},
    "net of 0.45": {"net": 0.45},
    "net of 0.6": {"net": 0.6},
    "10, 12 and 15 neighbours": {"num_neighbours": (10, 12, 15)},
}
"""Remedies that need another graph: how near near-duplicates are, of the median distance to the
last neighbour (0.15 as it is; groups are what such pairs connect), balls of such a radius in their
place, and numbers of neighbours."""


def degrees_plus(share, *, even=False):
    """Degrees in the normalisation are raised by so many mean degrees; `even`, edges are too.

    Without edges Chaudhuri, Chung and Tsiatas (2012); with them Amini et al. (2013), and CoreCut of
    Zhang and Rohe (2018).
    """

    def cut(graph, k, key):
        degree, count = degrees(graph), graph.shape[0]
        more = share * degree.mean()
        root = 1.0 / np.sqrt(degree + more)

        def multiply(x):
            x = root * x.ravel()
            return root * (graph @ x + (more / count * x.sum() if even else 0.0))

        matrix = scipy.sparse.linalg.LinearOperator(graph.shape, multiply, dtype=np.float64)
        start = np.asarray(jax.random.normal(key, (count,)), np.float64)
        _, vectors = scipy.sparse.linalg.eigsh(matrix, k, which="LA", v0=start, ncv=8 * k)
        return of_points(normalised_rows(vectors * root[:, None]), k, key)

    return cut


def of_points(points, k, key):
    return kmeans(points, k, key=key, num_restarts=10).assignments


def walk_of(graph, count, key):
    """Random-walk eigenvectors and their eigenvalues."""
    result = spectral_embedding(graph, count, key=key)
    values = np.maximum(result.eigenvalues[:count], 1e-3)
    return result.basis * values, values


def rows_as_they_are(graph, k, key):
    """Random-walk eigenvectors, rows not scaled: Shi and Malik (2000)."""
    return of_points(walk_of(graph, k, key)[0] * np.sqrt(graph.sum()), k, key)


def symmetric_rows(graph, k, key):
    """Eigenvectors of the normalised graph, rows not scaled."""
    walk, _ = walk_of(graph, k, key)
    return of_points(walk * np.sqrt(degrees(graph))[:, None] * len(walk) ** 0.5, k, key)


def diffused(more, power):
    """So many vectors more than clusters, weighted by a power of their eigenvalues."""

    def cut(graph, k, key):
        walk, values = walk_of(graph, k + more, key)
        return of_points(normalised_rows(walk * values**power), k, key)

    return cut


def plainly(graph, k, key):
    """As methods with a graph do it: Ng, Jordan and Weiss (2002)."""
    return of_points(spectral_embedding(graph, k, key=key).vectors, k, key)


def restarts_of(graph, k, key, count=10):
    points = spectral_embedding(graph, k, key=key).vectors
    keys = jax.random.split(key, count)
    return [kmeans(points, k, key=each, num_restarts=1) for each in keys]


def least_cut(graph, k, key):
    """Of 10 restarts the one of least normalised cut, not of least k-means loss."""
    every = [result.assignments for result in restarts_of(graph, k, key)]
    return min(every, key=lambda result: normalised_cut(graph, result, num_clusters=k))


def least_size(share):
    """Of 10 restarts the least normalised cut whose clusters all have such a share of N / K."""

    def cut(graph, k, key):
        every = [result.assignments for result in restarts_of(graph, k, key)]
        return min(
            every,
            key=lambda result: (
                np.bincount(result, minlength=k).min() < share * len(result) / k,
                normalised_cut(graph, result, num_clusters=k),
            ),
        )

    return cut


def merged(more):
    """So many clusters more, of which pairs are merged that lower the normalised cut most."""

    def cut(graph, k, key):
        points = spectral_embedding(graph, k + more, key=key).vectors
        result = of_points(points, k + more, key)
        return merged_by_cut(graph, result, k + more, k)

    return cut


def between_of(graph, assignments, count):
    """Affinities between clusters."""
    member = scipy.sparse.csr_array(
        (np.ones(len(assignments)), (assignments, np.arange(len(assignments))))
    )
    member.resize((count, len(assignments)))
    return (member @ graph @ member.T).toarray()


def merged_by_cut(graph, clusters, many, few):
    for count in range(many, few, -1):
        between = between_of(graph, clusters, count)
        share = np.diag(between) * safe_inverse(between.sum(axis=1))
        volume, inside = between.sum(axis=1), np.diag(between)
        both = (inside[:, None] + inside + 2 * between) * (
            1.0 / np.maximum(volume[:, None] + volume, 1e-12)
        )
        # Σ (1 - inside / volume) falls by this where two become one.
        gain = 1.0 - share[:, None] - share + both
        gain[np.tril_indices(count)] = -np.inf
        first, second = np.unravel_index(gain.argmax(), gain.shape)
        clusters = np.where(clusters == second, first, clusters)
        clusters = np.unique(clusters, return_inverse=True)[1]
    return clusters


def smallest_dissolved(graph, k, key):
    """One cluster more, the smallest of which goes to the cluster it has most affinity with."""
    result = of_points(spectral_embedding(graph, k + 1, key=key).vectors, k + 1, key)
    least = np.bincount(result, minlength=k + 1).argmin()
    between = between_of(graph, result, k + 1)[least]
    between[least] = -1.0
    result = np.where(result == least, between.argmax(), result)
    return np.unique(result, return_inverse=True)[1]


CUTS = {
    **{f"degrees + {share}": degrees_plus(share) for share in (0.1, 0.3, 1.0)},
    **{f"edges + {share}": degrees_plus(share, even=True) for share in (0.1, 0.3, 1.0)},
    "rows as they are": rows_as_they_are,
    "symmetric rows": symmetric_rows,
    **{f"{m} vectors more, λ^{t}": diffused(m, t) for m in (2, 5) for t in (4, 16, 64)},
    "least cut of 10": least_cut,
    "least size 0.2": least_size(0.2),
    "least size 0.4": least_size(0.4),
    **{f"{more} more, merged by the cut": merged(more) for more in (1, 2, 5)},
    "smallest of K + 1 dissolved": smallest_dissolved,
}
"""Remedies that cut the graph as it is another way."""

REMEDIES = (*GRAPHS, *CUTS)


def net_of(points, radius, size):
    """All but the centres of balls with more members than `size`; the balls are taken in order."""
    free, surplus = np.ones(len(points), bool), np.zeros(len(points), bool)
    for centre in range(len(points)):
        if not free[centre]:
            continue
        inside = free & (np.linalg.norm(points - points[centre], axis=1) <= radius)
        free &= ~inside
        if inside.sum() > size:
            surplus |= inside
            surplus[centre] = False
    return surplus


def candidates_of(model, coordinates, near=None, net=None):
    """Neighbours in scattering space under another rule for near-duplicates."""
    if net is not None:
        points = drop_leading(coordinates, model.removed[0], model.num_dimensions)

        def rule(result, size):
            return net_of(points, net * np.median(result.distance[:, -1]), size)

        changed = mock.patch.object(refine, "near_duplicates", rule)
    else:
        changed = mock.patch.object(refine, "_NEAR", refine._NEAR if near is None else near)
    with changed:
        return model.neighbours(coordinates)


def graphs_of(method, images, k, asked, register="auto"):
    """Yields the name of each remedy and the graphs whose mean it cuts."""
    model = MODELS[method](k, register=register).resolved(Data(images))
    based = model.frame.registered(images)
    plain = model.without_registration
    _, coordinates = plain.project(Data(np.asarray(model.in_prototype_frame(based))))
    for name, changed in GRAPHS.items():
        if name not in asked:
            continue
        rule = {word: changed[word] for word in ("near", "net") if word in changed}
        settings = {word: value for word, value in changed.items() if word not in rule}
        each = dataclasses.replace(plain, **settings)
        neighbours = candidates_of(each, coordinates, **rule)
        if method == "di-spectral":
            places = ("none",) if register == "none" else ("upright", "place")
            framed = [np.asarray(model.frame_of(place).registered(based)) for place in places]
            neighbours = [n for images in framed for n in each.rerank(neighbours, images)]
        yield name, self_tuning_graphs(neighbours, each.neighbour_numbers)


def found_of(labels, assignments):
    """Accuracy, and the mean over classes of F1 with the cluster that is matched with each."""
    classes = np.unique(labels, return_inverse=True)[1]
    table = np.zeros((classes.max() + 1, assignments.max() + 1))
    np.add.at(table, (classes, assignments), 1)
    f1 = 2 * table / (table.sum(axis=1, keepdims=True) + table.sum(axis=0))
    rows, columns = scipy.optimize.linear_sum_assignment(-f1)
    per_class = np.zeros(len(table))
    per_class[rows] = f1[rows, columns]
    sizes = np.bincount(assignments)
    return {
        "acc": round(accuracy(labels, assignments), 4),
        "f1": round(float(per_class.mean()), 4),
        "f1_least": round(float(per_class[np.bincount(classes).argmin()]), 4),
        "least_cluster": int(sizes[sizes > 0].min()),
    }


def row_of(name, draw, method, asked, quick):
    """Scores by every remedy that is asked for."""
    images, labels = {**SETS, **SEEN}[name](draw, quick)
    k, key, result = len(np.unique(labels)), jax.random.key(draw), {}
    cuts = [each for each in CUTS if each in asked]
    for remedy, graphs in graphs_of(method, images, k, [*asked, *["as it is"] * bool(cuts)]):
        graph = mean_graph(graphs)
        if remedy in asked:
            result[remedy] = found_of(labels, plainly(graph, k, key))
        if remedy == "as it is":
            result |= {each: found_of(labels, CUTS[each](graph, k, key)) for each in cuts}
    return {"n": len(images), "remedies": result}


def stabilities(runs, register, quick):
    """Of K eigenvectors and of some more, weighted: how steady they are, and the scores."""
    result = {}
    for name, draw, method in runs:
        images, labels = {**SETS, **SEEN}[name](draw, quick)
        k = len(np.unique(labels))
        ((_, graphs),) = graphs_of(method, images, k, ["as it is"], register)
        # As the fit with this seed cuts them.
        restarts, key = MODELS[method](k).num_restarts, split_key(jax.random.key(draw), 2, 0)
        cuts = cuts_of_mean_graph(mean_graph(graphs), graphs, k, restarts, key)
        result[f"{method} | {name} | {draw}"] = [
            {
                "stability": round(cut.stability, 4),
                "trimmed_stability": round(cut.trimmed_stability, 4),
                **found_of(labels, cut.points.assignments),
            }
            for cut in cuts
        ]
        print(method, name, draw, *result[f"{method} | {name} | {draw}"], flush=True)
    finish({"experiment": "registration_stabilities", **result})


def rows_of(args, asked):
    """The rows of the file for what is asked, and those of the remedies that it lacks."""
    names = ("set", "draw", "method")
    kept, lacking = [], {each: list(args.remedies) for each in asked}
    for row in kept_runs(args.results):
        each = tuple(row[name] for name in names)
        if each in lacking:
            kept.append(row)
            lacking[each] = [name for name in lacking[each] if name not in row["remedies"]]
    return kept + asked_runs(
        args.results,
        (*names, "asked"),
        [(*each, "; ".join(remedies)) for each, remedies in lacking.items() if remedies],
        lambda *run: row_of(*run[:-1], run[-1].split("; "), args.quick),
    )


def table(rows):
    """Means over draws, for every method, set and remedy."""
    means = {}
    for row in rows:
        for remedy, result in row["remedies"].items():
            draws = means.setdefault(f"{row['method']} | {row['set']} | {remedy}", {})
            draws.setdefault(row["draw"], result)
    return {
        place: {
            name: round(float(np.mean([found[name] for found in draws.values()])), 4)
            for name in next(iter(draws.values()))
        }
        for place, draws in means.items()
    }


def main():
    args = arguments(
        __doc__,
        draws={"type": int, "default": 3, "help": "draws of the digits"},
        sets={"nargs": "+", "default": list(SETS), "choices": [*SETS, *SEEN], "metavar": "SET"},
        methods={
            "nargs": "+",
            "default": ["pssc", "di-spectral"],
            "choices": ["pssc", "di-spectral"],
        },
        remedies={"nargs": "+", "default": list(REMEDIES), "choices": REMEDIES, "metavar": "R"},
        **RESULTS,
        table={"action": "store_true", "help": "only print the means of the results"},
        register={"default": "auto", "choices": ["none", "auto"], "help": "of the stabilities"},
        stabilities={"action": "store_true", "help": "of the library's two cuts alone"},
    )
    if args.quick:
        args.sets, args.methods, args.draws = ["planted 0.2 8×8", "unequal"], ["pssc"], 1
        args.remedies = ["as it is", "no rule for near-duplicates", "degrees + 0.3"]
        args.results = None
    asked = [
        (name, draw, method)
        for draw in range(args.seed, args.seed + args.draws)
        for method in args.methods
        for name in args.sets
    ]
    if args.stabilities:
        return stabilities(asked, args.register, args.quick)
    rows = kept_runs(args.results) if args.table else rows_of(args, asked)
    means = table(rows)
    for place, row in means.items():
        print(f"{place:60s} {row}")
    finish({"experiment": "registration_balance", **means})


if __name__ == "__main__":
    main()
