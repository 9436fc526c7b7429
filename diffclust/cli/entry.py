"""The entry: parses the command line, and turns what is wrong into one line and exit status 2."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from diffclust.cli.options import Demo, Fit, Predict
from diffclust.cli.run_options import Compare, Export, Sweep
from diffclust.cli.termination import Terminated, termination_raises

COMMANDS = {
    "fit": Fit,
    "predict": Predict,
    "compare": Compare,
    "sweep": Sweep,
    "export": Export,
    "demo": Demo,
}

_BAD_INPUT, _INTERRUPTED, _TERMINATED = 2, 130, 143

Command = (
    Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Predict, tyro.conf.subcommand("predict")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
)

Given = Fit | Predict | Compare | Sweep | Export | Demo
"""What a command was told."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: What stands after `diffclust` on the command line; None takes it from there.

    Returns:
        The exit status: 0, 2 for bad input (one line on stderr says what and what would do), 130
        when interrupted, or 143 when terminated by SIGTERM.

    Raises:
        SystemExit: With status 0, after printing help.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        command = _parse(arguments)
        _use_compilation_cache()
        with termination_raises():
            _run(command)
    except KeyboardInterrupt as interrupt:
        is_term = isinstance(interrupt, Terminated)
        status = _TERMINATED if is_term else _INTERRUPTED
        did = "terminated" if is_term else "interrupted"
        _leave_others(interrupt, f"{did}; {interrupt}", status)
        return _refuse(f"{did}; {str(interrupt) or 'nothing was written'}", status)
    except Exception as error:
        message = _explain(error)
        _leave_others(error, message, _BAD_INPUT)
        if message is None:
            raise
        return _refuse(message)
    return 0


def _run(command: Given) -> None:
    # They need JAX, and help does not.
    from diffclust.cli.commands import demo, fit, predict
    from diffclust.cli.compare import compare
    from diffclust.cli.export import export
    from diffclust.cli.sweep import sweep

    if isinstance(command, Fit) and command.sharing.several:
        from diffclust.cli.several import fit_together

        fit_together(command)
    elif isinstance(command, Fit):
        fit(command)
    elif isinstance(command, Predict):
        predict(command)
    elif isinstance(command, Compare):
        compare(command)
    elif isinstance(command, Sweep):
        sweep(command)
    elif isinstance(command, Export):
        export(command)
    else:
        demo(command)


def _leave_others(error: BaseException, message: str | None, status: int) -> None:
    """Ends the process, where it is one of several that would wait for it."""
    jax = sys.modules.get("jax")
    if jax is not None and jax.distributed.is_initialized():
        from diffclust.cli.several import leave

        leave(error, message, status)


def _refuse(message: str, status: int = _BAD_INPUT) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return status


def _explain(error: Exception) -> str | None:
    """One line for an error that is the input's or the machine's; None for one that is ours."""
    from diffclust.solvers import FitError

    if isinstance(error, OSError):
        where = "" if error.filename is None else f": {str(error.filename)!r}"
        return f"{error.strerror or error}{where}"
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "there is not enough memory; try a smaller --chunk-size, --limit or --size"
    if isinstance(error, ValueError | FitError):
        return str(error)
    return None


def _parse(arguments: list[str]) -> Given:
    """Parses, with what tyro would print in a box as the message of an error."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return tyro.cli(
                Command,
                prog="diffclust",
                description="Cluster images that look different only because they were moved.",
                args=arguments,
                config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
            )
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
        command = f" {arguments[0]}" if arguments and arguments[0] in COMMANDS else ""
        message = re.sub("^Error parsing", "cannot parse", condense(printed.getvalue()))
        raise ValueError(f"{message}; see diffclust{command} --help") from None


def condense(box: str) -> str:
    """The message of a box such as tyro draws, in one line.

    Args:
        box: Lines in a frame; sections are parted by rules, lists and help texts are indented.

    Returns:
        The message without frame, help texts and the pointer to more of them.
    """
    sections: list[list[str]] = [[]]
    for line in box.splitlines():
        inside = re.fullmatch(r"[│|] (.*?)\s*[│|]", line)
        if inside is None:
            continue
        text = inside[1]
        if re.fullmatch(r"[─-]+", text):
            sections.append([])
        elif text.strip() and not text.startswith(" " * 8):
            sections[-1].append(text)
    kept = [s for s in sections if s and not s[0].startswith(("For full help", "Argument help"))]
    joined = []
    for section in kept:
        prose = " ".join(line for line in section if not line.startswith(" ")).rstrip(".")
        listed = ", ".join(line.strip() for line in section if line.startswith(" "))
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

    jax.config.update("jax_compilation_cache_dir", str(directory))
    # The many small programs together take longer to compile than the few large ones.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
