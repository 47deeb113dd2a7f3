"""docs/drain.md has each code in its place and every option. Its tables of codes are generated."""

from __future__ import annotations

from pathlib import Path

from topicshift.commands.drain import command
from topicshift.core.drain.reasons import REASONS

DOC = (Path(__file__).parents[2] / "docs" / "drain.md").read_text(encoding="utf-8")


def test_codes_stand_under_their_verdict() -> None:
    for code, told in REASONS.items():
        section = DOC[: DOC.index(f"| `{code.value}` |")].rsplit("## ", 1)[1].splitlines()[0]
        if told.verdict is not None:
            assert section == f"Reasons: {told.verdict.value.replace('_', ' ')}", code


def test_every_option_is_explained() -> None:
    own = {o for p in command.params for o in getattr(p, "opts", []) if o.startswith("--")}
    shared = {"--kafka-config", "--topic", "--bootstrap-server"}
    missing = [o for o in own - shared if o not in DOC]
    assert not missing
