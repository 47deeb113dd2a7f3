"""Reading specs: YAML or form values in, one checked :class:`~topicshift.core.spec.model.Spec` out.

Every problem is reported at once, in one :class:`InvalidSpec`, each with its place (line and field), what was seen,
why it matters and what to do. YAML is read as people mean it: ``on``, ``yes`` and ``1:30`` stay text, a key that is
written twice is refused.
"""

from __future__ import annotations

import json
import os
import re
import stat
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from topicshift.core.errors import NotFound, SpecError, Unreadable
from topicshift.core.sizing.sizing import MOST, TOO_MANY
from topicshift.core.spec.duration import format_duration
from topicshift.core.spec.fields import did_you_mean
from topicshift.core.spec.model import Spec

Loc = tuple[str | int, ...]
M = TypeVar("M", bound=BaseModel)

_MAX_BYTES = 1_000_000
_MAX_NODES, _MAX_DEPTH = 20_000, 50
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_PLACEHOLDER: dict[str, Any] = {
    "source": "topicshift-placeholder",
    "partitions": 1,
    "producers": [{"name": "topicshift-placeholder"}],
    "consumers": [{"name": "topicshift-placeholder", "group": "topicshift-placeholder"}],
}


@dataclass(frozen=True)
class SpecProblem:
    """One thing wrong with a spec: ``path`` such as ``consumers[0].group`` ('' for the whole), ``line`` from 1."""

    path: str
    line: int | None
    seen: str
    why: str
    do: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        field = f"{self.path}: " if self.path else ""
        return f"{where}{field}{self.seen}. {self.why} {self.do}"


class InvalidSpec(SpecError):
    """A spec with its problems; the message lists all of them."""

    def __init__(self, place: str, problems: Sequence[SpecProblem]) -> None:
        self.place = place
        self.problems = tuple(problems)
        n = len(self.problems)
        head = f"{place}: {n} problem{'' if n == 1 else 's'}; nothing was changed."
        super().__init__("\n".join([head, *(f"  - {p}" for p in self.problems)]))


def spec_paths(folder: str | Path) -> list[Path]:
    """Everything in a folder that is named like a spec file, sorted; a folder that is not there holds none.

    Also what cannot be read as one (a folder ``d.yaml``, a link to nothing), so that it is named and not passed over.
    Hidden names are editors' and file systems' own. Raises ``Unreadable`` for a folder that cannot be listed.
    """
    try:
        found = list(Path(folder).iterdir())
    except FileNotFoundError:
        return []
    except OSError as err:
        raise Unreadable(
            f"The folder of the specs, {folder}, cannot be listed ({err.strerror}), so no spec in it is known. "
            "Check TOPICSHIFT_SPECS and the rights of the folder."
        ) from None
    return sorted(p for p in found if p.suffix.lower() in (".yaml", ".yml") and not p.name.startswith("."))


def load_spec(path: str | Path) -> Spec:
    """Read one spec file. Raises ``NotFound`` when there is none, ``InvalidSpec`` when it is wrong."""
    try:
        text = _bytes(Path(path), str(path)).decode("utf-8")
    except FileNotFoundError:
        if Path(path).is_symlink():
            raise NotFound(f"{path}: this is a link to nothing. Remove it, or let it lead to a spec.") from None
        raise NotFound(
            f"{path}: there is no such file. Name a spec, such as include/migrations/payments.yaml."
        ) from None
    except UnicodeDecodeError as err:
        raise InvalidSpec(
            str(path),
            [_whole(f"the file is not UTF-8 text (byte {err.start})", "It cannot be read.", "Save it as UTF-8.")],
        ) from None
    except OSError as err:
        raise NotFound(f"{path}: the file cannot be read ({err.strerror}). Check its rights.") from None
    return parse_spec(text, str(path))


def _bytes(file: Path, place: str) -> bytes:
    """What a regular file holds: to read a pipe or a device might never end."""
    _require_file(file.stat().st_mode, place)
    # Without O_NONBLOCK, to open what has become a pipe meanwhile would wait for somebody who writes to it.
    with open(file, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK), buffering=0) as opened:
        _require_file(os.fstat(opened.fileno()).st_mode, place)
        data = b""
        while len(data) <= _MAX_BYTES and (more := opened.read(_MAX_BYTES + 1 - len(data))):
            data += more
    if len(data) > _MAX_BYTES:
        raise InvalidSpec(place, [_whole("the file is over 1 MB", "A spec is a page.", "Check the path.")])
    return data


def _require_file(mode: int, place: str) -> None:
    if not stat.S_ISREG(mode):
        kind = next((word for test, word in _KINDS if test(mode)), "something else")
        raise NotFound(f"{place}: this is {kind}, not a file that can be read. Name a spec file, or remove it.")


def parse_spec(text: str, place: str = "spec") -> Spec:
    """Turn YAML text into a spec. ``place`` names it in errors. Raises ``InvalidSpec``."""
    data, lines, problems = read_yaml(text, place)
    if data is None:
        raise InvalidSpec(
            place, [_whole("it is empty", "There is nothing to migrate.", "Write source, partitions, ...")]
        )
    return _checked(data, place, lines, problems)


def parse_model(text: str, place: str, model: type[M]) -> M:
    """Turn YAML text into another strict model, with errors as those of a spec. Raises ``InvalidSpec``."""
    data, lines, problems = read_yaml(text, place)
    if not isinstance(data, dict):
        seen = "it is empty" if data is None else f"it holds a {_kind_of(data)}, not fields"
        raise InvalidSpec(place, [_whole(seen, "It says nothing.", f"Write {', '.join(model.model_fields)}.")])
    try:
        made = model.model_validate_json(json.dumps(data), strict=True)
    except (TypeError, ValueError) as err:
        found = err.errors(include_url=False) if isinstance(err, ValidationError) else []
        problems += [p for e in found for p in _explain(e, lines, model)] or [_whole(str(err), "", "Use plain values.")]
        made = None
    if problems or made is None:
        raise InvalidSpec(place, sorted(set(problems), key=lambda p: (p.line or 0, p.path, p.seen)))
    return made


def read_yaml(text: str, place: str) -> tuple[Any, dict[Loc, int], list[SpecProblem]]:
    """YAML as JSON values (None for an empty text), the line of each, and keys that are written twice.

    Raises ``InvalidSpec`` for what is no YAML.
    """
    lines: dict[Loc, int] = {}
    problems: list[SpecProblem] = []
    try:
        node = yaml.compose(text, Loader=_Loader)
        return (None if node is None else _plain(node, (), lines, problems, [])), lines, problems
    except (yaml.YAMLError, RecursionError) as err:
        raise InvalidSpec(place, [_yaml_problem(err)]) from None


def spec_from_params(params: Mapping[str, Any]) -> Spec:
    """Turn nested plain values (a REST call's ``conf``, a journalled spec) into a spec. Raises ``InvalidSpec``.

    The flat fields of the trigger form go through :func:`topicshift.core.spec.form.spec_from_form` first.
    """
    return _checked(dict(params), "the form", {}, [])


# ------------------------------------------------------------------------------------------------ YAML

_TOO_DEEP = f"it is nested too deeply, over {_MAX_DEPTH} levels"


class _Loader(yaml.SafeLoader):
    """YAML as people mean it: only true/false are booleans, dates and ``1:30`` stay text.

    It stops at a depth and at a number of nodes that no spec has: the time to read on grows faster than the text.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.nodes = self.depth = 0

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803 - PyYAML's own name
        # The scanner runs ahead of the composer, by a thousand brackets and more, and looks at each for every next one.
        if self.flow_level >= _MAX_DEPTH:
            raise yaml.YAMLError(_TOO_DEEP)
        super().fetch_flow_collection_start(TokenClass)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.nodes += 1
        self.depth += 1
        if self.nodes > _MAX_NODES:
            raise yaml.YAMLError("the document is too large")
        if self.depth > _MAX_DEPTH:
            raise yaml.YAMLError(_TOO_DEEP)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in pairs if tag == "tag:yaml.org,2002:null"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)?\.?[0-9]+(?:[eE][-+]?[0-9]+)?$"),
    list("-+0123456789."),
)


def _plain(node: yaml.Node, at: Loc, lines: dict[Loc, int], problems: list[SpecProblem], above: list[yaml.Node]) -> Any:
    """The node as JSON values; notes each line, and each key that is written twice."""
    lines.setdefault(at, node.start_mark.line + 1)
    if any(node is a for a in above):
        raise yaml.YAMLError("an alias refers to itself")
    if len(lines) > _MAX_NODES:
        raise yaml.YAMLError("the document is too large")
    above = [*above, node]
    if isinstance(node, yaml.MappingNode):
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "?"
            line = key_node.start_mark.line + 1
            if key_node.tag == "tag:yaml.org,2002:merge" or key == "<<":
                raise yaml.YAMLError("merge keys (`<<`) are not used in a spec; write the fields out")
            if key in out:
                first = lines.get((*at, key))
                problems.append(
                    SpecProblem(
                        path_of((*at, key)),
                        line,
                        f"the key is written twice (first in line {first})",
                        "YAML would keep the last one and drop the other in silence.",
                        "Keep one of them.",
                    )
                )
                continue
            lines[(*at, key)] = line
            out[key] = _plain(value_node, (*at, key), lines, problems, above)
        return out
    if isinstance(node, yaml.SequenceNode):
        return [_plain(v, (*at, i), lines, problems, above) for i, v in enumerate(node.value)]
    try:
        return _Loader("").construct_object(node, deep=True)
    except ValueError:  # Python turns no more than 4,300 digits into a number
        said = f"a value of {len(node.value):,} characters cannot be read as {node.tag.rsplit(':', 1)[-1]}"
        raise yaml.MarkedYAMLError(problem=said, problem_mark=node.start_mark) from None


def _yaml_problem(err: yaml.YAMLError | RecursionError) -> SpecProblem:
    mark = getattr(err, "problem_mark", None)
    if isinstance(err, RecursionError):
        err = yaml.YAMLError(_TOO_DEEP)
    said = " ".join(p for p in (getattr(err, "context", None), getattr(err, "problem", None)) if p) or str(err)
    return SpecProblem(
        "",
        mark.line + 1 if mark else None,
        f"this is not YAML: {said}",
        "Nothing of the file can be trusted.",
        "Mend it; indent with spaces.",
    )


def _whole(seen: str, why: str, do: str) -> SpecProblem:
    return SpecProblem("", None, seen, why, do)


# ------------------------------------------------------------------------------------------------ checking


def path_of(loc: Loc) -> str:
    """``("consumers", 0, "group")`` -> ``consumers[0].group``."""
    out = ""
    for part in loc:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else str(part)
    return out


def _checked(data: Any, place: str, lines: Mapping[Loc, int], problems: list[SpecProblem]) -> Spec:
    if not isinstance(data, dict):
        raise InvalidSpec(
            place,
            [
                _whole(
                    f"it holds a {_kind_of(data)}, not fields", "A spec is a mapping.", "Write `source: ...` and so on."
                )
            ],
        )
    try:
        spec = Spec.model_validate_json(json.dumps(data), strict=True)
    except (TypeError, ValueError) as err:
        if not isinstance(err, ValidationError):
            raise InvalidSpec(
                place, [_whole(f"it cannot be written as JSON: {err}", "", "Use plain values.")]
            ) from None
        found = err.errors(include_url=False)
        problems = [*problems, *(p for e in found for p in _explain(e, lines))]
        problems += [p for p in _cross(data, found, lines) if p not in problems]
        spec = None
    if problems or spec is None:
        raise InvalidSpec(place, sorted(set(problems), key=lambda p: (p.line or 0, p.path, p.seen)))
    return spec


def _cross(data: dict[str, Any], found: Sequence[Any], lines: Mapping[Loc, int]) -> list[SpecProblem]:
    """What is wrong between the fields that are right by themselves: the broken ones are replaced, then read again."""
    broken = {e["loc"][0] for e in found if e["loc"]}
    if not broken:
        return []
    known = set(Spec.model_fields)
    rest = {k: v for k, v in data.items() if k in known and k not in broken}
    try:
        Spec.model_validate_json(json.dumps({**_PLACEHOLDER, **rest}), strict=True)
    except ValidationError as err:
        return [p for e in err.errors(include_url=False) for p in _explain(e, lines) if "placeholder" not in str(p)]
    return []


def _explain(error: Any, lines: Mapping[Loc, int], root: type[BaseModel] = Spec) -> list[SpecProblem]:
    """One pydantic error as problems in our words."""
    loc: Loc = tuple(p for p in error["loc"] if p not in ("count", "sizing"))
    ctx = error.get("ctx") or {}
    if error["type"] == "spec":
        out = []
        for part in (ctx, *ctx.get("more", [])):
            at = (*loc, *part["at"])
            out.append(SpecProblem(path_of(at), _line(at, lines), part["seen"], part["why"], part["do"]))
        return out
    seen, why, do = _words(error, loc, ctx, root)
    return [SpecProblem(path_of(loc), _line(loc, lines), seen, why, do)]


_TWO_NOW: Mapping[Loc, str] = {
    ("approvals", "cutover"): "Write `freeze` (a person says go before anybody is stopped), `certificate` (a person "
    "accepts the certificate while producers stand still), or both.",
    ("approvals_cutover",): "Fill in `approvals_freeze` (a person says go before anybody is stopped), "
    "`approvals_certificate` (a person accepts the certificate while producers stand still), or both.",
}
"""What to write for a key that has become two."""

_OF_FIELDS = ("list_type", "dict_type", "model_type", "model_attributes_type")


def _words(error: Any, loc: Loc, ctx: Mapping[str, Any], root: type[BaseModel]) -> tuple[str, str, str]:
    kind, value = error["type"], error.get("input")
    shown = _short(value)
    if kind == "extra_forbidden":
        known = fields_at(loc[:-1], root)
        if loc in _TWO_NOW:
            return "there is no such key", "It would be passed over in silence.", _TWO_NOW[loc]
        return "there is no such key", "It would be passed over in silence.", did_you_mean(str(loc[-1]), known)
    if kind == "missing":
        about = _description(loc, root)
        return "it is missing", "Nothing can be done without it.", f"Add it: {about}" if about else "Add it."
    if kind in ("enum", "literal_error"):
        options = tuple(str(ctx.get("expected", "")).replace("'", "").replace(" or ", ", ").split(", "))
        return (
            f"{shown} is not one of its values",
            "The plan would differ from what is meant.",
            did_you_mean(str(value), options),
        )
    if kind == "value_error":
        return str(ctx.get("error", error["msg"])), "The value cannot be used.", "Correct it."
    if kind == "too_short":
        return "the list is empty", "A migration needs at least one.", _description(loc, root)
    if kind == "string_too_short":
        return f"{shown} is too short", "It names nothing.", "Fill it in."
    wanted = {
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "string_type": "text",
        "bool_type": "true or false",
        "list_type": "a list",
        "dict_type": "a mapping of fields",
        "model_type": "a mapping of fields",
        "model_attributes_type": "a mapping of fields",
    }.get(kind)
    if wanted:
        hint = (
            ". Take the quotes off."
            if isinstance(value, str) and wanted.endswith("number") and value.strip().isdigit()
            else ""
        )
        hint = hint or _for_instance(loc, kind, root)
        if kind == "string_type" and isinstance(value, int | float):
            hint = " in quotation marks, with every digit as it should be: `017` without them is the number 17."
        return f"{shown} is not {wanted}", "A guess could plan something else.", f"Write {wanted}{hint or '.'}"
    bounds = {
        "greater_than": ("gt", "above"),
        "greater_than_equal": ("ge", "at least"),
        "less_than_equal": ("le", "at most"),
    }
    if kind in bounds:
        key, word = bounds[kind]
        what = "a duration" if isinstance(value, timedelta) else "a number"
        bound = ctx.get(key)
        wanted = f"{what} {word} {bound:,}" if isinstance(bound, int) else f"{what} {word} {bound}"
        why = TOO_MANY if (key, bound) == ("le", MOST) else "It would make no sense."
        return f"{shown} is out of range", why, f"Write {wanted}."
    return f"{error['msg']} (got {shown})", "The value cannot be used.", "Correct it."


def _for_instance(loc: Loc, kind: str, root: type[BaseModel]) -> str:
    """An example of the whole field, where a list or its items are not what they should be; else nothing."""
    field = root.model_fields.get(str(loc[0])) if loc else None
    if kind not in _OF_FIELDS or field is None or not field.examples:
        return ""
    return f", for instance `{loc[0]}: {json.dumps(field.examples[0])}`."


def fields_at(loc: Loc, root: type[BaseModel] = Spec) -> tuple[str, ...]:
    """The names of the fields of the model at a place of ``root``; () where there is none."""
    model = _model_at(loc, root)
    return tuple(model.model_fields) if model else ()


def _model_at(loc: Loc, root: type[BaseModel]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = root
    for part in loc:
        if isinstance(part, int):
            continue
        if model is None or part not in model.model_fields:
            return None
        model = _first_model(model.model_fields[part].annotation)
    return model


def _first_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in (typing.Annotated, list, typing.Union, types.UnionType):
        for arg in typing.get_args(annotation):
            found = _first_model(arg)
            if found:
                return found
    return None


def _description(loc: Loc, root: type[BaseModel]) -> str:
    model = _model_at(loc[:-1], root) if loc else None
    if model is None or loc[-1] not in model.model_fields:
        return ""
    return (model.model_fields[str(loc[-1])].description or "").replace("\n", " ")


def _line(loc: Loc, lines: Mapping[Loc, int]) -> int | None:
    while loc not in lines and loc:
        loc = loc[:-1]
    return lines.get(loc)


def _short(value: Any) -> str:
    if isinstance(value, timedelta):
        value = format_duration(value)
    text = repr(value) if not isinstance(value, dict | list) else f"a {_kind_of(value)}"
    return text if len(text) <= 60 else text[:57] + "..."


def _kind_of(value: Any) -> str:
    return {"dict": "mapping", "list": "list", "str": "text", "NoneType": "nothing"}.get(type(value).__name__, "number")
