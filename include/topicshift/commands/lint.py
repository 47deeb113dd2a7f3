"""``topicshift lint``: spec files checked without touching a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topicshift.commands.common import EXIT_NO, EXIT_OK, EXIT_USAGE, answer, json_option, say, tell
from topicshift.core.errors import SpecError, TopicshiftError

if TYPE_CHECKING:
    from topicshift.core.spec.model import Spec


@click.command(
    help="Check spec files, or every .yaml file of a folder, without touching a cluster. Where "
    "TOPICSHIFT_POLICY names an installation policy, they are checked against it too."
)
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
def command(specs: tuple[Path, ...], as_json: bool) -> int:
    """Exit code 0 if every spec is fine, 2 if one is wrong, 3 if none is and one could never run (a level error)."""
    from topicshift.adapters.policy import policy_from_env
    from topicshift.core.findings import Level
    from topicshift.core.plan.model import lint
    from topicshift.core.spec.io import load_spec
    from topicshift.core.spec.scheduled import scheduled

    policy = policy_from_env()()
    results: list[dict[str, Any]] = []
    good: list[tuple[Path, Spec]] = []
    for path in _files(specs):
        try:
            spec = load_spec(path)
            scheduled(_of_one_dag(path))
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with one file must not hide the others
            message = str(exc) if isinstance(exc, TopicshiftError) else f"{type(exc).__name__}: {exc}"
            message = message if str(path) in message else f"{path}: {message}"
            results.append(
                {"file": str(path), "ok": False, "problems": _problems(exc), "findings": [], "message": message}
            )
        else:
            good.append((path, spec))
            found = [f for f in lint(spec, policy) if f.level is not Level.INFO]
            results.append(
                {
                    "file": str(path),
                    "ok": not any(f.blocks for f in found),
                    "problems": [],
                    "findings": [f.model_dump(mode="json") for f in found],
                    "message": "\n".join([_summary(spec), *(f"  {f.line()}" for f in found)]),
                }
            )
    blamed = _shared_topics(good)
    shared = {path for path, _ in blamed}
    for path, problem in blamed:
        entry = next(r for r in results if r["file"] == str(path))
        entry["ok"] = False
        entry["problems"].append(problem)
    for entry in results:
        if Path(entry["file"]) in shared:
            entry["message"] = "\n".join(
                f"{entry['file']}: {p['path']}: {p['seen']}. {p['why']} {p['do']}" for p in entry["problems"]
            )
    bad = [r for r in results if not r["ok"]]
    if as_json:
        answer({"ok": not bad, "files": results})
    else:
        for result in results:
            verdict = "ok" if result["ok"] else "cannot run"
            tell(result["message"] if result["problems"] else f"{result['file']}: {verdict}: {result['message']}")
        say(f"{len(results)} spec{'' if len(results) == 1 else 's'}, {len(bad)} with problems")
    if any(r["problems"] for r in bad):
        return EXIT_USAGE
    return EXIT_NO if bad else EXIT_OK


def _files(given: tuple[Path, ...]) -> list[Path]:
    from topicshift.core.spec.io import spec_paths

    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = spec_paths(path)
            if not inside:
                raise SpecError(f"The folder {path} holds no .yaml file, so nothing was checked. Name the spec files.")
            found += inside
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def _of_one_dag(path: Path) -> list[Path]:
    """The file, and those beside it that would have the DAG of the same name: neither is scheduled then."""
    from topicshift.core.spec.io import spec_paths
    from topicshift.core.spec.scheduled import dag_id

    beside = spec_paths(path.parent)
    return [p for p in beside if dag_id(p) == dag_id(path)] if path in beside else []


def _problems(exc: Exception) -> list[dict[str, Any]]:
    known = getattr(exc, "problems", None)
    if not known:
        return [{"path": "", "line": None, "seen": str(exc) or type(exc).__name__, "why": "", "do": ""}]
    return [{"path": p.path, "line": p.line, "seen": p.seen, "why": p.why, "do": p.do} for p in known]


def _summary(spec: Spec) -> str:
    from topicshift.core.spec.model import Sizing

    count = "partitions sized from rates" if isinstance(spec.partitions, Sizing) else f"{spec.partitions} partitions"
    window = f", in the window {spec.window.cron} {spec.window.timezone}" if spec.window else ""
    return (
        f"{spec.source} to {spec.target or 'the next free -vN'}, {count}, {spec.cutover.value}, "
        f"{len(spec.producers)} producers, {len(spec.consumers)} consumer groups{window}"
    )


def _shared_topics(good: list[tuple[Path, Spec]]) -> list[tuple[Path, dict[str, Any]]]:
    """Specs for the same cluster that name a topic twice: only one of them could ever run."""
    users: dict[tuple[str, str], dict[Path, str]] = {}
    for path, spec in good:
        for field, topic in (("source", spec.source), ("target", spec.target)):
            if topic is not None:
                users.setdefault((spec.kafka_conn_id, topic), {}).setdefault(path, field)
    return [
        (
            path,
            {
                "path": field,
                "line": None,
                "seen": f"{topic} is also a topic of {', '.join(str(other) for other in paths if other != path)}",
                "why": "Two migrations never touch the same topic, so one of them would be refused.",
                "do": "Keep one of these specs, or correct the name.",
            },
        )
        for (_, topic), paths in users.items()
        if len(paths) > 1
        for path, field in paths.items()
    ]
