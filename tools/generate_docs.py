"""Write the pages and tables that repeat code: spec.md, findings.md, cli.md, evidence.md, and tables in other pages.

Run it after a change of the code: ``.venv/bin/python tools/generate_docs.py``. A test compares the files with it.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "include")]

import click  # noqa: E402
from pydantic.fields import FieldInfo  # noqa: E402
from tools.evidence_docs import fields_of_evidence  # noqa: E402

from topicshift.cli import cli as command_line  # noqa: E402
from topicshift.core.base import Model  # noqa: E402
from topicshift.core.checks import all_codes  # noqa: E402
from topicshift.core.drain.certificate import Verdict  # noqa: E402
from topicshift.core.drain.reasons import ALARMS, REASONS  # noqa: E402
from topicshift.core.engine.words import STEPS, Step  # noqa: E402
from topicshift.core.impact.findings import CODES as IMPACT  # noqa: E402
from topicshift.core.metrics import METRICS, PREFIX  # noqa: E402
from topicshift.core.policy.model import Installation  # noqa: E402
from topicshift.core.proof.retirement import CODES as RETIREMENT  # noqa: E402
from topicshift.core.proof.watch import CODES as WATCH  # noqa: E402
from topicshift.core.spec.answers import AnswerRule  # noqa: E402
from topicshift.core.spec.duration import format_duration  # noqa: E402
from topicshift.core.spec.io import load_spec  # noqa: E402
from topicshift.core.spec.model import Spec  # noqa: E402

_HEAD = "<!-- Made by tools/generate_docs.py. Change the model or the checks, then run it again. -->\n"
_SCOPES = {
    "1": "TS1: the spec and the topics",
    "2": "TS2: the cluster",
    "3": "TS3: groups and other participants",
    "4": "TS4: keys",
    "5": "TS5: rights, and what could not be read",
    "6": "TS6: retiring the source",
    "7": "TS7: the key-rehash impact",
    "8": "TS8: the installation policy",
}


def main() -> int:
    """Write the files and say which have changed."""
    for name, text in pages().items():
        file = ROOT / name
        changed = not file.exists() or file.read_text("utf-8") != text
        file.write_text(text, "utf-8")
        print(f"{name}: {'written' if changed else 'as it was'}")
    return 0


def pages() -> dict[str, str]:
    """Every file that is made here, whole or in part, as it should be."""
    made = {
        "policy.md": policy_page,
        "spec.md": spec_page,
        "findings.md": findings_page,
        "cli.md": cli_page,
        "drain.md": drain_page,
        "metrics.md": metrics_page,
        "evidence.md": evidence_page,
    }
    return {"README.md": readme(), **{f"docs/{name}": page() for name, page in made.items()}}


# ------------------------------------------------------------------------------------------------ spec.md


def spec_page() -> str:
    """The reference of the spec: every field, its type, default and meaning."""
    example = (ROOT / "include/migrations/payments.yaml").read_text("utf-8")
    load_spec(ROOT / "include/migrations/payments.yaml")
    out = [
        _HEAD,
        "# The spec: one file, one migration",
        "",
        "A spec is a YAML file in `include/migrations`. `topicshift lint FILE` checks it without a cluster, and "
        "reports every problem at once, with its line; an unknown key is refused. The trigger form of the DAG "
        "`topic_migration` has the same fields (a nested one with its block in front: `approvals.plan` is "
        "`approvals_plan`; the fields of a sizing block begin with `sizing_`). A spec with a `window` has a DAG of its "
        "own, `topic_migration__NAME` for the file `NAME.yaml`; where a file cannot be scheduled, its DAG says why. "
        "Names that begin with a dot are passed over.",
        "",
        "```yaml",
        example.rstrip(),
        "```",
        "",
        "Durations are written `90s`, `15m`, `2h`, `7d` or `1h30m`.",
    ]
    section = ""
    blocks: list[tuple[str, type[Model]]] = []
    rows: list[str] = []
    for name, field in Spec.model_fields.items():
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if extra.get("section") != section:
            out += _table(rows)
            section, rows = str(extra.get("section")), []
            out += ["", f"## {section}", ""]
        rows.append(_row(name, field))
        blocks += [(f"{name}[]" if _is_list(field) else name, m) for m in _models(field.annotation)]
    out += _table(rows)
    for name, model in blocks:
        first = (model.__doc__ or "").strip().splitlines()[0]
        out += ["", f"## `{name}`", "", first, ""]
        out += _table([_row(n, f) for n, f in model.model_fields.items()])
    return "\n".join(out) + "\n"


def _table(rows: list[str]) -> list[str]:
    return ["| field | type | default | meaning |", "|---|---|---|---|", *rows] if rows else []


def _row(name: str, field: FieldInfo) -> str:
    default = "**required**" if field.is_required() else _shown(field.get_default(call_default_factory=True))
    meaning = " ".join((field.description or "").split())
    if field.examples:
        example = field.examples[0]
        meaning += f" Example: `{example if isinstance(example, str) else json.dumps(example)}`."
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    options = extra.get("enum")
    kind = " or ".join(f"`{o}`" for o in options) if isinstance(options, list) else _type(field.annotation)
    return f"| `{name}` | {kind} | {default} | {meaning} |"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, timedelta):
        return f"`{format_duration(value)}`"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, Model):
        return "see below"
    return f"`{json.dumps(value) if not isinstance(value, str) else value}`"


def _type(annotation: Any) -> str:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(args[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(a) for a in args if a is not type(None)))
    if origin is list:
        return f"list of {_type(args[0])}"
    if origin is dict:
        return f"{_type(args[1])} by name"
    if origin is typing.Literal:
        return " or ".join(f"`{a}`" for a in args)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{m.value}`" for m in annotation)
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return "block"
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", timedelta: "duration"}
    return names.get(annotation, str(annotation))


def _is_list(field: FieldInfo) -> bool:
    return typing.get_origin(field.annotation) is list


def _models(annotation: Any) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for arg in typing.get_args(annotation):
        yield from _models(arg)


# ------------------------------------------------------------------------------------------------ policy.md


def policy_page() -> str:
    """``policy.md`` as it is, with its table of the keys."""
    head = "field | type | default | meaning"
    text = (ROOT / "docs" / "policy.md").read_text("utf-8")
    text = _with_table(text, "keys", head, [_row(n, f) for n, f in Installation.model_fields.items()])
    return _with_table(text, "rules", head, [_row(n, f) for n, f in AnswerRule.model_fields.items()])


# ------------------------------------------------------------------------------------------------ findings.md


def findings_page() -> str:
    """Every code that can be reported: its levels, what it says, what to do."""
    out = [
        _HEAD,
        "# Findings",
        "",
        "A finding has a stable code, a level, the thing it speaks of, what was seen, why it matters and what to do. "
        "An **error** blocks; so does anything **unknown** (it could not be read), whatever its level. A **warning** "
        "is shown to whoever approves, an **info** explains. That a check finds nothing is never a promise.",
    ]
    section = ""
    for doc in sorted((*all_codes(), *RETIREMENT, *WATCH, *IMPACT), key=lambda d: d.code):
        if _SCOPES[doc.code[2]] != section:
            section = _SCOPES[doc.code[2]]
            out += ["", f"## {section}", "", "| code | level | what it says | what to do |", "|---|---|---|---|"]
        levels = ", ".join(level.value for level in doc.levels)
        out.append(f"| {doc.code} | {levels} | {doc.says} | {doc.remedy} |")
    return "\n".join(out) + "\n"


# ------------------------------------------------------------------------------------------------ cli.md


def cli_page() -> str:
    """Every command with its options."""
    out = [
        _HEAD.replace("the model or the checks", "the command"),
        "# The command `topicshift`",
        "",
        "`make setup` puts it into `.venv/bin`; `make up` prints the whole call for its own cluster and journal. "
        "Results go to stdout, progress to stderr.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        "| 0 | yes: drained, no finding of level error, written |",
        "| 2 | wrong use, or a bad spec |",
        "| 3 | no: not drained, findings of level error, refused |",
        "| 4 | unknown: something could not be read |",
        "",
        "With `--json` a question that cannot be answered is told on stdout as well: "
        '`{"error": {"kind": ..., "message": ..., "exit_code": ...}}`.',
    ]
    context = click.Context(command_line, info_name="topicshift")
    for name in command_line.list_commands(context):
        out += _command(command_line.get_command(context, name), f"topicshift {name}")
    return "\n".join(out) + "\n"


def _command(command: click.Command | None, path: str) -> Iterator[str]:
    assert command is not None
    context = click.Context(command, info_name=path)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from _command(command.get_command(context, name), f"{path} {name}")
        return
    words = " ".join(command.collect_usage_pieces(context))
    paragraphs = [" ".join(part.split()) for part in (command.help or "").replace("\b", "").split("\n\n")]
    yield from ("", f"## `{path} {words}`".replace(" [OPTIONS]", ""), "", "\n\n".join(paragraphs))
    options = [p for p in command.params if isinstance(p, click.Option)]
    if options:
        yield from ("", "| option | meaning |", "|---|---|")
    for option in options:
        said = option.get_help_record(context)
        if said is not None:
            yield f"| `{said[0]}` | {' '.join(said[1].split())} |".replace("[x", "[").replace("<=x<=", " to ")


# ------------------------------------------------------------------------------------------------ tables in pages


def _with_table(text: str, name: str, head: str, rows: list[str]) -> str:
    """The page with the rows of this table as the code has them."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name.partition(':')[0]} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    table = "\n".join([f"| {head} |", f"|{'---|' * len(head.split('|'))}", *rows])
    return f"{before}{begin}{table}\n{end}{after}"


def readme() -> str:
    """``README.md`` as it is, with its table of the steps."""
    rows = [
        f"| `{'topic_retirement' if step is Step.RETIRE else step.value}` | {doc.what} | {doc.proof} | {doc.way_back} |"
        for step, doc in STEPS.items()
    ]
    head = "step | what it does | the proof it waits for | way back"
    return _with_table((ROOT / "README.md").read_text("utf-8"), "steps", head, rows)


def metrics_page() -> str:
    """``metrics.md`` as it is, with its table of the metrics."""
    rows = [
        f"| `{PREFIX}.{m.name}` | {m.kind.value} | {', '.join(f'`{label}`' for label in m.labels)} | {m.what} |"
        for m in METRICS
    ]
    text = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    return _with_table(text, "metrics", "name | kind | labels | value", rows)


def evidence_page() -> str:
    """``evidence.md`` as it is, with the fields of each file."""
    begin, end = "<!-- fields -->\n", "<!-- end of fields -->"
    before, _, rest = (ROOT / "docs" / "evidence.md").read_text("utf-8").partition(begin)
    return before + begin + "\n".join([*fields_of_evidence(), "", end]) + rest.partition(end)[2]


def drain_page() -> str:
    """``drain.md`` as it is, with its tables of codes as the code has them."""
    tables = {str(verdict): [] for verdict in Verdict} | {"beside": [], "alarms": []}
    for code, told in REASONS.items():
        name = str(told.verdict) if told.verdict else "beside"
        tables[name].append(f"| `{code}` | {told.meaning} | {told.remedy} |")
    tables["alarms"] = [f"| `{code}` | {told.meaning} | {told.remedy} |" for code, told in ALARMS.items()]
    text = (ROOT / "docs" / "drain.md").read_text("utf-8")
    for name, rows in tables.items():
        text = _with_table(text, f"codes: {name}", "code | meaning | what to do", rows)
    return text


if __name__ == "__main__":
    sys.exit(main())
