"""The generated pages are current, and no code that can be reported is left out."""

from __future__ import annotations

import re
from pathlib import Path

from tools.generate_docs import findings_page, pages, spec_page

from topicshift.core.spec.model import Spec

ROOT = Path(__file__).resolve().parents[2]


def test_the_pages_are_current() -> None:
    for name, text in pages().items():
        assert (ROOT / name).read_text("utf-8") == text, f"{name}: run tools/generate_docs.py"


def test_every_code_in_the_source_is_documented() -> None:
    page = findings_page()
    used: dict[str, Path] = {}
    for folder in ("include", "plugins", "spark_jobs", "dags"):
        for file in (ROOT / folder).rglob("*.py"):
            used |= dict.fromkeys(re.findall(r'"(TS\d{3})"', file.read_text("utf-8")), file)
    assert used
    missing = {code: str(file) for code, file in used.items() if f"| {code} |" not in page}
    assert not missing


def test_every_field_of_the_spec_is_documented() -> None:
    page = spec_page()
    for name, field in Spec.model_fields.items():
        assert f"| `{name}` |" in page and field.description
