"""Triggers: waits in the triggerer that hold no worker."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from airflow.triggers.base import BaseTrigger


@dataclass(kw_only=True, eq=False, repr=False)
class Trigger(BaseTrigger):
    """A trigger whose fields are its arguments: small plain values, none of them a secret."""

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments."""
        arguments = {f.name: getattr(self, f.name) for f in fields(self)}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments
