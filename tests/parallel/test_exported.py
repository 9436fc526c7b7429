"""Programs that are kept on disk give what programs that are traced anew give."""

from collections.abc import Iterator
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from diffclust.energies import TransformedDistance
from diffclust.models import (
    DeformationInvariantKMeans,
    DTIKMeans,
    GaussianMixture,
    KMeans,
    Training,
)
from diffclust.parallel import exported, keep_programs
from diffclust.parallel.mesh import jitted_map_rows, vmap_rows
from diffclust.transforms import Affine, Colour, Identity


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    jax.clear_caches()
    keep_programs(tmp_path)
    yield tmp_path
    keep_programs(None)


def in_another_process() -> None:
    """Forgets what this process has traced and compiled."""
    jax.clear_caches()


IMAGES = np.random.default_rng(0).random((12, 8, 8), np.float32)
MODELS = {
    "lloyd": KMeans(3, num_restarts=1),
    "moves": DeformationInvariantKMeans(3, num_restarts=1, landmarks=(2, 2)),
    "gradient": GaussianMixture(2, training=Training(steps=(2, 1))),
    "network": DTIKMeans(2, transforms="col", training=Training(steps=(2, 2, 1))),
}
SLOW = ("moves", "gradient", "network")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in MODELS]
)
def test_a_fit_by_kept_programs_is_the_same(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit() -> tuple[np.ndarray, ...]:
        result = MODELS[name].fit(IMAGES, key=jax.random.key(0))
        return result.assignments, result.distances, result.prototypes

    first = fit()
    assert any(folder.iterdir())
    in_another_process()
    with monkeypatch.context() as patch:
        patch.setattr(exported, "_write", lambda *_: pytest.fail("a program was traced again"))
        second = fit()
    keep_programs(None)
    plain = fit()
    for one, two, three in zip(first, second, plain, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


def unit(sample: jax.Array) -> jax.Array:
    return sample / jnp.linalg.norm(sample)


def moved(params: jax.Array, rows: jax.Array) -> jax.Array:
    distance = TransformedDistance(Affine())
    return jitted_map_rows(vmap_rows, eqx.Partial(distance.aligned, params), rows, None)


def test_a_file_that_cannot_be_read_is_replaced(folder: Path) -> None:
    params, rows = 0.1 * jnp.ones(6), jnp.asarray(IMAGES[..., None])
    before = moved(params, rows)
    (file,) = folder.iterdir()
    for content in (b"", b"half", file.read_bytes()[:-100]):
        file.write_bytes(content)
        in_another_process()
        np.testing.assert_array_equal(moved(params, rows), before)
        assert len(file.read_bytes()) > 500
    assert [*folder.iterdir()] == [file]


def test_arrays_are_no_part_of_a_program_and_shapes_are(folder: Path) -> None:
    rows = jnp.asarray(IMAGES[..., None])
    for params in (jnp.zeros(6), 0.2 * jnp.ones(6)):
        in_another_process()
        np.testing.assert_allclose(
            moved(params, rows)[3],
            TransformedDistance(Affine()).aligned(params, rows[3]),
            atol=1e-6,
        )
    # Arrays of NumPy's are placed first.
    np.testing.assert_array_equal(moved(np.zeros(6, np.float32), IMAGES[..., None]), rows)
    assert len([*folder.iterdir()]) == 1
    moved(jnp.zeros((6,)), rows[:5])
    assert len([*folder.iterdir()]) == 2


def test_functions_of_others_are_not_kept(folder: Path) -> None:
    rows = jnp.asarray(IMAGES)
    np.testing.assert_array_equal(
        jitted_map_rows(vmap_rows, unit, rows, None), jax.jit(jax.vmap(unit))(rows)
    )
    assert not [*folder.iterdir()]


def test_where_nothing_can_be_written_nothing_is_kept(folder: Path) -> None:
    keep_programs(folder / "missing")
    (folder / "missing").rmdir()
    assert moved(jnp.zeros((6,)), jnp.asarray(IMAGES[..., None])).shape == (12, 8, 8, 1)


def test_what_cannot_be_exported_is_traced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("a custom call without compatibility guarantees")

    monkeypatch.setattr(jax.export, "export", lambda *_: refuse)
    rows = jnp.asarray(IMAGES[..., None])
    np.testing.assert_array_equal(moved(jnp.zeros(6), rows), rows)
    assert not [*folder.iterdir()]


def test_another_configuration_is_another_program(folder: Path) -> None:
    rows = jnp.asarray(IMAGES[..., None])
    for precision in (None, "float32", "bfloat16"):
        in_another_process()
        with jax.default_matmul_precision(precision):
            moved(jnp.zeros(6), rows)
    assert len([*folder.iterdir()]) == 3


def test_slopes_go_through_programs_that_could_be_kept() -> None:
    rows = jnp.asarray(IMAGES[..., None])
    slope = jax.grad(lambda params: jnp.sum(moved(params, rows) ** 2))(0.1 * jnp.ones(6))
    assert np.isfinite(slope).all()
    assert np.abs(slope).max() > 0


def described(value: object) -> tuple[str, ...]:
    return tuple(exported._described(value))


def test_what_differs_in_the_program_is_described_otherwise() -> None:
    transform = TransformedDistance(Affine())
    others = [
        transform,
        TransformedDistance(Identity()),
        TransformedDistance(Colour()),
        optax.adam(1e-2),
        optax.adam(1e-3),
        jnp.zeros(3),
        jnp.zeros(4),
        jnp.zeros(3, int),
        np.zeros(3),
        np.ones(3),
        (1, (2,)),
        ((1, 2),),
        {"a": 1},
        {"b": 1},
        None,
        False,
        0,
        0.0,
    ]
    assert len({described(each) for each in others}) == len(others)
    assert described(transform) == described(TransformedDistance(Affine()))
    assert described(optax.adam(1e-2)) == described(optax.adam(1e-2))


def test_an_array_in_a_closure_is_a_constant() -> None:
    steps = [optax.scale_by_schedule(optax.constant_schedule(x)) for x in (jnp.ones(()), 2.0)]
    steps += [optax.scale_by_schedule(optax.constant_schedule(jnp.full((), 3.0)))]
    assert len({described(step) for step in steps}) == 3
    with pytest.raises(exported._UnknownError):
        described(object())


def test_constants_of_a_function_are_part_of_it_in_any_order() -> None:
    source = "def function(x): return x in {'a', 'b', 'c', 'd'} or x == %d"

    def instructions(constant: int) -> str:
        code = compile(source % constant, "source", "exec")
        return " ".join(exported._instructions(code))

    assert instructions(2) != instructions(3)
    assert "['a', 'b', 'c', 'd']" in instructions(2)


@pytest.mark.parametrize(
    "share", [0.3, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.1, 0.5, 0.9))]
)
def test_a_damaged_program_is_traced_again(folder: Path, share: float) -> None:
    first = KMeans(2, num_restarts=1).fit(IMAGES, key=jax.random.key(0))
    for file in folder.iterdir():
        content = bytearray(file.read_bytes())
        content[int(share * len(content))] ^= 0xFF
        file.write_bytes(content)
    in_another_process()
    again = KMeans(2, num_restarts=1).fit(IMAGES, key=jax.random.key(0))
    np.testing.assert_array_equal(first.assignments, again.assignments)


def test_an_interruption_leaves_no_part_of_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        KMeans(2, num_restarts=1).fit(IMAGES, key=jax.random.key(0))
    assert not any(folder.iterdir())
