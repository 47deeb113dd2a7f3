"""A signal is a flag that no lock can hold up."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from lab.signals import Ended, ended_on_signal


@pytest.fixture
def ended() -> Iterator[Ended]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield ended_on_signal()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_sets_it_and_ends_a_wait(ended: Ended) -> None:
    assert not ended.is_set() and not ended.wait(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
    assert ended.wait(5) and ended.is_set()


def test_a_signal_that_comes_inside_a_locked_section_is_not_held_up(ended: Ended) -> None:
    with ended._cond:  # type: ignore[attr-defined]  # what wait() of an ordinary event holds
        os.kill(os.getpid(), signal.SIGTERM)
        assert ended.is_set()
