"""`python -m diffclust` is the command line."""

import sys

from diffclust.cli import main

if __name__ == "__main__":
    sys.exit(main())
