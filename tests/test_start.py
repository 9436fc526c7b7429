"""What stands before the first step: importing, help, compiling, and callbacks that end a fit."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

import diffclust
from diffclust.cli.options import COMMANDS
from diffclust.data import load
from diffclust.parallel.chunks import default_chunk_size
from diffclust.solvers import Callback, Cancelled, Progress

ROOT = Path(__file__).parents[1]

SLOW = 4.0
"""How many times slower than two idle cores a machine may be on which tests run."""


def printed(code: str) -> list[str]:
    """What a fresh interpreter prints, and how many processor seconds it has taken by then."""
    code += "\nimport os; print(sum(os.times()[:2]))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return result.stdout.split("\n")[:-1]


def test_import_is_quick_and_pulls_in_nothing_heavy() -> None:
    heavy = [
        "matplotlib",
        "sklearn",
        "pandas",
        "orbax",
        "tensorflow_datasets",
        "scipy.sparse",
        "scipy.linalg",
        "PIL",
    ]
    # The package imports its parts when they are asked for; so this asks.
    names = "".join(f"diffclust.{name}; " for name in diffclust.__all__)
    code = f"import sys, diffclust; {names}print([m for m in {heavy} if m in sys.modules])"
    pulled_in, seconds = printed(code)
    assert pulled_in == "[]"
    assert float(seconds) < SLOW * 1.5


def test_names_of_the_package_are_found_and_others_are_not() -> None:
    assert set(diffclust.__all__) <= set(dir(diffclust))
    assert all(hasattr(diffclust, name) for name in diffclust.__all__)
    assert diffclust.models.KMeans is diffclust.KMeans
    assert not hasattr(diffclust, "nothing_of_the_kind")


def test_help_of_every_command_is_quick_and_needs_no_jax() -> None:
    code = f"""
import contextlib, io, sys
from diffclust.cli import entry
for command in [[], *[[name] for name in {list(COMMANDS)}]]:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        entry.main([*command, "--help"])
    assert "usage" in text.getvalue().lower(), command
print([name for name in ("jax", "equinox", "sklearn") if name in sys.modules])
"""
    pulled_in, seconds = printed(code)
    assert pulled_in == "[]"
    # Each of them in less than two seconds; here they share one start, and do.
    assert float(seconds) < SLOW * 2.0


class Compiled(logging.Handler):
    """Names of the programs that JAX compiles or fetches from its cache."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        words = record.getMessage().split()
        if words[0] == "Compiling":
            self.names.append(words[1])


@pytest.fixture
def compiled() -> Iterator[Callable[[], list[str]]]:
    """What was compiled since the last time that it was asked."""
    handler, logger = Compiled(), logging.getLogger("jax._src.interpreters.pxla")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False

    def since() -> list[str]:
        names, handler.names = handler.names, []
        return names

    yield since
    logger.removeHandler(handler)
    logger.setLevel(level)
    logger.propagate = propagate


TRIVIAL = {
    "jit(stage)",
    "jit(broadcast_in_dim)",
    "jit(iota)",
    "jit(convert_element_type)",
    "jit(dynamic_slice)",
    "jit(_shuffle)",
    "jit(rows_of)",
    "jit(_with_rows)",
}
"""Copies and fills, which are compiled in milliseconds."""

FITS = {
    "kmeans": (diffclust.KMeans(3, num_restarts=1, max_passes=3), {}),
    "kmeans, chunks given": (diffclust.KMeans(3, num_restarts=1, max_passes=3), {"chunk_size": 96}),
    "dti-kmeans": (
        diffclust.DTIKMeans(
            3,
            transforms="aff",
            backbone="strided",
            training=diffclust.Training(max_steps=10, batch_size=16),
        ),
        {},
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n == "dti-kmeans" else []) for n in FITS]
)
def test_other_numbers_of_images_compile_nothing_that_takes_long(
    name: str, compiled: Callable[[], list[str]], key: jax.Array
) -> None:
    images = load("digits").images
    model, settings = FITS[name]
    model.fit(images[:257], key=key, **settings)
    assert "jit(step_on_devices)" in compiled() or name != "kmeans"
    result = model.fit(images[:283], key=key, **settings)
    again = compiled()
    assert set(again) <= TRIVIAL
    assert len(again) <= 12
    result.predict(images[:1])
    compiled()
    for count in (17, 133):
        result.predict(images[:count])
        assert compiled() == []


def test_the_watch_sees_a_program_that_is_new(compiled: Callable[[], list[str]]) -> None:
    jax.jit(lambda x: x * 2.5 + 1.0)(np.ones((3, 5), np.float32))
    assert "jit(<lambda>)" in compiled()


@pytest.mark.parametrize(
    ("first", "second"), [(1000, 1020), (1025, 1152), (1800, 1920), (97, 110), (3600, 3840)]
)
def test_small_data_sets_share_chunk_sizes(first: int, second: int) -> None:
    sample = np.zeros((8, 8, 1), np.float32)
    size = default_chunk_size(sample, first, 10)
    assert size == default_chunk_size(sample, second, 10) >= second
    # Padding is an eighth at most, or that of a few samples.
    assert size <= max(1.125 * first, first + 16)


def test_large_data_sets_are_cut_without_much_padding() -> None:
    sample = np.zeros((28, 28, 1), np.float32)
    for count in (5000, 60_000, 70_000):
        size = default_chunk_size(sample, count, 1)
        assert -(-count // size) * size < 1.01 * count


@pytest.mark.parametrize("after", [1, 3])
def test_a_callback_ends_a_fit(after: int, key: jax.Array) -> None:
    reports: list[Progress] = []

    def listener(progress: Progress) -> None:
        reports.append(progress)
        if len(reports) == after:
            raise Cancelled("enough")

    assert isinstance(listener, Callback)
    model = diffclust.KMeans(3, num_restarts=1)
    with pytest.raises(Cancelled, match="enough"):
        model.fit(load("digits").images[:60], key=key, callback=listener)
    assert len(reports) == after


@pytest.mark.slow
def test_a_first_result_is_timed_from_the_start_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from experiments.benchmarks.first_result import timed

    # A folder of programs that this test has not filled: nothing else may be measured.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", os.devnull)
    arguments = ["fit", "digits", "-k", "2", "--method", "kmeans", "--limit", "32"]
    arguments += ["--restarts", "1", "--max-passes", "2", "--no-report"]
    row = timed("command", arguments, str(tmp_path))
    assert 0.5 < row["before_fit"] < row["first_step"] < row["before_fit"] + row["fit"]
    assert row["before_fit"] + row["fit"] + row["after_fit"] == pytest.approx(row["wall"], abs=0.01)
    assert row["compiling"] > 0.0
    assert row["programs"] > 5
    assert row["cpu"] > 0.5
    assert any((tmp_path / "diffclust" / "jax").iterdir())
