"""Series that differ by warps of time, clustered beside tslearn.

    python -m experiments.series.run [--seed 0] [--seeds 2] [--quick] [--sources FILE ...]

Made series of four kinds under random warps, which no knots can undo exactly, with noise; and the
same, some cut short. K-means, K-means under time warps of the values and of square-root velocities,
the cut of a graph of neighbours under time warps, found without features (of whole series alone: a
neighbour, unlike a mean, must not have missing values), and tslearn's K-means by DTW and soft-DTW
where tslearn is installed (experiments/series/requirements.txt); or the same of files of series
with labels (.npz, .csv, .ts). Labels score, and do nothing else.
"""

import importlib.util
import time

import jax
import jax.numpy as jnp
import numpy as np

from diffclust.alignment import Descent, GridSearch, NoAlignment, Sequential, Stage
from diffclust.data import load_series
from diffclust.energies import TransformedDistance
from diffclust.features import square_root_velocity
from diffclust.metrics import scores
from diffclust.models import Clustering, SpectralClustering
from diffclust.prototypes import UnitNormSeries
from diffclust.solvers import Lloyd
from diffclust.transforms import TimeWarp, params_grid
from experiments.harness import arguments, finish

RESTARTS = 2
STILL = NoAlignment()
DESCENT = Descent((Stage(8, blur=1 / 28), Stage(10)))


def made(count, length, seed, *, cut=False):
    """Sums of bumps, at times that are bent by a power and a wave."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 4
    # The same bumps but for one: what differs is small beside the warps.
    centres = np.array([[0.2, 0.5, 0.8], [0.2, 0.5, 0.8], [0.2, 0.45, 0.8], [0.2, 0.5, 0.8]])
    heights = np.array([[1, 1, 1], [1, -1, 1], [1, 0.3, 1], [1, 1, -0.6]])
    times = np.linspace(0, 1, length)
    warps = times[None] ** np.exp(rng.normal(0, 0.35, (count, 1)))
    warps = warps + rng.uniform(-0.1, 0.1, (count, 1)) * np.sin(2 * np.pi * warps) / 2
    bumps = np.exp(-0.5 * ((warps[:, :, None] - centres[labels][:, None]) / 0.06) ** 2)
    series = np.einsum("ntb,nb->nt", bumps, heights[labels])
    series = series + rng.normal(0, 0.05, series.shape)
    if cut:
        ends = rng.integers(int(0.85 * length), length + 1, count)
        series = np.where(np.arange(length)[None] < ends[:, None], series, np.nan)
    return series[..., None].astype(np.float32), labels


def searched():
    """Warps that go ever faster or slower, and faster or slower in the middle, then descent."""
    at = (np.arange(8) + 0.5) / 4 - 1
    rates = params_grid(np.linspace(-1.5, 1.5, 9), np.linspace(-1, 1, 5))
    grid = rates @ jnp.asarray(np.stack([at, at**2 - np.mean(at**2)]), dtype=rates.dtype)
    return Sequential(GridSearch(grid), Descent((Stage(10),)))


def model_of(clusters, *, velocity=False, align=STILL, penalty=0.05):
    """K-means of series, under warps of time where an aligner seeks them."""
    energy = TransformedDistance(TimeWarp(8, preserve_norm=velocity), missing=True)
    settings = {"num_restarts": RESTARTS, "max_passes": 20, "has_missing": True}
    return Clustering(
        clusters, Lloyd(energy, align, UnitNormSeries()), penalties=(penalty,), **settings
    )


def kmeans(series, clusters, key, *, velocity=False, align=STILL):
    """The clusters of K-means, of series or of their square-root velocities."""
    given = np.asarray(jax.vmap(square_root_velocity)(series)) if velocity else series
    return model_of(clusters, velocity=velocity, align=align).fit(given, key=key).assignments


def graph(series, clusters, key):
    """The mean graph's cut of neighbours under warps of time, which descent finds and judges."""
    model = SpectralClustering(clusters, model_of(clusters, align=searched()))
    return model.fit(series, key=key).assignments


def by_tslearn(series, clusters, seed, metric):
    from tslearn.clustering import TimeSeriesKMeans

    model = TimeSeriesKMeans(
        clusters, metric=metric, n_init=RESTARTS, max_iter=20, random_state=seed, n_jobs=1
    )
    return model.fit_predict(series)


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 2},
        sources={"nargs": "+", "default": [], "metavar": "FILE", "help": "in the sets' place"},
    )
    count, length, seeds = (40, 32, 1) if args.quick else (120, 64, args.seeds)
    sets = {"made": made(count, length, 0), "made, cut": made(count, length, 0, cut=True)}
    if args.sources:
        read = map(load_series, args.sources)
        sets = {one.name: (one.samples, one.labels) for one in read}
    rivals = importlib.util.find_spec("tslearn") is not None
    key = jax.random.key
    ways = {
        "K-means": lambda x, k, s: kmeans(x, k, key(s)),
        "K-means, warped": lambda x, k, s: kmeans(x, k, key(s), align=DESCENT),
        "K-means, warped, searched": lambda x, k, s: kmeans(x, k, key(s), align=searched()),
        "K-means, warped velocities": lambda x, k, s: kmeans(
            x, k, key(s), align=searched(), velocity=True
        ),
        "graph, warped": lambda x, k, s: graph(x, k, key(s)),
    }
    if rivals:
        for metric in ("dtw", "softdtw"):
            ways[f"tslearn, {metric}"] = lambda x, k, s, m=metric: by_tslearn(x, k, s, m)
    rows = {}
    for name, (series, labels) in sets.items():
        for way, cluster in ways.items():
            if way.startswith("graph") and np.isnan(series).any():
                continue
            result = []
            for seed in range(args.seed, args.seed + seeds):
                start = time.perf_counter()
                clusters = np.asarray(cluster(series, len(set(labels)), seed))
                seconds = time.perf_counter() - start
                row = {**scores(labels, clusters), "seconds": seconds}
                result.append({k: round(float(row[k]), 3) for k in ("ari", "acc", "seconds")})
                print(f"{name:10s} {way:28s} seed={seed} {result[-1]}", flush=True)
            rows[f"{name}: {way}"] = result
    finish({"experiment": "series", **rows})


if __name__ == "__main__":
    main()
