"""The base of every value that leaves the process: frozen, strict, JSON in and out."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Frozen pydantic model; unknown keys are refused, so that a typing error never passes silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_enum_values=False, ser_json_timedelta="float")
