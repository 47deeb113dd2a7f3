"""A client's own talk does not bury the one line that matters."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from topicshift.quiet import quiet


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    logger = logging.getLogger("kafka")
    before = logger.level
    logger.setLevel(logging.NOTSET)
    yield
    logger.setLevel(before)


@pytest.mark.parametrize("wholly", [False, True])
def test_what_no_reader_can_act_on_is_not_said(
    wholly: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOPICSHIFT_DEBUG", raising=False)
    quiet(wholly=wholly)
    logging.getLogger("kafka.net.sasl.plain").warning("Sending username and password in the clear")
    logging.getLogger("kafka.net.selector").warning("Task left RUNNING after step")
    logging.getLogger("kafka.net.manager").info("connected")
    assert not caplog.messages
    logging.getLogger("kafka.net.connection").error("Connection lost")
    assert bool(caplog.messages) is not wholly, "a task's log keeps what may explain a failure"


def test_all_is_said_where_somebody_looks_for_a_fault(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICSHIFT_DEBUG", "1")
    quiet(wholly=True)
    logging.getLogger("kafka.net.sasl.plain").warning("Sending username and password in the clear")
    assert caplog.messages
