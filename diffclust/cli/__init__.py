"""The command line: `diffclust fit`, `predict`, `compare`, `sweep`, `export` and `demo`.

Options are declared in `options` and `run_options`, done in `commands`, `compare`, `sweep` and
`export`; `entry` turns errors into one line each. You need it only to call a command from Python,
as `main(["fit", ...])`.
"""

from diffclust.cli.entry import main

__all__ = ["main"]
