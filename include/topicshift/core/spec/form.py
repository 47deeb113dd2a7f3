"""The trigger form, derived from the spec model: flat fields with help texts, sections and safe defaults.

Airflow renders a flat list of fields, so a nested block becomes fields with its name in front
(``approvals.plan`` -> ``approvals_plan``); lists of objects stay lists, which Airflow shows as a JSON editor. A form is
filled in one of two ways: choose a spec file, or fill in the fields. Doing both is an error that says so.

A list of objects is a field of plain text: Airflow's JSON editor closes every bracket that is typed, so that what a
person adds to its ``[]`` keeps a stray one. The text is the list as YAML or JSON, or one name a line; a REST call may
send the list itself.

Airflow opens one section only, the one of the fields that name no section. So these are the chooser and what every
migration needs (the fields without a default, and the target); everything else has a safe default and stands in the
model's sections below, which are closed.

A field's schema holds its type and its choices, and of a number its least and its greatest value: Airflow's page puts
the nearest one into a field that is left with another, and its API refuses another one by name. The page does that
without a word, so the help text says it; without the bounds, 0 and 10^12 would pass the form. It holds no other rule
that a typed value could break (pattern, the shape of an item): of those Airflow's page says "Bad Request" and no
more. The spec's own check, in the first task, names the field, the reason and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topicshift.core.base import Model
from topicshift.core.errors import NotFound, Unreadable
from topicshift.core.spec.fields import did_you_mean
from topicshift.core.spec.io import InvalidSpec, SpecProblem, load_spec, read_yaml, spec_from_params, spec_paths
from topicshift.core.spec.model import Sizing, Spec

SPEC_FILE = "spec_file"
_OPTIONS = "Options: "
_NEEDED = ("source", "target", "partitions", "producers", "consumers")
"""Top-level fields in the open section, in this order: those without a default, and the target beside its source."""
_OF_NAME = {"producers": ("name",), "consumers": ("name", "group")}
"""Lists whose entries may be written as a name alone, and the fields that it fills."""
_PREFIX = {"partitions": "sizing"}
"""The field that holds a block or a number keeps its name for the number; the block's fields get this prefix."""
_CODE = re.compile("`([^`]+)`")
"""Code in a help text is set bold in the form: Airflow's box around code covers the line above it."""
_KEEP = ("type", "enum", "minimum", "maximum")
_REPLACED = "Airflow's form puts the nearest one in the place of another: look at the field again."
"""Its number field is told the bounds, and does so without a word when the field is left."""


@dataclass(frozen=True)
class FormField:
    """One field of the form. ``path`` is its place in the spec, () for ``spec_file``.

    ``schema`` is what Airflow's ``Param`` takes: JSON Schema with ``title``, ``description_md`` and, unless the field
    is one that every migration needs, ``section``.
    """

    name: str
    path: tuple[str, ...]
    default: Any
    schema: dict[str, Any]


def spec_files(folder: str | Path) -> list[str]:
    """The names of the spec files in a folder that a form can offer, sorted.

    A name that is no UTF-8, or a file that cannot be looked at, is left out: one such name in a choice would take the
    whole DAG away; ``topicshift lint`` and a DAG of its own say what is wrong with it. Raises ``Unreadable`` for a
    folder that cannot be listed.
    """
    return [p.name for p in spec_paths(folder) if _offered(p)]


def _offered(path: Path) -> bool:
    try:
        path.name.encode()
        return path.is_file()
    except (OSError, UnicodeEncodeError):
        return False


def form_fields(folder: str | Path) -> dict[str, dict[str, Any]]:
    """The form as ``{name: {"default": ..., "schema": {...}}}``: the open section, then the others in order.

    ``Param(field["default"], **field["schema"])`` is one field. ``folder`` holds the spec files to choose from.
    """
    files: list[str] = []
    unlisted = ""
    try:
        files = spec_files(folder)
    except Unreadable as error:
        unlisted = f" **{error}**"
    chooser: dict[str, Any] = {
        "type": ["string", "null"],
        "enum": [None, *files],
        "values_display": {"null": "(none: fill in the fields)"},
        "title": "Spec file",
        "description_md": "Choose one file, one migration, and leave every other field as it is. Or leave this, and "
        "fill in what follows; the closed sections below hold safe defaults." + unlisted,
    }
    out = {SPEC_FILE: {"default": None, "schema": chooser}}
    out.update({f.name: {"default": f.default, "schema": f.schema} for f in spec_fields()})
    return out


def spec_fields() -> list[FormField]:
    """The fields that come from the spec model."""
    fields = [f for f in _flatten(Spec, (), "") if f.path != ("apiVersion",)]
    order: list[str] = list(dict.fromkeys(str(f.schema.get("section")) for f in fields if "section" in f.schema))

    def place(f: FormField) -> tuple[int, int]:
        section = f.schema.get("section")
        return (0, _NEEDED.index(f.name)) if section is None else (1, order.index(section))

    return sorted(fields, key=place)


def spec_from_form(params: Mapping[str, Any], folder: str | Path) -> Spec:
    """The spec that a form (or a REST call's ``conf``) asks for.

    A field that is empty or left at its default is not filled in. Keys that the form does not have are read as keys of
    a spec, so that nested values work too and a misspelt one is refused with a suggestion.

    Raises ``InvalidSpec`` when both ways or none are filled in, and for anything wrong with the spec; ``NotFound`` for
    a file that is not in ``folder``.
    """
    fields = {f.name: f for f in spec_fields()}
    values = {k: v for k, v in params.items() if k != SPEC_FILE and v not in (None, "")}
    filled = {k: v for k, v in values.items() if k not in fields or v not in (fields[k].default, [])}
    file = params.get(SPEC_FILE) or None
    if file is not None:
        if filled:
            raise InvalidSpec(
                "the form",
                [
                    SpecProblem(
                        SPEC_FILE,
                        None,
                        f"{file!r} is chosen, and {', '.join(sorted(filled))} {'is' if len(filled) == 1 else 'are'} "
                        "filled in as well",
                        "Two sources for one migration: the file would win, and what is filled in would be ignored.",
                        "Empty these fields, or choose no file.",
                    )
                ],
            )
        return _from_file(str(file), Path(folder))
    if not filled:
        raise InvalidSpec(
            "the form",
            [
                SpecProblem(
                    SPEC_FILE,
                    None,
                    "no file is chosen and no field is filled in",
                    "There is nothing to migrate.",
                    "Choose a spec file, or fill in at least source, partitions, producers and consumers.",
                )
            ],
        )
    lists = {f.name for f in fields.values() if f.schema.get("format") == "multiline"}
    for name in lists & filled.keys():
        if isinstance(values[name], str):
            values[name] = read_list(name, values[name])
    data: dict[str, Any] = {}
    sized = [k for k, f in fields.items() if k in filled and f.path[0] == "partitions" and len(f.path) > 1]
    if sized and "partitions" in filled:
        raise InvalidSpec(
            "the form",
            [
                SpecProblem(
                    "partitions",
                    None,
                    f"a number is given, and {', '.join(sized)} as well",
                    "The count would be decided twice.",
                    "Give the number, or the rates from which it is worked out.",
                )
            ],
        )
    for name, value in values.items():
        field = fields.get(name)
        if field is None:
            data[name] = value
        elif name in filled or (field.path[0] == "partitions" and sized):
            _put(data, field.path, value)
    return spec_from_params(data)


def read_list(name: str, text: str) -> list[Any]:
    """What a person wrote into the field of a list: YAML, JSON, or one name a line. Raises ``InvalidSpec``."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and name in _OF_NAME and not any(line[0] in "[{-" or ": " in line or line.endswith(":") for line in lines):
        return [dict.fromkeys(_OF_NAME[name], line) for line in lines]
    data, _, problems = read_yaml(text, name)
    if data is None:
        return []
    if not problems and isinstance(data, list):
        return data
    if problems:
        raise InvalidSpec(name, problems)
    ways = "one name a line, or " if name in _OF_NAME else ""
    raise InvalidSpec(
        "the form",
        [
            SpecProblem(
                name,
                None,
                "this is no list",
                "Who is meant cannot be told.",
                f"Write {ways}a YAML or JSON list such as the example of the field.",
            )
        ],
    )


def _from_file(name: str, folder: Path) -> Spec:
    known = spec_files(folder)
    if name not in known:
        raise NotFound(
            f"The spec file {name!r} is not in the folder of the specs. "
            + (did_you_mean(name, known) if known else "The folder is empty; fill in the fields.")
        )
    return load_spec(folder / name)


def _put(data: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        inner = data.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        data = inner
    data.setdefault(path[-1], value)


# ------------------------------------------------------------------------------------------------ the model, flat


def _flatten(model: type[Model], path: tuple[str, ...], section: str, prefix: str = "") -> Iterator[FormField]:
    schema = model.model_json_schema(mode="validation")
    for name, info in model.model_fields.items():
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        if extra.get("form") is False:
            continue
        where = str(extra.get("section") or section)
        inner = info.annotation
        if isinstance(inner, type) and issubclass(inner, Model):
            yield from _flatten(inner, (*path, name), where, f"{prefix}{name}_")
            continue
        own = _resolve(schema["properties"][name], schema.get("$defs", {}))
        default = None if own.get("type") == "array" else own.get("default")
        needed = not path and name in _NEEDED
        yield FormField(prefix + name, (*path, name), default, _param(own, name, None if needed else where))
        if name in _PREFIX:
            yield from _optional(_flatten(Sizing, (*path, name), where, f"{_PREFIX[name]}_"))


def _optional(fields: Iterator[FormField]) -> Iterator[FormField]:
    for f in fields:
        yield FormField(f.name, f.path, f.default, {**f.schema, "type": _nullable(f.schema["type"])})


def _nullable(kind: Any) -> list[str]:
    kinds = [kind] if isinstance(kind, str) else list(kind)
    return [*kinds, "null"] if "null" not in kinds else kinds


def _resolve(node: Any, defs: Mapping[str, Any]) -> Any:
    """The schema without references, and with a choice between a value and null (or a block) made plain."""
    if isinstance(node, list):
        return [_resolve(n, defs) for n in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = _resolve(defs[node["$ref"].rpartition("/")[2]], defs)
        return {**target, **{k: _resolve(v, defs) for k, v in node.items() if k != "$ref"}}
    out = {k: _resolve(v, defs) for k, v in node.items()}
    for choice in ("anyOf", "oneOf"):
        if choice in out:
            options = out.pop(choice)
            plain = next(o for o in options if o.get("type") not in ("null", "object"))
            out = {**plain, **out}
            if any(o.get("type") == "null" for o in options):
                out["type"] = _nullable(out.get("type", "string"))
    if "const" in out:
        out["enum"] = [out.pop("const")]
    return out


def _param(own: Mapping[str, Any], name: str, section: str | None) -> dict[str, Any]:
    """The part of a schema that Airflow's form understands. ``section`` None: the one that is open."""
    out = {k: own[k] for k in _KEEP if k in own}
    required = "default" not in own
    if out.get("type") == "array":
        # The first type and the format make it plain text; without examples Airflow would show a choice of types.
        out |= {"type": ["string", "array", "null"], "format": "multiline", "items": {"type": "object"}, "examples": []}
    elif required or "null" in out.get("type", ()):
        out["type"] = _nullable(out.get("type", "string"))
    if "enum" in out and "null" in out["type"] and None not in out["enum"]:
        out["enum"] = [None, *out["enum"]]
    if own.get("exclusiveMinimum") is not None:
        out["minimum"] = own["exclusiveMinimum"]
    help_text = str(own.get("form_help") or own.get("description", "")).strip()
    help_text += _bounds(out)
    examples = own.get("examples")
    if examples:
        help_text += f" Example: `{_example(examples[0])}`"
    if out.get("format") == "multiline" and name in _OF_NAME:
        help_text += f" Or one name a line{', which is the name of its group as well' if name == 'consumers' else ''}."
    out["title"] = own.get("title") or name.replace("_", " ").capitalize()
    out["description_md"] = _CODE.sub(r"**\1**", help_text)
    if section is not None:
        out["section"] = _OPTIONS + section
    return out


def _bounds(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is None and most is None:
        return ""
    both = (
        f"{least:,} to {most:,}"
        if None not in (least, most)
        else f"{least:,} or more"
        if most is None
        else f"{most:,} or less"
    )
    return f" A number: {both}. {_REPLACED}"


def _example(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)
