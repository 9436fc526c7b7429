"""The options of the methods: generated from the models, shown in the help, and understood."""

import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffclust.cli import entry
from diffclust.cli.options import Fit, Sweep, method_options, with_method_options
from diffclust.methods import METHODS
from diffclust.models import MODELS, AbstractModel
from tests import options_table

ROOT = Path(__file__).parents[2]
QUICK_ENOUGH = 0.5
"""Processor seconds that help may take, the interpreter's own start included."""

SLOW = 4.0
"""How many times slower than two idle cores a machine may be on which tests run."""


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        entry.main([*arguments, "--help"])
    assert not stopped.value.code
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


def parsed(*arguments: str) -> Fit:
    options = entry._parse(["fit", "digits", "-k", "2", "--out", "run", *arguments])
    assert isinstance(options, Fit)
    return options


@pytest.mark.parametrize(
    "before",
    [("-k3",), ("-k=3",), ("-k", "3"), ("-k", "3", "--skip_bad"), ("-k3", "--distributed")],
)
def test_the_file_is_found_behind_any_spelling_of_options(
    tmp_path: Path, before: tuple[str, ...]
) -> None:
    file = tmp_path / "shapes.npz"
    np.savez(file, landmarks=np.random.default_rng(0).normal(size=(5, 4, 2)))
    options = entry._parse(["fit", *before, str(file), "--out", "run"])
    assert isinstance(options, Fit)
    assert (options.method, options.clusters, options.source) == ("shape-kmeans", 3, str(file))


def test_a_letter_that_the_terminal_lacks_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    assert entry.main(["--version"]) == 0
    print("\u65e5", flush=True)
    assert written.getvalue().endswith(rb"\u65e5" + b"\n")


def test_the_table_is_what_the_models_say() -> None:
    table = options_table.options_table()
    assert options_table.FILE.read_text("utf-8") == table, (
        "write it anew: python tests/options_table.py --write"
    )
    assert list(json.loads(table)) == list(METHODS) == list(MODELS)


@pytest.mark.parametrize("method", METHODS)
def test_methods_and_their_options_are_those_of_the_models(method: str) -> None:
    settings = {about["setting"] for about in method_options()[method].values()}
    # A mask is a file, as weights are.
    assert settings == set(MODELS[method].setting_types()) - {"num_clusters", "mask"}
    for command in (Fit, Sweep):
        own = {field.name for field in dataclasses.fields(command)}
        kind = dataclasses.fields(with_method_options(command, method))
        (options,) = [field.default for field in kind if field.name == "settings"]
        assert not own & {field.name for field in dataclasses.fields(options)}


def test_a_sweep_takes_every_option_of_the_source() -> None:
    own = {"checkpoint_every", "checkpoints_kept", "compare_with", "distribution", "no_report"}
    names = [{field.name for field in dataclasses.fields(command)} for command in (Fit, Sweep)]
    assert names[0] - names[1] == own | {"start"}


def example(about: dict[str, Any]) -> tuple[list[str], Any]:
    """Words that change a setting, and its value then."""
    kind = about["type"]
    if kind == "flag":
        return [], not about["default"]
    if kind == "choice":
        value = next(choice for choice in about["choices"] if choice != about["default"])
        return [value], value
    values = {
        "integer": ("21", 21),
        "integers": ("20,21", (20, 21)),
        "number": ("0.25", 0.25),
        "grid": ("3x4", (3, 4)),
        "text": ("aff", "aff"),
    }
    word, value = values[kind]
    return [word], value


@pytest.mark.parametrize("method", METHODS)
def test_every_option_sets_its_setting(method: str) -> None:
    table = method_options()[method]
    assert parsed("--method", method).settings == {}
    examples = {name: example(about) for name, about in table.items()}
    given = [word for name, (words, _) in examples.items() for word in (name, *words)]
    settings = {table[name]["setting"]: value for name, (_, value) in examples.items()}
    assert parsed("--method", method, *given).settings == settings
    assert len(settings) == len(table)


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        (["--method", "di-kmeans", "--weight-rounds", "2"], {"penalty_rounds": 2}),
        (
            ["--method", "di-kmeans", "--weight_rounds=2", "--weights-per-cluster"],
            {"penalty_rounds": 2, "penalty_per_cluster": True},
        ),
        (["--method", "dti-kmeans", "--backbone", "quick"], {"backbone": "strided"}),
        (["--method", "shape-kmeans", "--variances=round"], {"variances": "isotropic"}),
    ],
)
def test_former_options_are_taken(
    given: list[str], settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert parsed(*given).settings == settings
    assert "the former goes in diffclust 0.3" in capsys.readouterr().err


@pytest.mark.parametrize("method", METHODS)
def test_defaults_are_the_models_own(method: str) -> None:
    model: AbstractModel = MODELS[method].from_settings({"num_clusters": 2})
    settings = json.loads(json.dumps(model.settings()))
    for about in method_options()[method].values():
        assert about["default"] == settings[about["setting"]]
        assert about["help"]
    assert parsed().settings == {}


@pytest.mark.parametrize("method", METHODS)
def test_help_of_a_method_shows_its_options_and_their_defaults(
    method: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    text = help_of(capsys, "fit", "--method", method)
    assert f"{method} options" in text
    for name, about in method_options()[method].items():
        assert f" {name} " in text
        if about["type"] in ("integer", "number") and about["default"] is not None:
            assert f"(default: {about['default']})" in text
    others = {name for table in method_options().values() for name in table}
    assert not [name for name in others - {*method_options()[method]} if f" {name} " in text]


def test_help_shows_what_all_methods_share_and_how_to_see_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in ("fit", "sweep"):
        text = help_of(capsys, command)
        assert "--chunk-size" in text
        assert "--landmarks" not in text
        assert f"'diffclust {command} --method NAME --help' shows its options" in text
    assert "--landmarks" in help_of(capsys, "fit", "--method=di-kmeans")
    assert "--landmarks" in help_of(capsys, "sweep", "--method", "kmeans", "--method", "di-kmeans")


def test_an_option_of_another_method_is_refused_with_those_it_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = "--register, --ground, --canvas, --restarts, --max-passes, --tolerance, --no-split-merge"
    for command in (["fit", "x", "-k", "2"], ["sweep", "x", "-k", "2,3"]):
        words = [*command, "--out", "run", "--method", "kmeans", "--no_unit_norm", "--landmarks=3"]
        assert entry.main(words) == 2
        assert capsys.readouterr().err == (
            "error: kmeans has no option --no-unit-norm, --landmarks; leave it out, or take of its "
            f"own: {own}\n"
        )


@pytest.mark.parametrize(
    "words", [["--help"], ["fit", "--help"], ["fit", "--method", "gmm", "-h"]], ids=" ".join
)
def test_help_is_there_at_once(words: list[str]) -> None:
    code = "import sys; from diffclust.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    start = os.times()
    subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, check=True
    )
    end = os.times()
    seconds = end.children_user + end.children_system - start.children_user - start.children_system
    assert seconds < SLOW * QUICK_ENOUGH


@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="there is no such signal here")
def test_help_that_nobody_reads_on_ends_without_an_error() -> None:
    code = "import sys; from diffclust.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "fit", "--help"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


def test_help_says_numbers_and_no_words_of_python() -> None:
    for table in method_options().values():
        for name, about in table.items():
            assert "None" not in about["help"], name
            if about["default"] is None:
                said = r"not given|the default"
                assert re.search(said, about["help"], re.IGNORECASE), name


def test_what_turns_something_off_says_so() -> None:
    for method, table in method_options().items():
        for name, about in table.items():
            assert name.startswith("--no-") == about["help"].startswith("Turn off "), (
                method,
                name,
            )


def test_help_of_settings_is_no_python(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [about["help"] for table in method_options().values() for about in table.values()]
    assert not [
        text for text in texts if re.search(r"\w+=|\bNone\b|\b[a-z]+_[a-z]+ (is|are|must)", text)
    ]
    text = help_of(capsys, "fit", "--method", "dti-kmeans")
    assert "(default: on)" not in text
    assert "the phases divide --max-steps among them" in text
    assert "turns it off" not in text
