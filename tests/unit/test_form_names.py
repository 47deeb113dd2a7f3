"""No file in the folder of specs takes the form away, whatever it is called and wherever it leads."""

from __future__ import annotations

import json
import os
from pathlib import Path

from topicshift.core.spec.form import form_fields


def test_a_name_that_cannot_be_offered_is_left_out_of_the_choice(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("apiVersion: topicshift/v1\n")
    (tmp_path / "long.yaml").symlink_to("x" * 300)
    (tmp_path / os.fsdecode(b"no-utf8\xff.yaml")).touch()
    choice = form_fields(tmp_path)["spec_file"]["schema"]["enum"]
    assert choice == [None, "good.yaml"]
    json.dumps(choice, ensure_ascii=False).encode()
