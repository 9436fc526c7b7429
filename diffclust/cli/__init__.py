"""The command line: `diffclust fit`, `diffclust predict` and `diffclust demo`.

Options are declared in `options`, done in `commands`; `entry` turns errors into one line each. You
need it only to call a command from Python, as `main(["fit", ...])`.
"""

from diffclust.cli.entry import main

__all__ = ["main"]
