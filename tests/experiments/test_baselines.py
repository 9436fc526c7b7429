"""The papers' baselines: their objectives against NumPy and SciPy, and whether they learn."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from experiments.baselines import modern, run
from experiments.baselines.networks import NETWORKS, Autoencoder
from experiments.baselines.objectives import (
    Mixture,
    kullback_leibler,
    student_t,
    target_distribution,
)

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)


def test_assignments_and_target_are_those_of_the_paper_s_equations() -> None:
    codes, centres = RNG.normal(size=(7, 3)), RNG.normal(size=(4, 3))
    soft = np.empty((7, 4))
    for i, code in enumerate(codes):
        weights = [(1 + np.sum((code - centre) ** 2)) ** -1.0 for centre in centres]
        soft[i] = np.asarray(weights) / np.sum(weights)
    np.testing.assert_allclose(student_t(jnp.asarray(codes), jnp.asarray(centres)), soft, rtol=1e-5)
    target = np.empty((7, 4))
    for i in range(7):
        weights = [soft[i, j] ** 2 / soft[:, j].sum() for j in range(4)]
        target[i] = np.asarray(weights) / np.sum(weights)
    result = target_distribution(jnp.asarray(soft))
    np.testing.assert_allclose(result, target, rtol=1e-5)
    divergence = kullback_leibler(jnp.asarray(target), jnp.asarray(soft))
    expected = scipy.stats.entropy(target, soft, axis=1)
    np.testing.assert_allclose(divergence, expected, rtol=1e-4, atol=1e-6)


def drawn_mixture() -> tuple[Mixture, np.ndarray]:
    logits, means, log_variances = RNG.normal(size=3), RNG.normal(size=(3, 2)), RNG.normal(size=6)
    mixture = Mixture(*map(jnp.asarray, (logits, means, log_variances.reshape(3, 2))))
    return mixture, scipy.special.softmax(logits)


def test_responsibilities_are_those_of_the_densities() -> None:
    mixture, weights = drawn_mixture()
    codes = RNG.normal(size=(5, 2))
    scale = np.exp(np.asarray(mixture.log_variances) / 2)
    joint = weights * np.prod(
        scipy.stats.norm.pdf(codes[:, None], np.asarray(mixture.means), scale), axis=2
    )
    expected = joint / joint.sum(axis=1, keepdims=True)
    result = jnp.exp(mixture.log_responsibilities(jnp.asarray(codes)))
    np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_divergence_of_the_elbo_is_its_mean_over_drawn_codes() -> None:
    mixture, weights = drawn_mixture()
    mean, log_variance = RNG.normal(size=2), RNG.normal(size=2) - 1.0
    responsibilities = np.array([0.2, 0.5, 0.3])
    draws, deviation = 400_000, np.exp(log_variance / 2)
    codes = mean + deviation * RNG.normal(size=(draws, 2))
    chosen = RNG.choice(3, draws, p=responsibilities)
    scale = np.exp(np.asarray(mixture.log_variances) / 2)[chosen]
    norm = scipy.stats.norm
    posterior = norm.logpdf(codes, mean, deviation).sum(axis=1) + np.log(responsibilities[chosen])
    prior = norm.logpdf(codes, np.asarray(mixture.means)[chosen], scale).sum(axis=1)
    terms = posterior - prior - np.log(weights[chosen])
    given = (jnp.asarray(each)[None] for each in (mean, log_variance, np.log(responsibilities)))
    result = float(mixture.divergence(*given)[0])
    assert abs(result - terms.mean()) < 4 * terms.std() / draws**0.5
    assert result > 0.1  # a divergence that the draws could tell from none


def test_layers_are_the_papers() -> None:
    def shapes(name: str) -> Autoencoder:
        make = eqx.nn.make_with_state(NETWORKS[name])
        return eqx.filter_eval_shape(lambda key: make((28, 28, 1), key), jax.random.key(0))[0]

    network = shapes("mlp")
    layers = [*network.trunk.layers, network.code, *network.decoder.layers]
    units = [layer.out_features for layer in layers if isinstance(layer, eqx.nn.Linear)]
    assert units == [500, 500, 2000, 10, 2000, 500, 500, 784]
    network = shapes("conv")
    kernels = [layer.weight.shape for layer in network.trunk.layers if hasattr(layer, "stride")]
    assert kernels == [(32, 1, 5, 5), (32, 32, 5, 5), (32, 32, 5, 5)]
    assert (network.code.in_features, network.code.out_features) == (400, 10)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("shape", [(16, 16, 1), (13, 10, 3)])
def test_decoders_give_images_of_the_shape_that_came(
    name: str, shape: tuple[int, int, int]
) -> None:
    network, state = eqx.nn.make_with_state(NETWORKS[name])(shape, jax.random.key(0))
    images = jnp.asarray(RNG.uniform(size=(4, *shape)), dtype=jnp.float32)
    encode, decode = map(eqx.filter_jit, (type(network).encode, type(network).decode))
    codes, _, state = encode(network, images, state)
    logits, state = decode(network, codes, state)
    assert codes.shape == (4, 10)
    assert logits.shape == images.shape
    scaled = run.rescaled(network, jnp.arange(1.0, 11.0))
    again, _, state = encode(scaled, images, state)
    np.testing.assert_allclose(again, codes * jnp.arange(1.0, 11.0)[None], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(decode(scaled, again, state)[0], logits, rtol=1e-3, atol=1e-3)


# Optax's powers of step counts need it.
@jax.numpy_dtype_promotion("standard")
@pytest.mark.slow
def test_all_learn_and_tell_two_groups_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "TOLERANCE", 0.0)  # or DEC has nothing to do here
    data, steps = run.two_groups(64), 40
    network, state, losses, _ = run.pretrained("mlp", data.images, 0, steps)
    first, last = run.ends(losses)
    assert last < 0.7 * first
    for name, method in run.METHODS.items():
        clusters, own = method(network, state, data.images, data.images, 2, 0, steps)
        assert run.scores(data.labels, clusters)["acc"] == 1.0, name
        if name != "ae-kmeans":
            assert len(own) == steps
            assert run.ends(own)[1] < run.ends(own)[0], name


@pytest.mark.slow
def test_quick_is_right_and_resumes(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    words = [sys.executable, "-m", "experiments.baselines.run", "--quick", "--results", results]
    kept = ""
    for _ in range(2):
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        figures = json.loads(done.stdout.strip().splitlines()[-1])
        for network in NETWORKS:
            for method in run.METHODS:
                result = figures[f"two-groups {network} {method}"]
                assert result["acc"]["mean"] == 1.0
                assert result["autoencoder_loss"][1] < result["autoencoder_loss"][0]
        assert kept in ("", results.read_text())
        kept = results.read_text()
    assert len(kept.splitlines()) == len(NETWORKS) * len(run.METHODS)


def test_without_their_packages_modern_baselines_are_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["modern", "--methods", "umap-mixture", "n2d"])
    modern.main()
    first, second, last = capsys.readouterr().out.splitlines()
    assert first == "umap-mixture is skipped: the package umap is not here"
    assert second == "n2d is skipped: the package clustpy is not here"
    assert json.loads(last)["skipped"] == ["umap-mixture", "n2d"]
