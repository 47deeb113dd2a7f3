"""Settings of kind ``flink``: of a job from a jar, of one from SQL, and of a FlinkDeployment.

See ``docs/participants/flink.md``.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from topicshift.core.base import Model
from topicshift.core.spec.duration import Duration
from topicshift.core.spec.fields import SECRET, ConnectionId, no_secret

LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""Name of a namespace or of a container of Kubernetes."""

OBJECT = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
"""Name of an object of Kubernetes, in the middle of a pattern."""

_TOPIC = r"^[A-Za-z0-9._-]{1,249}$"
_WORD_IN = r"^(env:[A-Za-z_.-][A-Za-z0-9_.-]*|args|config:[A-Za-z0-9._-]{1,253})$"

_QUOTED = re.compile(r"'([^']*)'")
_OPTION = re.compile(r"'([^']+)'\s*=")
"""The name of an option or a setting in a statement."""


class FlinkJob(Model):
    """What the spec says of a job, whoever starts it."""

    source_uid: str | None = Field(default=None, min_length=1, max_length=500)
    """(consumers) The uid of the source that reads the topic, as it is today."""
    target_uid: str | None = Field(default=None, min_length=1, max_length=500)
    """(consumers) Its uid on the target; the present one with the target's name behind it where it is left out."""
    starts_at: Literal["committed", "committed_or_earliest", "earliest", "latest"] | None = None
    """(consumers) Where a source without state begins."""
    sinks: list[Annotated[str, Field(pattern=_TOPIC)]] = Field(default=[], max_length=50)
    """(consumers) The topics that it writes to in transactions."""
    transactional_id_prefix: str | None = Field(default=None, min_length=1, max_length=200)
    """What the ids of its transactions begin with; left out where it writes in none."""


class FlinkSession(FlinkJob):
    """Of a job of a session cluster, whatever it is made from."""

    job: str = Field(min_length=1, max_length=500)
    """The job's name, which no other job of that JobManager has."""
    parallelism: int | None = Field(default=None, ge=1, le=32768)
    """Its parallelism; what it has when it is stopped where it is left out."""
    start_parallelism: int | None = Field(default=None, ge=1, le=32768)
    """(consumers) The lower parallelism with which it starts on the target."""
    raise_below: int = Field(default=1000, ge=1)
    """Lag in records below which it has to stay before its parallelism is raised."""
    raise_after: Duration = timedelta(seconds=60)
    """How long it has to stay there."""
    savepoints: str | None = Field(default=None, min_length=1, max_length=1000)
    """The folder of its savepoints; what its JobManager is configured with where it is left out."""
    connection: ConnectionId = "flink_default"
    """The connection with the address of the JobManager, and the log-in."""

    @property
    def texts(self) -> list[str]:
        """The texts in which topic and uid stand."""
        raise NotImplementedError

    @property
    def values(self) -> list[str]:
        """The values that these texts give to options, each for itself."""
        return self.texts

    @model_validator(mode="after")
    def _placed(self) -> Self:
        if not any("{topic}" in text for text in self.texts):
            raise ValueError(f"{self._where} has {{topic}} nowhere, so the job could not be pointed to another topic")
        if self.start_parallelism and self.parallelism and self.start_parallelism >= self.parallelism:
            raise ValueError("start_parallelism has to be lower than parallelism")
        return self

    _where: ClassVar[str]


class FlinkSettings(FlinkSession):
    """Of a job from a jar."""

    jar: str = Field(min_length=1, max_length=500)
    """The file name of the jar that it is made from, as uploaded."""
    args: list[str] = Field(min_length=1, max_length=200)
    """The program's arguments, with ``{topic}`` where the topic stands, and ``{uid}`` where its source's uid does."""
    entry_class: str | None = Field(default=None, pattern=r"^[A-Za-z_$][A-Za-z0-9_$.]{0,300}$")
    """The class to run; what the jar says where it is left out."""

    _where = "args"

    @property
    def texts(self) -> list[str]:
        """Its arguments."""
        return self.args


class FlinkSqlSettings(FlinkSession):
    """Of a job from SQL, which a SQL Gateway submits from a compiled plan."""

    plan: str = Field(pattern=r"^[^'\x00-\x1f]{1,1000}$")
    """The file of its compiled plan, as the gateway sees it, with ``{uid}`` where its name has the source's uid."""
    statements: list[Annotated[str, Field(min_length=1, max_length=20_000)]] = Field(min_length=1, max_length=100)
    """What makes its tables known, with ``{topic}`` where the topic stands."""
    gateway: ConnectionId = "flink_sql_default"
    """The connection with the address of the SQL Gateway, and the log-in."""

    _where = "statements"

    @field_validator("statements")
    @classmethod
    def _without_secrets(cls, statements: list[str]) -> list[str]:
        for name in (found[1] for s in statements for found in _OPTION.finditer(s)):
            if SECRET.search(name):
                raise ValueError(no_secret(name, "a catalog or the gateway's configuration"))
        return statements

    @property
    def texts(self) -> list[str]:
        """Its statements."""
        return self.statements

    @property
    def values(self) -> list[str]:
        """Every text in quotes."""
        return [value for s in self.statements for value in _QUOTED.findall(s)]


class FlinkDeploymentSettings(FlinkJob):
    """Of a job that the Flink Kubernetes Operator runs for a FlinkDeployment."""

    deployment: str = Field(pattern=rf"^{OBJECT}$")
    """The name of its FlinkDeployment."""
    namespace: str = Field(pattern=LABEL)
    """Its namespace."""
    topic_in: str = Field(pattern=_WORD_IN)
    """Where its topic is named: ``args`` (of the job), ``env:VARIABLE`` (of its pods) or ``config:KEY`` (of Flink)."""
    uid_in: str | None = Field(default=None, pattern=_WORD_IN)
    """(consumers) Where the uid of its source is named; where its topic is where it is left out."""
    connection: ConnectionId = "kubernetes_default"
    """The connection that names the API server and the log-in."""
