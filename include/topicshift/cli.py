"""The ``topicshift`` command: a thin shell that loads one subcommand and turns errors into exit codes.

Exit codes: 0 yes, 2 wrong use or bad spec, 3 no, 4 unknown; 130 after Ctrl-C and 143 after SIGTERM, as shells have it.
A subcommand's module is imported only when it is called or described, so ``topicshift --help`` costs next to nothing.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from topicshift import __version__
from topicshift.commands.common import EXIT_INTERRUPTED, EXIT_UNKNOWN, EXIT_USAGE
from topicshift.core.errors import TopicshiftError, Unreadable
from topicshift.core.text import printable
from topicshift.quiet import quiet

COMMANDS: dict[str, str] = {
    "init": "Write a first spec for a topic, from what the cluster shows.",
    "doctor": "Check this installation: connections, rights, DAGs, settings.",
    "lint": "Check spec files without touching a cluster.",
    "plan": "Print what a migration would do, and what speaks against it. Read-only.",
    "size": "How many partitions a topic should have, and why.",
    "flink-plan": "Make the plan with which a Flink SQL job reads the target.",
    "drain": "Has every consumer group read everything? Read-only.",
    "status": "Migrations: their step, owner, freeze, and what they wait for.",
    "advance": "Go on with a migration, as Airflow's tasks do.",
    "answer": "Answer the open question of a migration.",
    "pause": "Begin nothing new in a migration until it is told to go on.",
    "postpone": "Begin no freeze before a given time, or the next window.",
    "resume-on-source": "End a freeze: producers resume on the source.",
    "abort": "End a migration in the way that holds now, if one does.",
    "rollback": "Go back to the source, by the type of rollback that holds now.",
    "replay": "Write records that came to the source too late to the target.",
    "close": "End a migration that will not go on; its topics are free again.",
    "audit": "Verify or export the audit trail of a migration.",
    "route": "Show or set the route that producers and consumers follow.",
}
"""Each subcommand, in the order of the help text, with its one line of help."""

_NAME = "topicshift"
_COMPLETE = "_TOPICSHIFT_COMPLETE"
_GRACE_S = 3.0


class LazyGroup(click.Group):
    """A group that knows its subcommands by name and imports a module only to run or describe it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The subcommands in the order of :data:`COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the subcommand; None for an unknown name (click then answers with a usage error)."""
        if cmd_name not in COMMANDS:
            return None
        module = f"topicshift.commands.{cmd_name.replace('-', '_')}"
        try:
            command = importlib.import_module(module).command
        except ModuleNotFoundError as exc:
            if exc.name == module:
                what = f"This installation has no {cmd_name!r} command: the module {module} is not there"
            else:
                what = f"The {cmd_name!r} command needs the Python package {exc.name!r}, which is not installed"
            raise Unreadable(f"{what}. Install topicshift again, with its dependencies.") from exc
        if not isinstance(command, click.Command):
            raise Unreadable(f"{module}.command is no click command. Install topicshift again.")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with a suggestion for a misspelt subcommand."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(COMMANDS)}."
            raise click.UsageError(f"No such command {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of subcommands, without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"topicshift {__version__}")
        ctx.exit()


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 yes / drained / ok; 2 wrong use or bad spec; 3 no; 4 unknown. "
    "The answer is on stdout, the talk on stderr.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def cli() -> None:
    """Move a keyed Kafka topic to a new topic with another number of partitions: fenced, drained, proven."""


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; prints errors as one message, never as a traceback.

    ``argv`` are the words after ``topicshift``, those of the process by default. Set ``TOPICSHIFT_DEBUG=1`` to see the
    traceback of an error that should not have happened.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        result = _invoke(words)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as exc:
        exc.show()
        return EXIT_USAGE
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except click.ClickException as exc:
        exc.show()
        _tell_script(words, "UsageError", exc.format_message(), EXIT_USAGE)
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        _tell("Interrupted. Nothing is left running by this command.")
        return EXIT_INTERRUPTED
    except TopicshiftError as exc:
        _tell(str(exc))
        _tell_script(words, type(exc).__name__, str(exc), exc.exit_code)
        return exc.exit_code
    except BrokenPipeError:
        # The reader has gone (`| head`). Python flushes stdout once more at exit: give that nothing to fail on.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else EXIT_UNKNOWN
    except Exception as exc:  # noqa: BLE001 - the boundary: whatever it is, it must not look like a yes or a traceback
        if os.environ.get("TOPICSHIFT_DEBUG"):
            import traceback

            traceback.print_exc()
        message = (
            f"Unexpected {type(exc).__name__}: {_one_line(exc)} The question was not answered. "
            "This is a fault of topicshift: please report it, with what TOPICSHIFT_DEBUG=1 prints."
        )
        _tell(message)
        _tell_script(words, type(exc).__name__, message, EXIT_UNKNOWN)
        return EXIT_UNKNOWN
    return result if isinstance(result, int) else 0


def _invoke(words: list[str]) -> Any:
    # Not cli.main(): it prints an empty line at Ctrl-C and answers 1 to a reader that has gone away.
    asked_by_shell = os.environ.get(_COMPLETE)
    if asked_by_shell:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, _NAME, _COMPLETE, asked_by_shell)
    with cli.make_context(_NAME, words) as context:
        return cli.invoke(context)


def _one_line(exc: BaseException) -> str:
    text = " ".join(str(exc).split()) or "(no message)"
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _tell(message: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"topicshift: {printable(message)}", err=True)


def _tell_script(words: Sequence[str], kind: str, message: str, exit_code: int) -> None:
    """With ``--json`` the answer to a question that failed is the failure: what a person is told, a script is told."""
    if "--json" in words:
        with contextlib.suppress(OSError, ValueError):
            click.echo(json.dumps({"error": {"kind": kind, "message": message, "exit_code": exit_code}}, indent=2))


def _end(number: int) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, f"topicshift: stopped by {signal.Signals(number).name}\n".encode())
    os._exit(128 + number)


def _watch_signals() -> None:
    """Make SIGTERM end the process at once, and SIGINT within a few seconds, whatever the main thread is in.

    ``sys.exit`` in a Python signal handler during a call of librdkafka can come out as a ``SystemError`` that a broad
    ``except`` swallows, and no Python handler runs at all before such a call returns. The wake-up descriptor is
    written by the interpreter's C handler, and a thread of our own acts on it.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)

    def watch() -> None:
        while True:
            for number in os.read(read_end, 1):
                if number == signal.SIGTERM:
                    _end(number)
                elif number == signal.SIGINT:
                    timer = threading.Timer(_GRACE_S, _end, args=(number,))
                    timer.daemon = True
                    timer.start()

    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=watch, name="topicshift-signals", daemon=True).start()


def main(argv: Sequence[str] | None = None) -> Any:
    """The console script's entry point: :func:`run` with signals looked after, then exit."""
    # A command makes many objects and few cycles: looking for those as often as by default costs a tenth of its time.
    gc.set_threshold(50_000, 20, 20)
    # Its own talk would bury the one line that matters.
    quiet(wholly=True)
    _watch_signals()
    sys.exit(run(argv))


if __name__ == "__main__":
    main()
