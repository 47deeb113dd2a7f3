"""Objects of one namespace at an API server: how they are read, changed, and asked about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from topicshift.adapters.rest import Ask, Conflict
from topicshift.core.errors import NotFound, Unreadable
from topicshift.core.kubernetes.workload import Json, differing, not_as_written

_CONFLICTS = 4
MANAGER = "topicshift"
"""Name under which the API server notes the fields that were written."""

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

Right = tuple[str, str, str, str]
"""Verb, API group, resource (a subresource behind a slash), and name (empty: any)."""


@dataclass(frozen=True)
class Objects:
    """What is asked about the objects of a namespace."""

    ask: Ask
    namespace: str

    def get(self, path: str, what: str) -> Json:
        """An object. Raises ``NotFound`` in words, and ``Unreadable`` for an answer that is none."""
        try:
            found = self.ask("GET", path, None)
        except NotFound:
            raise NotFound(
                f"its API server knows no {what} in namespace {self.namespace}; see name, namespace and connection."
            ) from None
        if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
            raise Unreadable(f"what its API server says of {what} is not understood")
        return found

    def listed(self, path: str) -> list[Json]:
        """Every object of a list. Raises ``Unreadable`` for one that is not whole."""
        found = self.ask("GET", path, None)
        items = found.get("items") if isinstance(found, dict) else None
        if not isinstance(items, list) or (found.get("metadata") or {}).get("continue"):
            raise Unreadable(f"the list {path} is not understood, or not whole")
        return items

    def may(self, right: Right) -> bool:
        """Whether the connection has a right, as its API server says. Raises ``Unreadable``."""
        verb, group, resource, name = right
        resource, _, subresource = resource.partition("/")
        asked = {"namespace": self.namespace, "verb": verb, "group": group, "resource": resource, "name": name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked | ({"subresource": subresource} if subresource else {})},
        }
        answer = self.ask("POST", REVIEWS, review)
        try:
            allowed = answer["status"]["allowed"]
        except (KeyError, TypeError):
            raise Unreadable(f"whether its connection may {right_text(right)} is not understood") from None
        return allowed is True

    def change(
        self,
        path: str,
        alter: Callable[[Json], Json],
        still: Callable[[], None],
        say: Callable[[Mapping[str, Any]], None],
    ) -> bool:
        """Read, alter and write an object; whether it was written.

        The write names the version that was read: where somebody else has written meanwhile, it is read and altered
        anew. ``still`` is called just before each write; what shows otherwise than it was written is said.
        """
        for left in reversed(range(_CONFLICTS)):
            seen = self.get(path, path.rsplit("/", 1)[1])
            wanted = alter(seen)
            if not differing(seen, wanted):
                return False
            still()
            try:
                shown = self.ask("PUT", f"{path}?fieldManager={MANAGER}", wanted)
            except Conflict:
                if not left:
                    raise
                continue
            others = not_as_written(seen, wanted, shown)
            if others:
                say({"moment": "write", "object": path, "differs": ", ".join(others[:10])})
            return True
        raise AssertionError("the last try answers or raises")


def right_text(right: Right) -> str:
    """A right, in words."""
    verb, group, resource, name = right
    return f"{verb} {resource}{f'.{group}' if group else ''}{f' {name}' if name else ''}"
