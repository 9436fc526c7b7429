"""What every test shares: JAX's settings, a key, the data, and the watch over skipped tests.

The jaxtyping hook, which checks the annotations of `diffclust` with beartype, is an option of
pytest that pyproject.toml sets; `--jaxtyping-packages=` switches it off.
"""

import contextlib
import ctypes
import gc
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

# JAX reads these when it is first imported. Programs that a test starts inherit them.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
FAKE_DEVICES = "--xla_force_host_platform_device_count"
FLAGS = {FAKE_DEVICES: "4"}
if "JAX_DISABLE_MOST_OPTIMIZATIONS" in os.environ:
    # Two thirds of the time to compile. JAX 0.11 has no such switch any more.
    FLAGS["--xla_cpu_parallel_codegen_split_count"] = "1"
    if importlib.metadata.version("jaxlib").startswith("0.10."):
        FLAGS["--xla_cpu_use_fusion_emitters"] = "false"
given = os.environ.get("XLA_FLAGS", "")
added = [f"{name}={value}" for name, value in FLAGS.items() if name not in given]
os.environ["XLA_FLAGS"] = " ".join([*given.split(), *added])

import hypothesis
import jax
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

hypothesis.settings.register_profile(
    "diffclust",
    deadline=None,  # the first example pays for the compilation
    derandomize=True,
    max_examples=20,
)
hypothesis.settings.load_profile("diffclust")
# Hypothesis also draws numbers that it finds in the package's files, as far as a worker has
# imported them, so that examples would depend on the order of the tests.
vars(hypothesis.internal.conjecture.providers)["is_local_module_file"] = lambda _: False

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell starts what is put into the background; tests of Ctrl-C would wait for nothing.
    signal.signal(signal.SIGINT, signal.default_int_handler)

DATA_VARIABLE = "DIFFCLUST_DATA_DIR"
NO_DATA = f"{DATA_VARIABLE} is not set"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ALLOWED_SKIPS = {
    NO_DATA: lambda: not os.environ.get(DATA_VARIABLE),
    "no aeon": lambda: importlib.util.find_spec("aeon") is None,
    "no soundfile": lambda: importlib.util.find_spec("soundfile") is None,
    "no tensorflow-datasets": lambda: importlib.util.find_spec("tensorflow_datasets") is None,
    "no permissions": lambda: hasattr(os, "geteuid") and os.geteuid() == 0,
    "no Chromium": lambda: not any(map(shutil.which, CHROMIUM)),
    "no GPU": lambda: jax.default_backend() != "gpu",
}
"""How the reason of a skip may begin, and when. Any other skip fails the run: a test that quietly
stops running is worse than one that fails."""


def is_allowed(reason: str) -> bool:
    return any(reason.startswith(prefix) and when() for prefix, when in ALLOWED_SKIPS.items())


class SkipWatch:
    """Fails the run where a test was skipped for a reason that is not allowed."""

    def __init__(self) -> None:
        self.unexpected: dict[str, str] = {}

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = str(report.longrepr[-1]).removeprefix("Skipped: ")
            if not is_allowed(reason):
                self.unexpected[report.nodeid] = reason

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexpected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid, reason in self.unexpected.items():
            terminalreporter.line(f"UNEXPECTED SKIP {nodeid}: {reason}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # pytest-xdist's controller sees every report
        config.pluginmanager.register(SkipWatch(), "skip-watch")
    if hasattr(config, "cache"):  # not under `-p no:cacheprovider`
        # Compiled programs are kept between runs, here and not in the user's own cache.
        directory = str(config.cache.mkdir("jax"))
        os.environ["JAX_COMPILATION_CACHE_DIR"] = directory
        jax.config.update("jax_compilation_cache_dir", directory)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


IR_CONTEXTS = threading.local()


def share_ir_contexts() -> None:
    """Lowers all programs of a thread in one MLIR context, which takes less time.

    JAX makes one for each program, several milliseconds each. There is no public switch; where JAX
    has changed, tests are slower and no more. A program that is lowered within another one, such
    as a constant that is computed, has a context of its own.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src.interpreters import mlir
        from jaxlib.mlir import ir

        make = mlir.make_ir_context

        def shared() -> Any:
            with contextlib.suppress(ValueError):
                if ir.Context.current is not None:
                    return make()
            if not hasattr(IR_CONTEXTS, "context"):
                IR_CONTEXTS.context = make()
            return IR_CONTEXTS.context

        mlir.make_ir_context = shared


share_ir_contexts()


def pytest_collection_finish() -> None:
    """Tracing makes many objects that live on: searching them for garbage is a tenth of a run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def resident_memory() -> int:
    """The bytes of this process that are in memory; 0 where they are not known."""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0


@pytest.fixture(scope="session")
def least_memory() -> dict[str, int]:
    """How much memory was in use after programs were last forgotten."""
    return {"bytes": 0}


@pytest.fixture(autouse=True, scope="module")
def _forget_programs(least_memory: dict[str, int]) -> Iterator[None]:
    """Compiled programs stay in memory, of which thousands of tests would take many gigabytes.

    Forgetting them gives back only a part of it: what counts is how much came since.
    """
    yield
    if resident_memory() - least_memory["bytes"] > 3 * 2**30:
        forget_programs()
        least_memory["bytes"] = resident_memory()


def forget_programs() -> None:
    """Drops all that JAX compiled, and gives the memory back to the system where that can be."""
    jax.clear_caches()
    vars(IR_CONTEXTS).clear()
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    """Many open figures are a warning, so one test would fail for what the others left."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


# Of session scope, and so at hand under `hypothesis.given` too.
@pytest.fixture(scope="session")
def key() -> jax.Array:
    """The one key that tests split."""
    return jax.random.key(0)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with `mnist.npz` and `usps.npz`; the test is skipped where there is none."""
    if not os.environ.get(DATA_VARIABLE):
        pytest.skip(f"{NO_DATA}: it names the folder with mnist.npz and usps.npz")
    directory = Path(os.environ[DATA_VARIABLE])
    assert directory.is_dir(), f"{DATA_VARIABLE} is {directory}, which is not a folder"
    return directory


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """The system's Chromium, headless."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        pytest.skip("no Chromium: install your system's chromium to try pages in it")
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as player:
        opened = player.chromium.launch(executable_path=program, args=arguments)
        yield opened
        opened.close()
