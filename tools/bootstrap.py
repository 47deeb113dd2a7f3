"""Set up the work tree (``make setup``): the virtual environment, the pinned packages and the jars.

This file only looks at the Python that runs it, in words that any Python can parse; the work is in setup_steps.
"""

# ruff: noqa: UP030, UP032
import os
import sys

if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.stderr.write(
        "setup: Python {0}.{1} ({2}) cannot run this project, which needs Python 3.11, 3.12 or 3.13. "
        "Install one of them, or name it: make setup PYTHON=/path/to/python3.12\n".format(
            sys.version_info[0], sys.version_info[1], sys.executable
        )
    )
    sys.exit(2)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

from setup_steps import main

if __name__ == "__main__":
    sys.exit(main())
