"""The command line: `diffclust fit`, `predict`, `compare`, `sweep`, `export` and `demo`.

Options are declared in `options`, those of methods in `options.json`; `commands`, `compare`,
`sweep` and `export` do the work; `entry` turns errors into one line each. You need it only to call
a command from Python, as `main(["fit", ...])`.
"""

from diffclust.cli.entry import main

__all__ = ["main"]
