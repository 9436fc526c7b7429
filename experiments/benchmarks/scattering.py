"""Scattering transforms a second: 10,000 images 32×32, J = 3, L = 8, order 2, against kymatio.

    python -m experiments.benchmarks.scattering [--seed 0] [--quick] [--kymatio PYTHON]
        [--no-torch]

PYTHON is the interpreter of an environment with `kymatio-requirements.txt`, where kymatio's jitted
JAX and its PyTorch backend run in processes of their own. All take five turns of 2,000 images, and
wait while another computes. Each takes the batch size and the number of threads that call it, of
several, with which it was fastest in a trial. Compilation is timed apart.
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

BATCHES = (16, 32, 64, 128, 256)
THREADS = (1, 3)


def images(count, seed):
    return np.random.default_rng(seed).uniform(size=(count, 32, 32)).astype(np.float32)


def diffclust_transform():
    import jax

    from diffclust.features import Scattering

    transform = jax.jit(jax.vmap(Scattering(32, 32, num_scales=3, num_angles=8)))
    return lambda batch: transform(batch[..., None]).block_until_ready(), jax.__version__


def kymatio_jax():
    import jax
    from kymatio.jax import Scattering2D

    transform = jax.jit(Scattering2D(J=3, shape=(32, 32), L=8).__call__)
    return lambda batch: transform(batch).block_until_ready(), jax.__version__


def kymatio_torch():
    import torch
    from kymatio.torch import Scattering2D

    transform = Scattering2D(J=3, shape=(32, 32), L=8)

    def run(batch):
        with torch.no_grad():
            return transform(torch.from_numpy(batch))

    return run, torch.__version__


BACKENDS = {"diffclust": diffclust_transform, "jax": kymatio_jax, "torch": kymatio_torch}


def sweep(transform, data, batch, threads):
    """Seconds for all images, and the sum of the coefficients of the first batch."""
    batches = [data[start : start + batch] for start in range(0, len(data), batch)]
    started = time.perf_counter()
    if threads == 1:
        result = [transform(part) for part in batches]
    else:
        with ThreadPoolExecutor(threads) as pool:
            result = list(pool.map(transform, batches))
    return time.perf_counter() - started, float(np.asarray(result[0], np.float64).sum()) / batch


def worker(backend, count, seed):
    """Answers a line on stdin with a line of JSON: what was chosen in a trial, then every turn."""
    transform, version = BACKENDS[backend]()
    data = images(count, seed)
    # The trial's images are whole batches; so are all images up to one smaller batch at the end.
    trial = data[: 4 * max(BATCHES)]
    seconds, compiling = {}, {}
    for batch in BATCHES:
        if batch > count:
            continue
        compiling[batch] = sweep(transform, data[:batch], batch, 1)[0]
        for threads in THREADS:
            spent = min(sweep(transform, trial, batch, threads)[0] for _ in range(3))
            seconds[batch, threads] = spent / len(trial)
    batch, threads = best = min(seconds, key=lambda tried: seconds[tried])
    whole = data[: count - count % batch]
    report = {"version": version, "batch": batch, "threads": threads}
    print(json.dumps({**report, "first_call_s": round(compiling[batch], 2)}), flush=True)
    for _ in sys.stdin:
        taken, mean = sweep(transform, whole, *best)
        print(json.dumps({"images_per_s": len(whole) / taken, "sum": mean}), flush=True)


def main():
    # A worker runs as a file in an environment that has neither this project nor its harness.
    from experiments.harness import arguments, finish

    args = arguments(
        __doc__,
        kymatio={"default": None, "metavar": "PYTHON", "help": "also measure kymatio"},
        no_torch={"action": "store_true", "help": "leave out kymatio's PyTorch backend"},
    )
    # Short turns, so that a change in the machine's load meets all alike.
    count, rounds = (64, 1) if args.quick else (2_000, 5)
    pythons = {"diffclust": sys.executable}
    if args.kymatio is not None:
        rivals = ("jax",) if args.no_torch else ("jax", "torch")
        pythons |= dict.fromkeys(rivals, args.kymatio)
    workers, reports, speeds = {}, {}, {}
    for backend, python in pythons.items():
        command = [python, __file__, backend, str(count), str(args.seed)]
        if backend == "diffclust":
            command[1:2] = ["-m", "experiments.benchmarks.scattering"]
        workers[backend] = subprocess.Popen(
            [*command, "--worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        # Its trial ends before the next one begins.
        reports[backend] = json.loads(workers[backend].stdout.readline())
        speeds[backend] = []
        print(f"{backend:9s} {reports[backend]}", flush=True)
    for _ in range(rounds):
        for backend, process in workers.items():
            process.stdin.write("run\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            speeds[backend].append(round(answer["images_per_s"], 1))
            print(f"{backend:9s} {speeds[backend][-1]:8.1f} images/s", flush=True)
    for process in workers.values():
        process.stdin.close()
        process.wait()
    figures = {"images_per_s": speeds, "workers": reports}
    if args.kymatio is not None:
        medians = {backend: float(np.median(runs)) for backend, runs in speeds.items()}
        ratios = {b: medians["diffclust"] / medians[b] for b in medians if b != "diffclust"}
        figures["ratio_to_kymatio"] = {backend: round(r, 2) for backend, r in ratios.items()}
        figures["ratio_to_fastest"] = round(min(ratios.values()), 2)
    finish({"benchmark": "scattering", "n": count * rounds, "seed": args.seed, **figures})


if __name__ == "__main__":
    if "--worker" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("backend", choices=list(BACKENDS))
        parser.add_argument("count", type=int)
        parser.add_argument("seed", type=int)
        parser.add_argument("--worker", action="store_true")
        given = parser.parse_args()
        worker(given.backend, given.count, given.seed)
    else:
        main()
