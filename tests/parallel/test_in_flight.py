"""Chunks that are computed a few at a time."""

import threading
import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.distances import SquaredEuclidean
from diffclust.features import Scattering
from diffclust.features.orthogonal_complement import features_of
from diffclust.graphs import pair_distances
from diffclust.parallel import data_mesh
from diffclust.parallel import in_flight as chunkwise
from diffclust.parallel.in_flight import in_flight, num_workers

WORKERS = pytest.mark.parametrize("workers", [1, 2, 5])


@WORKERS
def test_all_in_order(workers):
    def slow_at_first(item):
        time.sleep(0.02 / (1 + item))
        return jnp.asarray(item)

    assert [int(x) for x in in_flight(slow_at_first, range(12), workers=workers)] == [*range(12)]
    assert list(in_flight(slow_at_first, [], workers=workers)) == []


@WORKERS
def test_settings_of_the_calling_thread(workers):
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        result = list(in_flight(lambda i: jnp.arange(3.0) + np.int32(i), range(6), workers=workers))
    assert {x.dtype for x in result} == {np.dtype("float64")}


@WORKERS
def test_an_error_comes_in_its_turn(workers):
    def refuse_the_fifth(item):
        if item == 4:
            raise ValueError("the fifth")
        return jnp.asarray(item)

    seen = []
    with pytest.raises(ValueError, match="the fifth"):
        seen.extend(int(x) for x in in_flight(refuse_the_fifth, range(50), workers=workers))
    assert seen == ([0, 1, 2] if workers == 1 else [0, 1, 2, 3])


def test_no_more_than_asked_for_and_none_left_behind():
    start, most, running, lock = [], 0, 0, threading.Lock()

    def compute(item):
        nonlocal most, running
        with lock:
            start.append(item)
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1
        return jnp.asarray(item)

    results = in_flight(compute, range(1000), workers=3)
    for _ in range(4):
        next(results)
    results.close()
    assert 1 < most <= 3
    assert len(start) <= 8
    assert not [t for t in threading.enumerate() if t.name.startswith("diffclust")]


def test_the_first_is_computed_alone():
    double = jax.jit(chex.assert_max_traces(lambda x: 2 * x, n=1))
    list(in_flight(lambda i: double(jnp.full(3, float(i))), range(9), workers=4))


def test_a_mesh_has_one_worker():
    assert num_workers(None) > 1
    assert num_workers(data_mesh(jax.devices()[:1])) == 1


@pytest.mark.parametrize("chunk_size", [3, 8])
def test_as_many_workers_as_you_like(monkeypatch, chunk_size):
    """Bit for bit: chunks do not concern each other."""
    rng = np.random.default_rng(0)
    images = rng.random((20, 8, 8, 1), dtype=np.float32)
    sources, targets = rng.integers(0, 20, (2, 70))
    feature_map = Scattering(8, 8, num_scales=1, num_angles=2)

    def result():
        distances = pair_distances(
            SquaredEuclidean(), images, images, sources, targets, chunk_size=chunk_size
        )
        return distances, np.concatenate([*features_of(feature_map, images, chunk_size=chunk_size)])

    several = result()
    monkeypatch.setattr("diffclust.parallel.in_flight.num_workers", lambda mesh: 1)
    for ours, theirs in zip(several, result(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    expected = ((images[sources] - images[targets]) ** 2).sum((1, 2, 3))
    np.testing.assert_allclose(several[0], expected, rtol=1e-6)


def test_as_many_cores_as_the_process_may_use(monkeypatch):
    monkeypatch.setattr(chunkwise.os, "sched_getaffinity", lambda pid: {2, 3, 5}, raising=False)
    assert num_workers(None) == 4
    monkeypatch.setattr(chunkwise.os, "sched_getaffinity", lambda pid: set(range(200)))
    assert num_workers(None) == 32
