"""The command line: `fit`, `predict`, `compare`, `sweep`, `align`, `export`, `review` and `demo`.

Options are declared in `options`, those of methods in `options.json`; `commands` and the modules of
the other commands do the work; `entry` turns errors into one line each. You need it only to call
a command from Python, as `main(["fit", ...])`.
"""

from diffclust.cli.entry import main

__all__ = ["main"]
