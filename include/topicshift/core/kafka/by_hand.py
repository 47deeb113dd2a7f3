"""Kafka's own commands for what a person does by hand, exact but for the brokers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from shlex import quote

_WHERE = "--bootstrap-server BROKERS"


def delete_topic(topic: str) -> str:
    """The command that deletes a topic."""
    return f"kafka-topics.sh {_WHERE} --delete --topic {quote(topic)}"


def lift_deny(topic: str, principal: str, operations: Iterable[str]) -> str:
    """The command that removes DENY bindings of one principal on one topic, for any host."""
    each = " ".join(f"--operation {o.capitalize()}" for o in sorted(set(operations)))
    return f"kafka-acls.sh {_WHERE} --remove --force --topic {quote(topic)} --deny-principal {quote(principal)} {each}"


def lift_all(acls: Iterable[Mapping[str, str]]) -> str:
    """The commands that remove these DENY bindings, given as plain values, one after the other."""
    found = dict[tuple[str, str], set[str]]()
    for acl in acls:
        found.setdefault((acl["name"], acl["principal"]), set()).add(acl["operation"])
    return "; ".join(lift_deny(topic, principal, operations) for (topic, principal), operations in found.items())
