"""Makes the product's values cheaper to build, in the processes of a campaign: each run builds hundred thousands.

A frozen dataclass sets every field by a call of ``object.__setattr__``. Here they are built as ordinary dataclasses
are. Nothing else of them changes; that nobody assigns to them is held by the type checker, and by every test that runs
seeds in its own process.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

_NAMES: dict[type, tuple[str, ...]] = {}
"""The fields of each class that is built like this."""


def thaw(package: str = "topicshift") -> tuple[type, ...]:
    """Give the frozen dataclasses of a package that were imported the ``__init__`` of ordinary ones; which those are.

    ``replace`` of their modules looks up their fields once.
    """
    modules = [m for name, m in list(sys.modules.items()) if name == package or name.startswith(f"{package}.")]
    for module in modules:
        for each in [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]:
            if _fits(each):
                _thaw(each)
        if vars(module).get("replace") is dataclasses.replace:
            vars(module)["replace"] = _replace
    return tuple(_NAMES)


def _fits(made: type) -> bool:
    """Whether it is a frozen dataclass of nothing but plain fields, built by the ``__init__`` that it was given."""
    params, fields = (made.__dict__.get(f"__dataclass_{name}__") for name in ("params", "fields"))
    if params is None or not params.frozen or not params.init or "__setattr__" not in made.__dict__:
        return False
    return all(f.init and f._field_type is dataclasses._FIELD for f in fields.values())  # type: ignore[attr-defined]


def _thaw(made: Any) -> None:
    fields = dataclasses.fields(made)
    like = [
        (f.name, f.type, dataclasses.field(default=f.default, default_factory=f.default_factory, kw_only=f.kw_only))
        for f in fields
    ]
    after = {"__post_init__": made.__post_init__} if hasattr(made, "__post_init__") else {}
    made.__init__ = dataclasses.make_dataclass(made.__name__, like, namespace=after).__init__
    del made.__setattr__, made.__delattr__
    _NAMES[made] = tuple(f.name for f in fields)


def _replace(value: Any, /, **changes: Any) -> Any:
    """As ``dataclasses.replace``."""
    names = _NAMES.get(type(value))
    if names is None:
        return dataclasses.replace(value, **changes)
    for name in names:
        if name not in changes:
            changes[name] = getattr(value, name)
    return type(value)(**changes)
