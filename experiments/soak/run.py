"""Whether memory grows: fits, predictions, reports and reviews for an hour, in one process.

    python -m experiments.soak.run [--minutes 60] [--methods kmeans pssc ...] [--clear-caches]
        [--seed 0] [--quick]

Every round draws a method, its settings and samples, fits, saves and loads, predicts, writes a
report, and sends requests to a review server: all that is there, edits, undoing, and what is
refused. Shapes and settings come from a small fixed set, so that each program is compiled once: the
first rounds, a warm-up, take each method with each of its settings in turn, and growth after them
would be a leak. After each round the memory in use (RSS) is recorded; the line that fits it best by
least squares after the warm-up says how it grows. `jax.clear_caches()` is never called, as in a
user's session, unless `--clear-caches` has it called after every round. Beside it is counted how
many programs were compiled.
"""

import gc
import http.client
import itertools
import json
import os
import tempfile
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import diffclust
from diffclust.data import LandmarkSet, SeriesSet, load, simulated_shapes
from diffclust.models import Training
from diffclust.report import write_report
from diffclust.review import Labelling, Reviewer, ReviewFile, ReviewSamples, ReviewServer
from diffclust.solvers import ignore
from experiments.harness import arguments, finish, peak_memory_mb
from experiments.series.run import made

SAMPLES, NEW = 120, 40
REQUESTS = 40
COMPILED = "/jax/core/compile/backend_compile_duration"

MODELS = {
    "kmeans": diffclust.KMeans,
    "ai-kmeans": diffclust.AffineInvariantKMeans,
    "dti-kmeans": lambda k, **restarts: diffclust.DTIKMeans(
        k, transforms="aff", training=Training(max_steps=100), **restarts
    ),
    "pssc": lambda k, **_: diffclust.ProjectedScatteringSpectralClustering(k),
    "shape-kmeans": diffclust.ShapeKMeans,
    "series-kmeans": diffclust.SeriesKMeans,
}
SETTINGS = ((3, 2), (5, 1))
"""Clusters and restarts."""


def drawn(method, rng):
    """Samples of the kind that the method clusters."""
    count, seed = SAMPLES + NEW, int(rng.integers(2**31))
    if method == "shape-kmeans":
        means = np.random.default_rng(0).normal(size=(4, 8, 2)).astype(np.float32)
        key = jax.random.key(seed)
        shapes, _ = simulated_shapes(jnp.asarray(means), 0.2, per_group=count // 4, key=key)
        return LandmarkSet(np.asarray(shapes, np.float64)).take(rng.permutation(count))
    if method == "series-kmeans":
        return SeriesSet(made(count, 32, seed)[0])
    return load("digits", limit=count, seed=seed)


def ask(server, rng):
    """Requests as a browser sends them, and some that are refused."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=60)
    headers = {"Origin": f"http://{server.host}", "Content-Type": "application/json"}

    def send(path, content=None, cookie=server.cookie):
        method, body = ("GET", None) if content is None else ("POST", json.dumps(content))
        connection.request(method, path, body, {**headers, "Cookie": cookie})
        answer = connection.getresponse()
        assert answer.status < 500, (path, answer.status)
        return answer.read()

    for _ in range(REQUESTS):
        state = json.loads(send("/state"))
        revision, cluster = state["revision"], int(rng.choice([c["id"] for c in state["clusters"]]))
        sample = int(rng.integers(SAMPLES))
        edit = (
            {"kind": "name", "cluster": cluster, "name": f"name {sample}"},
            {"kind": "move", "samples": [sample], "to": cluster},
            {"kind": "mark", "samples": [sample], "doubtful": True},
            {"kind": "split", "cluster": cluster},
        )[rng.integers(4)]
        requests = (
            (f"/members?cluster={cluster}&page=0&order=nearest",),
            (f"/picture?sample={sample}",),
            (f"/similar?sample={sample}",),
            ("/state", None, "wrong"),
            ("/edit", {"revision": revision, "edit": edit}),
            ("/edit", {"revision": revision - 1, "edit": edit}),
            ("/undo", {"revision": revision}),
        )
        send(*requests[rng.integers(len(requests))])
    connection.close()


def work(method, clusters, restarts, rng, folder):
    """One round."""
    data = drawn(method, rng)
    dataset, key = data.take(np.arange(SAMPLES)), jax.random.key(int(rng.integers(2**31)))
    model = MODELS[method](clusters, num_restarts=restarts)
    result = model.fit(dataset.samples, key=key, callback=ignore)
    diffclust.save(folder / "model", result, overwrite=True)
    diffclust.load(folder / "model").predict(data.samples[SAMPLES:])
    write_report(folder / "report.html", result, dataset, map_samples=60)
    initial = Labelling.of_run(result.assignments, clusters)
    file = ReviewFile(folder / "review.json", initial)
    file.path.unlink(missing_ok=True)
    orders = {"nearest": result.distances}
    reviewer = Reviewer("soak", ReviewSamples(result, dataset), file, orders, {})
    with ReviewServer(reviewer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            ask(server, rng)
        finally:
            server.shutdown()
            thread.join()


def memory_mb():
    """Memory in use now; where the system does not say, the most that ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak_memory_mb()
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def growth(time, memory):
    """Slope of the line of least squares, and its standard error."""
    (slope, _), covariance = np.polyfit(time, memory, 1, cov=True)
    return {"slope": round(slope, 2), "standard_error": round(np.sqrt(covariance[0, 0]), 2)}


def main():
    args = arguments(
        __doc__,
        minutes={"type": float, "default": 60.0},
        methods={"nargs": "+", "choices": list(MODELS), "default": list(MODELS)},
        clear_caches={"action": "store_true", "help": "jax.clear_caches() after every round"},
    )
    if args.quick:
        args.minutes, args.methods = 0.2, ["kmeans", "shape-kmeans"]
    programs = []

    def count(event, seconds, **_):
        if event == COMPILED:
            programs.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(count)
    pairs, rows = list(itertools.product(args.methods, SETTINGS)), []
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        while len(rows) < len(pairs) + 4 or rows[-1][0] < args.minutes:
            number = len(rows)
            rng = np.random.default_rng((args.seed, number))
            method, settings = pairs[number if number < len(pairs) else rng.integers(len(pairs))]
            print(f"{number:4d} {method:13s} {settings}", end=" ", flush=True)
            work(method, *settings, rng, Path(folder))
            if args.clear_caches:
                jax.clear_caches()
            gc.collect()
            rows.append(((time.perf_counter() - start) / 60, memory_mb(), len(programs)))
            print("{:6.2f} min {:7.1f} MB {:4d} programs".format(*rows[-1]), flush=True)
    minutes, memory, compiled = np.transpose(rows[len(pairs) - 1 :])
    figures = {
        "minutes": {"warm_up": round(minutes[0], 1), "all": round(minutes[-1], 1)},
        "rounds": {"warm_up": len(pairs), "all": len(rows)},
        "requests": len(rows) * REQUESTS * 2,
        "memory_mb": {"after_warm_up": round(memory[0], 1), "end": round(memory[-1], 1)},
        "growth_mb_an_hour": growth(minutes / 60, memory),
        "growth_mb_in_100_rounds": growth(np.arange(len(memory)) / 100, memory),
        "programs": {"after_warm_up": int(compiled[0]), "end": len(programs)},
        "clear_caches": args.clear_caches,
    }
    finish({"experiment": "soak", **figures})


if __name__ == "__main__":
    main()
