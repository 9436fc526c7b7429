"""Shape K-means, Sec. 5: simulated skulls, and which distance tells two ages apart.

    python -m experiments.shape_kmeans_simulation.run [--seed 0] [--samples 150] [--quick]
        [--levels 1 2 4 8] [--restarts 10] [--choose loss] [--picture boxes.png] [--as-published]

Every sample has 100 shapes of two groups, made by Eq. 15 from the mean skulls at 7 and 14 days. The
text leaves open what the entries of Σ_E are, what the second pair of the anisotropic case is, and
whether registration takes out scale: all readings are run, at several levels of noise. All samples
and restarts of a setting are one `jax.vmap`; labels score, and do nothing else.
"""

import itertools
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import adjusted_rand_score

from diffclust.data import load_landmarks, simulated_shapes
from diffclust.models import ShapeKMeans
from diffclust.parallel.chunks import Batch
from diffclust.prototypes import Clusters
from diffclust.registration import generalised_procrustes, in_principal_axes
from diffclust.solvers import compiled_lloyd, random_assignments
from experiments.harness import arguments, data_file, finish

METHODS = {
    "dr": {"distance": "fisher-rao", "variances": "isotropic"},
    "dd1": {"distance": "fisher-rao", "variances": "per_landmark"},
    "dd2": {"distance": "fisher-rao", "variances": "per_cluster"},
    "dw": {"distance": "wasserstein", "variances": "per_landmark"},
    "dd2 candidate": {
        "distance": "fisher-rao",
        "variances": "per_cluster",
        "shape_variances": "candidate",
    },
    "kl": {"distance": "alpha-divergence", "alpha": -1.0, "variances": "per_cluster"},
    "hellinger": {"distance": "alpha-divergence", "alpha": 0.0, "variances": "per_cluster"},
    "likelihood": {"distance": "likelihood", "variances": "per_cluster"},
    "full": {"distance": "fisher-rao", "variances": "per_cluster", "covariances": "full"},
    "full likelihood": {
        "distance": "likelihood",
        "variances": "per_cluster",
        "covariances": "full",
    },
    "frechet": {"distance": "fisher-rao", "variances": "per_cluster", "centres": "frechet"},
}
"""The paper's four; Type II whose shapes have the variances of the centre that they are compared
with; Type II under α-divergences; the classification likelihood, exact covariances, Fréchet means.
"""

PAPER = {
    "isotropic": (0.96, 0.85, 0.88, 0.96),
    "heteroscedastic": (0.54, 0.84, 1.00, 0.43),
    "anisotropic": (0.51, 0.79, 1.00, 0.44),
}
"""Of dr, dd1, dd2, dw: medians over 150 samples; of the anisotropic case means."""

READINGS = ("deviation", "variance", "product")
"""The entries σ of Σ_E are standard deviations; variances; or Σ_E is their product with 13."""

CHOICES = {
    "cases": PAPER,
    "readings": READINGS,
    "methods": METHODS,
    "norms": ("l1", "l2"),
    "scalings": ("rigid", "similarity"),
}
"""What the options of these names may name."""

GROUPS, LANDMARKS, PER_GROUP = 2, 8, 50
LOUD, QUIET = 13.0, 1.3


def mean_skulls():
    """The mean skulls at 7 and at 14 days, in the units of the data."""
    rats = load_landmarks(data_file("rats.npz"))
    age = rats.columns["age_days"]
    skulls = [jnp.asarray(rats.landmarks[age == days], jnp.result_type(float)) for days in (7, 14)]
    return jnp.stack([generalised_procrustes(s, scaling=False).consensus for s in skulls])


def entries(case: str, second: str, key):
    """The σ of each landmark and coordinate in either group, `(groups, landmarks, 2)`."""
    if case == "isotropic":
        return jnp.full((GROUPS, LANDMARKS, 2), LOUD)
    if case == "heteroscedastic":
        # Other landmarks in each group: the paper lets the variation differ between clusters.
        ranks = jnp.stack(
            [jax.random.permutation(k, LANDMARKS) for k in jax.random.split(key, GROUPS)]
        )
        return jnp.broadcast_to(
            jnp.where(ranks < 3, LOUD, QUIET)[..., None], (GROUPS, LANDMARKS, 2)
        )
    pairs = {"printed": ((LOUD, QUIET), (QUIET, QUIET)), "swapped": ((LOUD, QUIET), (QUIET, LOUD))}
    return jnp.broadcast_to(jnp.asarray(pairs[second])[:, None], (GROUPS, LANDMARKS, 2))


def deviations(sigma, reading: str):
    if reading == "deviation":
        return sigma
    return jnp.sqrt(sigma if reading == "variance" else sigma * LOUD)


@eqx.filter_jit
def simulated(means, deviation, keys, scaling):
    """Samples of registered shapes, `(samples, n, landmarks, 2)`, and the group of each shape."""

    def one(deviation, key):
        shapes, group = simulated_shapes(means, deviation, per_group=PER_GROUP, key=key)
        result = in_principal_axes(shapes, scaling=scaling, reflection=False)
        return result.registered, result.consensus, group

    registered, consensus, group = jax.vmap(one)(deviation, keys)
    return registered, consensus, group[0]


def negative_log_likelihood(shapes, reference, cluster):
    """Of an assignment, with means and variances of each cluster: what ours makes small."""
    model = ShapeKMeans(GROUPS)
    solver = model.solver(reference, model.initial_covariance(shapes, reference))
    member = jax.nn.one_hot(cluster, GROUPS, dtype=shapes.dtype)
    sums = solver.family.statistics(shapes, None, member, None)
    prototypes = solver.family.update(sums, jax.vmap(solver.family.init)(shapes[:GROUPS]))
    clusters = Clusters(prototypes, jnp.zeros((GROUPS, 0), shapes.dtype))
    energies = jax.vmap(lambda shape: solver.energy.unaligned(shape, clusters))(shapes)
    return jnp.sum(energies * member)


@eqx.filter_jit
def clustered(model, registered, consensus, keys, choose):
    """The best run of every sample, by a criterion: its clusters, and whether it came to rest."""

    def run(shapes, reference, key):
        solver = model.solver(reference, model.initial_covariance(shapes, reference))
        size = shapes.shape[0]
        batch = Batch(shapes, jnp.ones((size,), shapes.dtype))
        start = random_assignments(key, size, GROUPS)
        return compiled_lloyd(
            solver, batch, start, num_clusters=GROUPS, max_passes=model.max_passes
        )

    def best(shapes, reference, keys):
        runs = jax.vmap(run, in_axes=(None, None, 0))(shapes, reference, keys)
        loss = runs.loss
        if choose == "likelihood":
            loss = jax.vmap(lambda c: negative_log_likelihood(shapes, reference, c))(runs.cluster)
        least = jnp.argmin(jnp.where(jnp.isnan(runs.loss), jnp.inf, loss))
        return runs.cluster[least], runs.converged[least], jnp.mean(runs.passes.astype(jnp.float32))

    return jax.vmap(best)(registered, consensus, keys)


def settings(args):
    """Case, second pair of the anisotropic one, reading, level."""
    for case in args.cases:
        seconds = ("swapped", "printed") if case == "anisotropic" else ("",)
        # In the isotropic case the product is the square, and so the deviation again.
        readings = [r for r in args.readings if case != "isotropic" or r != "product"]
        yield from itertools.product((case,), seconds, readings, args.levels)


def compared(args, samples, starts, scaling, norm):
    """Adjusted Rand indices of every method on all samples, and what is told of them."""
    registered, consensus, group = samples
    scores, row, start = {}, {}, time.perf_counter()
    for method in args.methods:
        chosen = METHODS[method]
        if chosen["distance"] == "likelihood" and norm != "l1":
            continue  # It has no such choice.
        if args.as_published:
            chosen = ShapeKMeans.as_published(GROUPS, **chosen).settings()
        given = {"registration": scaling, "norm": norm, "max_passes": args.max_passes}
        model = ShapeKMeans.from_settings({"num_clusters": GROUPS, **chosen, **given})
        result, converged, passes = jax.block_until_ready(
            clustered(model, registered, consensus, starts, args.choose)
        )
        scores[method] = [float(adjusted_rand_score(group, one)) for one in np.asarray(result)]
        row[method] = {
            "median": round(float(np.median(scores[method])), 3),
            "mean": round(float(np.mean(scores[method])), 3),
            "converged": round(float(np.mean(converged)), 2),
            "passes": round(float(np.mean(passes)), 1),
        }
    return scores, {**row, "seconds": round(time.perf_counter() - start, 1)}


def draw(path, boxes):
    """Writes a picture with one panel a setting and one box a method."""
    from matplotlib.figure import Figure

    shown = {name: scores for name, scores in boxes.items() if scores}
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.8 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    for panel, (name, scores) in zip(panels, shown.items(), strict=False):
        panel.boxplot(list(scores.values()), tick_labels=list(scores), sym="+", widths=0.6)
        panel.set_title(name, fontsize=8)
        panel.tick_params(axis="x", labelsize=7, rotation=30)
        panel.set_ylim(-0.1, 1.05)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[::columns]:
        panel.set_ylabel("adjusted Rand index", fontsize=8)
    figure.savefig(path, dpi=80)


def main():
    args = arguments(
        __doc__,
        samples={"type": int, "default": 150},
        restarts={"type": int, "default": 10},
        choose={"default": "loss", "choices": ["loss", "likelihood"], "help": "the best run by"},
        levels={"type": float, "nargs": "+", "default": [1.0, 2.0, 4.0, 8.0]},
        **{
            name: {"nargs": "+", "default": list(every), "choices": list(every)}
            for name, every in CHOICES.items()
        },
        max_passes={"type": int, "default": 100, "help": "most passes of a run"},
        picture={"default": None, "help": "where to draw the box plots"},
        as_published={"action": "store_true", "help": "the paper's four as it has them, one start"},
    )
    if args.as_published:
        args.restarts, args.methods = 1, args.methods[:4]
    if args.quick:
        args.samples, args.restarts, args.levels = 3, 2, [2.0]
        args.readings, args.norms, args.methods = ["deviation"], ["l1"], ["dr", "dd2", "likelihood"]
    means = mean_skulls()
    keys = jax.random.split(jax.random.key(args.seed), args.samples)
    starts = jax.vmap(lambda k: jax.random.split(jax.random.fold_in(k, 1), args.restarts))(keys)
    rows, boxes = [], {}
    for case, second, reading, level in settings(args):
        of_entries, of_shapes = jax.vmap(jax.random.split, out_axes=1)(keys)
        sigma = jax.vmap(lambda key, c=case, s=second: entries(c, s, key))(of_entries)
        deviation = level * deviations(sigma, reading)
        for scaling in args.scalings:
            samples = simulated(means, deviation, of_shapes, scaling == "similarity")
            for norm in args.norms:
                name = " ".join(filter(None, (case, second, reading, f"x{level:g}", scaling, norm)))
                scores, row = compared(args, samples, starts, scaling, norm)
                summary = " ".join(
                    f"{m} {row[m]['median']:.2f}/{row[m]['mean']:.2f}" for m in scores
                )
                print(f"{name}: {summary} ({row['seconds']} s)", flush=True)
                rows.append({"setting": name, **row})
                boxes[name] = scores
    if args.picture is not None:
        draw(args.picture, boxes)
    finish({"experiment": "shape_kmeans_simulation", "samples": args.samples, "rows": rows})


if __name__ == "__main__":
    main()
