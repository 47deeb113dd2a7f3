"""The recipe in docs/audit.md, with which anybody can check an export, must work as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from topicshift.core.proof.bundle import trail_lines
from topicshift.testing.fake_journal import FakeJournal

DOCS = Path(__file__).parents[2] / "docs" / "audit.md"


def test_the_recipe_accepts_an_export_and_refuses_a_changed_one(tmp_path: Path) -> None:
    [recipe] = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    journal = FakeJournal()
    claim = journal.claim(cluster_id="c", source="a", target="b", owner="run", spec={}, owner_alive=lambda _: True)
    journal.event(claim, "note", "user:ann", {"text": "ü\u2028", "rate": 0.1, "offsets": {"0": 12345678901}})
    export = tmp_path / "audit.jsonl"

    def check(text: str) -> int:
        export.write_text(text, encoding="utf-8")
        return subprocess.run([sys.executable, "-c", recipe, str(export)], capture_output=True).returncode

    good = trail_lines(*journal.trail(claim.migration_id))
    assert check(good) == 0
    assert check(good.replace("user:ann", "user:bob")) != 0
    assert check("\n".join(good.splitlines()[1:])) != 0
