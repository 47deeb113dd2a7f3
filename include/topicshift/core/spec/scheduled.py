"""The scheduled DAG of a spec file: its name, and why a file gets none. The DAGs and ``topicshift lint`` go by it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from topicshift.core.errors import SpecError
from topicshift.core.spec.io import load_spec
from topicshift.core.spec.model import Spec

SCHEDULED = "topic_migration__"
"""What stands before the name of a spec file in the name of its DAG."""

_PLAIN_NAME = re.compile(r"[\w.-]{1,200}")
_ODD = re.compile(r"[^\w.-]")


def dag_id(path: Path) -> str:
    """The DAG of a spec file. A name that Airflow does not take as a part of one gets an id that no good name has."""
    if _PLAIN_NAME.fullmatch(path.stem):
        return f"{SCHEDULED}{path.stem}"
    mark = hashlib.sha256(os.fsencode(path.stem)).hexdigest()[:12]
    return f"{SCHEDULED}{re.sub(_ODD, '_', path.stem)[:100]}__{mark}"


def shown(path: Path) -> str:
    """The name of a file, also one that is not UTF-8, in quotation marks."""
    return f"'{os.fsencode(path.name).decode('utf-8', 'backslashreplace')}'"


def scheduled(files: Sequence[Path]) -> Spec | None:
    """The spec that is scheduled out of the files that share one :func:`dag_id`; None if none of them has a window.

    Raises ``SpecError`` or ``NotFound`` for a file that is wrong, for two files of one DAG, and for a name that is no
    part of a DAG's.
    """
    specs = [load_spec(path) for path in files]
    if all(spec.window is None for spec in specs):
        return None
    if len(files) > 1:
        raise SpecError(
            f"{' and '.join(map(shown, files))} would both be the DAG {dag_id(files[0])}, and neither is preferred. "
            "Rename one of them."
        )
    if not _PLAIN_NAME.fullmatch(files[0].stem):
        raise SpecError(
            f"{shown(files[0])} has a window, and its name would be a part of its DAG's. Rename it: letters, digits, "
            "'.', '_' and '-', at most 200 of them."
        )
    return specs[0]
