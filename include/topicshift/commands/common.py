"""What every subcommand shares: Kafka options, the journal option, the answer on stdout, the talk on stderr.

Nothing here imports Kafka, SQLAlchemy, pydantic or rich at module level: ``topicshift --help`` stays quick.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from topicshift.core.errors import SpecError
from topicshift.core.text import one_line, printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console

    from topicshift.adapters.journal import SqlJournal
    from topicshift.core.findings import Finding

F = TypeVar("F", bound=Callable[..., Any])

EXIT_OK = 0
EXIT_USAGE = 2
EXIT_NO = 3
EXIT_UNKNOWN = 4
EXIT_INTERRUPTED = 130
"""DESIGN section 5: 0 yes, 2 wrong use or bad spec, 3 no, 4 unknown. 130 is the shell's own code for Ctrl-C."""

NO_CLUSTER = (
    "No Kafka cluster was named, so there is nothing to ask. "
    "Give --bootstrap-server HOST:PORT, or --kafka-config FILE with bootstrap.servers in it."
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the answer as JSON, and nothing else, on stdout."
)


def reason_option(usual: str | None = None, help: str = "Why, for the audit trail.") -> Callable[[F], F]:
    """``--reason``, required where there is no ``usual`` one; an empty one is refused."""

    def given(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
        if not value.strip():
            raise click.BadParameter("it is empty. Say why, for whoever reads the audit trail.")
        return value.strip()

    if usual is None:
        return click.option("--reason", required=True, callback=given, help=help)
    return click.option("--reason", default=usual, callback=given, help=help)


def file_option(*names: str, metavar: str = "FILE", **more: Any) -> Callable[[F], F]:
    """An option that names a file; the command gets its ``Path``, or None."""
    return click.option(*names, type=click.Path(path_type=Path, dir_okay=False), metavar=metavar, **more)


def kafka_options(command: F) -> F:
    """Add ``--kafka-config``, ``--bootstrap-server`` and ``--json``.

    The command is called with ``kafka_config: dict[str, Any]``, librdkafka properties ready for
    :class:`topicshift.adapters.kafka.connection.Connection`, and ``as_json: bool``. The file is read and checked before
    the command runs; wrong or missing options end with exit code 2. Nothing is contacted here.
    """
    return _kafka_options(command, required=True)


def kafka_options_if_wanted(command: F) -> F:
    """As :func:`kafka_options`, for a command that answers without a cluster too: ``kafka_config`` may be None."""
    return _kafka_options(command, required=False)


def _kafka_options(command: F, *, required: bool) -> F:
    @file_option(
        "--kafka-config",
        "kafka_config_file",
        envvar="TOPICSHIFT_KAFKA_CONFIG",
        help="Kafka client properties (Java's or librdkafka's names); the place for credentials.",
    )
    @click.option(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        envvar="TOPICSHIFT_BOOTSTRAP_SERVER",
        help="Brokers to connect to; goes before bootstrap.servers of the file.",
    )
    @json_option
    @functools.wraps(command)
    def wrapper(
        *args: Any, kafka_config_file: Path | None, bootstrap_server: str | None, as_json: bool, **kwargs: Any
    ) -> Any:
        given = kafka_config_file is not None or bootstrap_server is not None
        config = kafka_config(kafka_config_file, bootstrap_server) if given or required else None
        return command(*args, kafka_config=config, as_json=as_json, **kwargs)

    return wrapper  # type: ignore[return-value]


def kafka_config(properties_file: Path | None, bootstrap_server: str | None) -> dict[str, Any]:
    """The librdkafka properties for these two options. Raises ``SpecError`` when they name no broker."""
    if properties_file is None and bootstrap_server is None:
        raise SpecError(NO_CLUSTER)
    from topicshift.adapters.kafka.connection import client_config

    return client_config(bootstrap_server, properties_file)


def duration_option(option: str, text: str, *, zero: bool = False) -> float:
    """The seconds of a duration option, which may be ``zero``. Raises ``SpecError``, naming the option."""
    from topicshift.core.spec.duration import parse_duration

    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as exc:
        raise SpecError(f"{option}: {exc}.") from None
    if seconds <= 0 and not zero:
        raise SpecError(f"{option}: a length of time above zero is needed.")
    return seconds


def journal_option(command: F) -> F:
    """Add ``--journal URL`` (or ``TOPICSHIFT_JOURNAL``); the command gets ``journal_url: str | None``.

    A URL with a password is taken from the environment only: arguments are seen by every user of the machine.
    """

    @click.option(
        "--journal",
        "journal_url",
        metavar="URL",
        envvar="TOPICSHIFT_JOURNAL",
        help="SQLAlchemy or Airflow URL of the journal; by default SQLite under AIRFLOW_HOME/topicshift.",
    )
    @functools.wraps(command)
    def wrapper(*args: Any, journal_url: str | None, **kwargs: Any) -> Any:
        source = click.get_current_context().get_parameter_source("journal_url")
        if journal_url and source is ParameterSource.COMMANDLINE:
            from topicshift.adapters.journal.urls import has_password

            if has_password(journal_url):
                raise SpecError(
                    "--journal carries a password, and arguments can be read by every user of this machine. "
                    "Put the URL into the environment variable TOPICSHIFT_JOURNAL instead, and change the password."
                )
        return command(*args, journal_url=journal_url, **kwargs)

    return wrapper  # type: ignore[return-value]


def open_journal(journal_url: str | None) -> SqlJournal:
    """The journal to read, which must exist already: reading never makes an empty one that looks like an answer."""
    from topicshift.adapters.journal import SqlJournal, default_url

    return SqlJournal(journal_url or default_url(), create=False)


def read_impact(file: Path) -> dict[str, Any]:
    """The impact.json of ``--impact``. Raises ``SpecError`` for a file that is none, naming what is wrong in it.

    Fields that it lacks, or that this version does not know, are no reason: it may be another version's.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise SpecError(f"--impact: {file} cannot be read: {exc.strerror}. Give the impact.json of a report.") from None
    except (ValueError, RecursionError) as exc:
        raise SpecError(f"--impact: {file} is not JSON: {exc}. Give the impact.json of a report.") from None
    if not isinstance(found, dict):
        raise SpecError(f"--impact: {file} holds no JSON object. Give the impact.json of a report.")
    from pydantic import ValidationError

    from topicshift.core.impact.report import Impact
    from topicshift.core.sizing.sizing import require_impact

    try:
        Impact.model_validate(found)
    except ValidationError as exc:
        for error in exc.errors():
            needed = error["type"] == "missing" and error["loc"][0] == "candidates" and error["loc"][-1] == "partitions"
            if needed or error["type"] not in ("missing", "extra_forbidden"):
                where = ".".join(map(str, error["loc"]))
                raise SpecError(
                    f"--impact: {file} is no impact report that can be used: {where}: {error['msg']}. Give the "
                    "impact.json of a report as it was made."
                ) from None
    try:
        require_impact(found)
    except ValueError as exc:
        raise SpecError(
            f"--impact: {file} is no impact report that can be used: {exc}. Give the impact.json of a report."
        ) from None
    return found


def answer(value: Any) -> None:
    """Print ``value`` as JSON on stdout. Pydantic models are dumped by their own rules."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    click.echo(printable_json(json.dumps(value, indent=2, ensure_ascii=False, default=_plain)))


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return sorted(value) if isinstance(value, set | frozenset) else list(value)
    return str(value)


def tell(message: str) -> None:
    """A line (or more) of the answer for people, on stdout."""
    click.echo(printable(message))


def say(message: str) -> None:
    """One line of talk on stderr."""
    click.echo(printable(message), err=True)


def escape(text: str) -> str:
    """Text from outside for a console of rich: no markup, no control sequence and no further line comes out of it."""
    from rich.markup import escape as escape_markup

    return escape_markup(one_line(text))


def console() -> Console:
    """A rich console that keeps to the width of the terminal, or 120 columns where there is none."""
    from rich.console import Console

    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120, highlight=False, soft_wrap=False)


def show_findings(findings: list[Finding], out: Console) -> None:
    """Print findings, the blocking ones first, each with what was seen, why it matters and what to do."""
    weight = {"error": 0, "warning": 1, "info": 2}
    colour = {"error": "bold red", "warning": "yellow", "info": "cyan"}
    for finding in sorted(findings, key=lambda f: (not f.blocks, weight[f.level.value], f.code, f.subject)):
        level = "unknown" if finding.unknown else finding.level.value
        style = "bold red" if finding.unknown else colour[finding.level.value]
        out.print(f"[{style}]{finding.code} {level}[/] [bold]{escape(finding.subject)}[/]: {escape(finding.seen)}")
        out.print(f"  why: {escape(finding.why)}")
        out.print(f"  do:  {escape(finding.do)}")
