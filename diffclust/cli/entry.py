"""The entry: parses the command line, and turns what is wrong into one line and exit status 2."""

import argparse
import contextlib
import dataclasses
import importlib
import io
import itertools
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from diffclust._signals import signals_deferred
from diffclust._version import __version__
from diffclust.cli import options as cli_options
from diffclust.cli.options import COMMANDS, Options

if TYPE_CHECKING:
    from diffclust.methods import Method


def _choices(match: re.Match[str]) -> str:
    names = sorted({*re.findall("'[^']+'", match[0])} - {"'None'"})
    return f"Choose one of {', '.join(names)}"


def _proposed(match: re.Match[str]) -> str:
    names = dict.fromkeys(re.findall(r"--[a-z][a-z0-9-]*", match[0]))
    return f"Perhaps you meant: {', '.join(names)}"


_PLAIN_MESSAGES = {
    r"Perhaps you meant: .*": _proposed,
    r"invalid literal for int\(\) with base 10: ('.*?')": r"\1 is no integer",
    r"could not convert string to float: ('.*?')": r"\1 is no number",
    r"Expected one of \(.*?\)": _choices,
    r"or misplaced options: Arguments are applied .*? can matter ": "options: ",
    r" \(applied to diffclust( [a-z]+)?\)": "",
    r"Expected 1 values": "Expected 1 value",
}
"""Patterns in messages of the parser, and their replacements."""

_SOURCE_ENDS = {"fit": 1, "sweep": 1, "align": 1, "predict": 2}
"""How many words stand by themselves in each command that ends with its source."""

_DESCRIPTION = (
    "Cluster images, shapes or series that look different only because they were transformed. "
    "--version prints the version."
)


class Terminated(KeyboardInterrupt):
    """SIGTERM, by which schedulers end a job; handled as Ctrl-C is, so that the state is saved."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: Arguments after `diffclust`; None takes those of the command line.

    Returns:
        The exit status: 0, 2 for bad input (one line on stderr says what and what would do), 130
        when interrupted, or 143 when terminated by SIGTERM.

    Raises:
        SystemExit: With status 0, after printing help.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is no reason to fail when all is written.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if argv is None and {"-h", "--help"} & {*arguments} and hasattr(signal, "SIGPIPE"):
        # `diffclust fit --help | head` ends as other programs do, not with an error.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if arguments == ["--version"]:
        print(f"diffclust {__version__}")
        return 0
    try:
        with interruptions(), _plain_warnings():
            options = _parse(arguments)
            # JAX that is half imported breaks all that follows.
            with signals_deferred():
                command = _command(options)
            command(options)
        return 0
    except KeyboardInterrupt as interrupt:
        terminated = isinstance(interrupt, Terminated)
        status, verb = (143, "terminated") if terminated else (130, "interrupted")
        _exit_if_distributed(interrupt, f"{verb}; {interrupt}", status)
        message = f"{verb}; {str(interrupt) or 'nothing was written'}"
    except Exception as error:
        status, message = 2, _explain(error)
        _exit_if_distributed(error, message, status)
        if message is None:
            raise
    print(f"error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    if argv is None:
        # XLA's threads may still be compiling, and crash a process that ends as usual; writes that
        # failed may come back late, with tracebacks.
        with contextlib.suppress(OSError):
            if sys.stdout is not None:  # None where it is closed
                sys.stdout.flush()
        os._exit(status)
    return status


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings as one line without a line of code, as errors are."""
    before = warnings.formatwarning

    def plain(message: Warning | str, category: type[Warning], *where: Any, **line: Any) -> str:
        if issubclass(category, UserWarning):
            return f"warning: {' '.join(str(message).split())}\n"
        return before(message, category, *where, **line)

    warnings.formatwarning = plain
    try:
        yield
    finally:
        warnings.formatwarning = before


def _command(options: Options) -> Callable[[Options], None]:
    """The function that executes the options; its module needs JAX, and help does not."""
    _use_compilation_cache()
    name = next(name for name, kind in COMMANDS.items() if isinstance(options, kind))
    module = "commands" if name in ("fit", "predict", "demo") else name
    return getattr(importlib.import_module(f"diffclust.cli.{module}"), name)


def _exit_if_distributed(error: BaseException, message: str | None, status: int) -> None:
    """Ends this process if others would wait for it."""
    jax = sys.modules.get("jax")
    if jax is not None and jax.distributed.is_initialized():
        from diffclust.cli.distributed import leave

        leave(error, message, status)


def _explain(error: Exception) -> str | None:
    """Returns one line for an error of the input or the machine; None for a bug of diffclust."""
    from diffclust.solvers import FitError

    if isinstance(error, OSError):
        # Of a copy the second one is what could not be written.
        name = error.filename if error.filename2 is None else error.filename2
        where = "" if name is None else f": {str(name)!r}"
        return "; ".join([f"{error.strerror or error}{where}", *getattr(error, "__notes__", ())])
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "there is not enough memory; try a smaller --chunk-size, --limit, --size or --canvas"
    if isinstance(error, ValueError | FitError):
        return str(error)
    return None


def _stands_alone(option: str, flags: set[str]) -> bool:
    """Whether no value of the option is the next word: a flag, `--size=64` or `-k3`."""
    return option in flags or "=" in option or not (option.startswith("--") or len(option) == 2)


def _parse(arguments: list[str]) -> Options:
    """Parses the arguments; raises what tyro would print in a box as a `ValueError`."""
    arguments = cli_options.current_arguments(arguments)
    flags = cli_options.flags()
    for option, value in itertools.pairwise(arguments):
        if option.startswith("--") and option not in flags and value == "None":
            raise ValueError(f"None is no value of {option}; leave it out for its default")
    name = arguments[0] if arguments else ""
    kinds, method = dict(COMMANDS), None
    # What stands by itself, not behind an option.
    words = [
        word
        for before, word in itertools.pairwise(arguments)
        if not word.startswith("-")
        and (not before.startswith("-") or _stands_alone(before.replace("_", "-"), flags))
    ]
    if name in ("fit", "sweep", "align"):
        source = [] if name == "align" else words[:1]
        method = _method_in(arguments, source, kinds[name].method)
        if method is not None:
            cli_options.refuse_foreign_options(method, arguments)
        kinds[name] = cli_options.with_method_options(kinds[name], method)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            config = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
            if name in COMMANDS:
                # By itself, it is not given the options of others where one is misspelt.
                prog, own = f"diffclust {name}", arguments[1:]
                options = tyro.cli(kinds[name], prog=prog, args=own, config=config)
            else:
                options = tyro.extras.subcommand_cli_from_dict(
                    kinds, prog="diffclust", description=_DESCRIPTION, args=arguments, config=config
                )
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
        command = f" {name}" if name in COMMANDS else ""
        more = words[_SOURCE_ENDS.get(name, len(words)) :]
        message = re.sub("^Error parsing", "cannot parse", condense(printed.getvalue()))
        for form, plain in _PLAIN_MESSAGES.items():
            message = re.sub(form, plain, message)
        if more and message.startswith(f"Unrecognized options: {more[0]}"):
            # Such as of photos/*.png, which the shell spells out.
            message = f"SOURCE is one folder, file or name, and {more[0]!r} is another one; give "
            message += "the folder that holds all"
        raise ValueError(f"{message}; see diffclust{command} --help") from None
    if method is not None:
        settings = cli_options.settings_from(method, options.settings)
        options = dataclasses.replace(options, method=method, settings=settings)
    return options


def _method_in(arguments: list[str], source: Sequence[str], default: str) -> str | None:
    """The method whose options are parsed; None where help of no one method is asked for."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--method", nargs="?")
    method = parser.parse_known_args(arguments)[0].method
    if {"-h", "--help"} & {*arguments}:
        if method is None:
            return None
        if method not in cli_options.method_options():
            # The parser would print the help of another.
            known = ", ".join(cli_options.method_options())
            raise ValueError(f"there is no method {method!r}; choose one of {known}")
    if of_table := [m for m in _methods_of_table(source) if method in (None, m.analogue)]:
        return of_table[0].name
    # What is no method at all, tyro refuses.
    return method if method in cli_options.method_options() else default


def _methods_of_table(source: Sequence[str]) -> "list[Method]":
    """The methods for what the source names; none of images."""
    if not source or not source[0].lower().endswith((".npz", ".csv", ".tps", ".tsv", ".ts")):
        return []
    from diffclust.data.landmarks import table_of
    from diffclust.methods import methods_of_table

    held = table_of(Path(source[0]))
    return methods_of_table(held) if held else []


def condense(box: str) -> str:
    """The message of a box such as tyro draws, in one line.

    Args:
        box: Lines in a frame; sections are parted by rules, lists and help texts are indented.

    Returns:
        The message without frame, help texts and the pointer to more of them.
    """
    # Where only ASCII can be printed the frame is blank.
    inside = re.findall(r"^[│| ] (.*?) *[│|]?$", box, re.MULTILINE)
    joined = []
    for section in re.split(r"^[─-]+$", "\n".join(inside), flags=re.MULTILINE):
        # Help texts are indented by eight.
        lines = [x for x in section.splitlines() if x.strip() and not x.startswith(" " * 8)]
        prose = " ".join(line for line in lines if not line.startswith(" ")).rstrip(".")
        listed = ", ".join(line.strip().rstrip(",") for line in lines if line.startswith(" "))
        if lines and not lines[0].startswith(("For full help", "Argument help")):
            joined.append(f"{prose} {listed}".strip())
    return "; ".join(joined) or " ".join(box.split())


def _use_compilation_cache() -> None:
    """Keeps compiled programs in the user's cache folder, so that a second run starts at once."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
        directory = base / "diffclust" / "jax"
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # There is no home, or it is read-only: compile every time.
        return
    if not os.access(directory, os.W_OK):
        return
    import jax

    from diffclust.parallel.exported import keep_programs

    keep_programs(directory)
    jax.config.update("jax_compilation_cache_dir", str(directory))
    # The many small programs together take longer to compile than the few large ones.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@contextlib.contextmanager
def interruptions() -> Iterator[None]:
    """Makes an exception of SIGTERM while the block runs, and sends lost interruptions again.

    Python ignores what a signal raises within a destructor or a callback of the garbage collector,
    of which JAX has one, and only tells `sys.unraisablehook`.

    Yields:
        Nothing.
    """

    def stop(number: int, frame: Any) -> None:
        del frame
        # A second signal is ignored: what is being saved shall be whole.
        signal.signal(number, signal.SIG_IGN)
        raise Terminated

    def send_again(lost: Any) -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            hook(lost)
            return
        number = signal.SIGINT
        if isinstance(lost.exc_value, Terminated):
            number = signal.SIGTERM
            signal.signal(number, stop)
        # Not from within the hook, where it would be lost again.
        threading.Timer(0.1, signal.raise_signal, [number]).start()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    hook, sys.unraisablehook = sys.unraisablehook, send_again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
