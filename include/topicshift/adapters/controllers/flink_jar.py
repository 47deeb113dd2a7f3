"""A Flink job that is made from a jar: what would keep it from being started, and how it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from topicshift.adapters.controllers.flink_access import Access, Snapshot
from topicshift.adapters.rest import Ask
from topicshift.core.errors import Transient
from topicshift.core.flink.job import filled, newest_jar
from topicshift.core.spec.flink import FlinkSettings
from topicshift.ports import ControlContext, Participant


def _settings(who: Participant) -> FlinkSettings:
    """Of a participant. The spec has checked them."""
    return FlinkSettings.model_validate(dict(who.settings))


@dataclass(frozen=True)
class JarAccess(Access):
    """What is asked about one job from a jar."""

    id_in: ClassVar[str] = "jobId of POST /jars/ID/run"

    @classmethod
    def of(
        cls, ask_of: Callable[[str], Ask], who: Participant, ctx: ControlContext, told: Sequence[Mapping[str, Any]]
    ) -> JarAccess:
        """What is asked about a participant's job, at the JobManager of its connection."""
        return cls(ask_of(_settings(who).connection), who, ctx, told)

    @property
    def settings(self) -> FlinkSettings:
        """The settings of its participant."""
        return _settings(self.who)

    def jar(self) -> tuple[str, list[str]] | None:
        """Id and entry classes of its jar; None where none of that name is there."""
        return self._read("/jars", lambda answer: newest_jar(answer, self.settings.jar))

    def cannot_begin(self, config: Any, version: tuple[int, int]) -> Iterator[str]:
        """What is wrong with its jar."""
        if not (config.get("features") or {}).get("web-submit"):
            yield "its JobManager takes no jars (web.submit.enable), so nobody could start it on the target"
            return
        found = self.jar()
        if found is None:
            yield (
                f"its JobManager has no jar {self.settings.jar!r}: upload it (POST /jars/upload). A job from SQL has "
                "none; name its `plan`"
            )
        elif not found[1] and not self.settings.entry_class:
            yield f"its jar {self.settings.jar} names no class to run; see `entry_class`"

    def begin(self, jid: str, topic: str, snapshot: Snapshot, parallelism: int) -> None:
        """Run its jar. Raises ``Transient`` where it is not there."""
        found = self.jar()
        if found is None:
            raise Transient(f"its JobManager has no jar {self.settings.jar!r} (any more): upload it again")
        body: dict[str, Any] = {
            "programArgsList": filled(self.settings.args, topic, self.uid(topic)),
            "parallelism": parallelism,
            "savepointPath": snapshot.path,
            "allowNonRestoredState": self.leaves(topic, snapshot),
            "jobId": jid,
        }
        if self.settings.entry_class:
            body["entryClass"] = self.settings.entry_class
        self.ctx.still()
        self.ask("POST", f"/jars/{quote(found[0], safe='')}/run", body)
