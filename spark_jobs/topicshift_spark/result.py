"""The one JSON result of a job, written atomically, and the exit code that goes with it.

The verdict is the file, never the exit code alone: a job that dies leaves no file, or the one of an earlier try at
another path, and never half of one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from topicshift.core.errors import SpecError, TopicshiftError


def local_path(where: str) -> Path:
    """A plain path or a ``file:`` URL as a path of the driver's machine.

    Raises ``SpecError`` for any other scheme: the driver writes to a folder, the evidence store takes it from there.
    """
    if not where.strip():
        raise SpecError("The output is an empty name. Give a folder; the working directory is written as a dot.")
    parsed = urlparse(where)
    if parsed.scheme in ("", "file"):
        return Path(unquote(parsed.path) if parsed.scheme else where).expanduser()
    raise SpecError(
        f"The output {where!r} is a {parsed.scheme} URL. The driver writes its result to a local folder, so that the "
        "write is atomic. Give a folder, and copy the result from there."
    )


def prepare_folder(where: str) -> Path:
    """Make the output folder and prove that it can be written, before any work is done.

    Raises ``SpecError`` with the reason otherwise.
    """
    folder = local_path(where)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SpecError(
            f"The output folder {folder} cannot be written ({error.strerror}). Without it there is no result. "
            "Give a folder that this user may create and write."
        ) from error
    return folder


def first_cause(failure: BaseException) -> str:
    """What went wrong, without the stack of every task: what a Python worker raised, else the JVM's last cause."""
    _, traced, rest = str(failure).rpartition("Traceback (most recent call last):\n")
    raised = [line for line in rest.splitlines() if line.strip() and not line[0].isspace()]
    if traced and raised:
        return raised[0].strip()[:500]
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # Py4J begins with the name of the method that it called, which tells nobody anything.
    lines = [line.removeprefix(": ") for line in lines if not line.startswith("An error occurred while calling")]
    return (causes[-1] if causes else lines[0] if lines else type(failure).__name__)[:500]


def run(main: Callable[[Sequence[str]], int]) -> None:
    """Run a job's ``main(arguments)`` and end the process with its code: 0, or the code of the error's type.

    Anything unforeseen is 4 (unknown), with its cause on stderr and the traceback behind
    ``TOPICSHIFT_DEBUG=1``: an answer that could not be computed is never a yes.
    """
    try:
        code = main(sys.argv[1:])
    except TopicshiftError as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        print("error: interrupted; no result was written", file=sys.stderr)
        code = 4
    except Exception as error:  # noqa: BLE001 - the boundary of the process
        if os.environ.get("TOPICSHIFT_DEBUG"):
            traceback.print_exc()
        print(f"error: {type(error).__name__}: {first_cause(error)}", file=sys.stderr)
        code = 4
    sys.stdout.flush()
    sys.exit(code)
