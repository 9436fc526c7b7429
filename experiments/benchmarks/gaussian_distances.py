"""Distances of Gaussians in the plane: pairs a second, beside geomstats, and their errors.

    python -m experiments.benchmarks.gaussian_distances [--seed 0] [--quick]

The diagonal Fisher–Rao and the Wasserstein distance against geomstats on the same pairs, in turn in
one process, double precision; without geomstats (gaussian-requirements.txt has its versions) only
the project's own. The exact Fisher–Rao distance of general covariances, which geomstats does not
have, against integrated geodesics.
"""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np

from diffclust.distances import (
    DiagonalGaussian,
    Gaussian,
    diagonal_fisher_rao,
    fisher_rao,
    wasserstein,
)
from experiments.harness import arguments, finish, timed


def draw(count, rng):
    """Gaussians some deviations apart, with condition numbers mostly below a thousand."""
    roots = rng.normal(size=(count, 2, 2))
    covariance = roots @ np.swapaxes(roots, 1, 2) + 0.05 * np.eye(2)
    return Gaussian(jnp.asarray(rng.normal(size=(count, 2))), jnp.asarray(covariance))


def diagonals(gaussians):
    return DiagonalGaussian(gaussians.mean, jnp.diagonal(gaussians.covariance, axis1=1, axis2=2))


def geomstats_distances(p, q):
    """Functions without arguments that give geomstats's distances of the same pairs."""
    from geomstats.geometry.spd_matrices import SPDBuresWassersteinMetric, SPDMatrices
    from geomstats.information_geometry.normal import NormalDistributions

    normals = NormalDistributions(sample_dim=2, distribution_type="diagonal")
    covariances = SPDMatrices(2, equip=False)
    covariances.equip_with_metric(SPDBuresWassersteinMetric)
    means = [np.asarray(x.mean) for x in (p, q)]
    matrices = [np.asarray(x.covariance) for x in (p, q)]
    # Its points of diagonal normals hold means and variances.
    variances = [np.asarray(diagonals(x).variance) for x in (p, q)]
    points = [np.concatenate(pair, axis=1) for pair in zip(means, variances, strict=True)]

    def diagonal():
        return normals.metric.dist(*points)

    def transport():
        squared = covariances.metric.squared_dist(*matrices)
        return np.sqrt(squared + np.sum((means[0] - means[1]) ** 2, axis=1))

    return {"diagonal_fisher_rao": diagonal, "wasserstein": transport}


def compare(p, q, rounds):
    """Pairs a second of each distance, and of geomstats's where it is installed."""
    pairs = {
        "diagonal_fisher_rao": (diagonal_fisher_rao, diagonals(p), diagonals(q)),
        "wasserstein": (wasserstein, p, q),
        "fisher_rao": (fisher_rao, p, q),
    }
    try:
        theirs = geomstats_distances(p, q)
    except ImportError as missing:  # not installed, or of another NumPy
        print(f"without geomstats: {missing}", flush=True)
        theirs = {}
    count, rows, result = len(p.mean), {}, {}
    for name, (distance, first, second) in pairs.items():
        batched = jax.jit(jax.vmap(distance))
        compiling, seconds, values = timed(lambda f=batched, a=first, b=second: f(a, b), rounds)
        result[name] = np.asarray(values)
        rows[name] = {
            "pairs_a_second": round(count / seconds),
            "first_call_seconds": round(compiling, 2),
        }
        slopes = jax.jit(jax.vmap(jax.value_and_grad(distance)))
        _, seconds, _ = timed(lambda f=slopes, a=first, b=second: f(a, b), rounds)
        rows[name]["pairs_a_second_with_gradients"] = round(count / seconds)
        if name in theirs:
            _, seconds, values = timed(theirs[name], rounds)
            rows[name]["geomstats_pairs_a_second"] = round(count / seconds)
            rows[name]["times_geomstats"] = round(rows[name]["pairs_a_second"] * seconds / count, 1)
            rows[name]["relative_difference"] = float(np.max(np.abs(values / result[name] - 1)))
        print(f"{name:22s} {rows[name]}", flush=True)
    return rows


def errors(p, q, count):
    """The largest relative difference of the exact distance from a shot geodesic's length."""
    if importlib.util.find_spec("diffrax") is None:
        return {}
    from tests.distances.shooting import shooting_distance

    worst = 0.0
    for n in range(count):
        first, second = (jax.tree.map(lambda x, n=n: x[n], g) for g in (p, q))
        result = float(fisher_rao(first, second))
        worst = max(worst, abs(result / shooting_distance(first, second) - 1))
    return {"shot_pairs": count, "largest_relative_error": worst}


def main():
    args = arguments(__doc__)
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(args.seed)
    count = 2_000 if args.quick else 200_000
    p, q = draw(count, rng), draw(count, rng)
    rows = compare(p, q, 2 if args.quick else 5)
    rows["fisher_rao"].update(errors(p, q, 2 if args.quick else 50))
    finish({"benchmark": "gaussian_distances", "n": count, "seed": args.seed, **rows})


if __name__ == "__main__":
    main()
