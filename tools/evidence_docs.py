"""``docs/evidence.md``: the files that a run leaves, and the fields of each from the model that writes it."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

from topicshift.core.base import Model
from topicshift.core.drain.certificate import DrainCertificate
from topicshift.core.drain.strays import Strays
from topicshift.core.fence.record import FenceRecord
from topicshift.core.health import Health
from topicshift.core.impact.report import Impact
from topicshift.core.plan.model import Plan
from topicshift.core.proof.bundle import Manifest
from topicshift.core.proof.order import OrderProof
from topicshift.core.proof.verification import DrainVerification
from topicshift.core.spec.model import Spec

MODELS: dict[str, type[Model]] = {
    "plan.json": Plan,
    "impact.json": Impact,
    "fence.json": FenceRecord,
    "drain_certificate.json": DrainCertificate,
    "drain_verification.json": DrainVerification,
    "order_proof.json": OrderProof,
    "strays.json": Strays,
    "health.json": Health,
    "manifest.json": Manifest,
}
ELSEWHERE: dict[type[Model], str] = {Spec: "[spec](spec.md)"}
_NAMES = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "any JSON", object: "any JSON"}


def fields_of_evidence() -> Iterator[str]:
    """A section for each file, with its fields and those of the blocks in it; a block is told once."""
    told: set[type[Model]] = set(ELSEWHERE)
    for file, model in MODELS.items():
        yield from ("", f"## `{file}`", "", _words(model))
        yield from _table(model)
        for block in _blocks(model, told):
            yield from ("", f"### {block.__name__}", "", _words(block))
            yield from _table(block)


def _words(model: type[Model]) -> str:
    text = " ".join((model.__doc__ or "").split())
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text).replace("``", "`").replace("|", "\\|")


def _table(model: type[Model]) -> Iterator[str]:
    described = any(field.description for field in model.model_fields.values())
    yield ""
    yield "| field | type | meaning |" if described else "| field | type |"
    yield "|---|---|---|" if described else "|---|---|"
    for name, field in model.model_fields.items():
        meaning = f" {' '.join((field.description or '').split())} |" if described else ""
        yield f"| `{field.serialization_alias or field.alias or name}` | {_type(field.annotation)} |{meaning}"


def _blocks(model: type[Model], told: set[type[Model]]) -> Iterator[type[Model]]:
    for field in model.model_fields.values():
        for block in _models(field.annotation):
            if block not in told:
                told.add(block)
                yield block
                yield from _blocks(block, told)


def _models(annotation: Any) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for arg in typing.get_args(annotation):
        yield from _models(arg)


def _type(annotation: Any) -> str:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(args[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys("null" if a is type(None) else _type(a) for a in args))
    if origin is typing.Literal:
        return " or ".join(f"`{a}`" for a in args)
    if origin is tuple:
        return "list of " + " and ".join(dict.fromkeys(_type(a) for a in args if a is not Ellipsis))
    if isinstance(origin, type) and args:
        inner = _type(args[-1])
        return f"{inner} by {_type(args[0])}" if len(args) == 2 else f"list of {inner}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{m.value}`" for m in annotation)
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return ELSEWHERE.get(annotation, f"[{annotation.__name__}](#{annotation.__name__.lower()})")
    return _NAMES.get(annotation, getattr(annotation, "__name__", str(annotation)))
