"""Links on tasks: to the evidence that a step wrote, to the page of its migration, and to Spark's own pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

MOUNT = "/topicshift"
"""Where the plugin mounts :mod:`topicshift_airflow.web`."""

ASSESSMENT = "assessment-"
"""How the folder of an assessment's evidence begins; the journal has none of them."""


def page_of(evidence_url: str) -> str:
    """Where a person's browser can open a file of evidence; nothing for nothing.

    Airflow's pages drop every link that is neither ``http`` nor their own, so a local folder or a bucket is shown by
    the plugin. What is on the web already stays where it is.
    """
    if not evidence_url or evidence_url.startswith(("http://", "https://")):
        return evidence_url
    folder, _, name = evidence_url.rpartition("/")
    return f"{index_page()}{quote(unquote(folder.rpartition('/')[2]))}/{quote(unquote(name))}"


def index_page() -> str:
    """The page that lists migrations, the open ones first, with their evidence."""
    return f"{mounted_path()}/evidence/"


def start_page() -> str:
    """The page with drafts to begin with, and with the migrations that an order may be given to."""
    return f"{mounted_path()}/start"


def run_page(dag_id: str, run_id: str) -> str:
    """The page of the migration that a run owns, or has owned."""
    return f"{mounted_path()}/run?dag_id={quote(dag_id, safe='')}&run_id={quote(run_id, safe='')}"


def migration_page(migration_id: str) -> str:
    """The page of one migration."""
    return f"{mounted_path()}/migrations/{quote(migration_id, safe='')}"


def mounted_path() -> str:
    """The path of the plugin's pages, under the one at which Airflow is served."""
    return f"{airflow_path()}{MOUNT}"


def airflow_path() -> str:
    """The path under which Airflow is served, without a slash at its end."""
    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")


class EvidenceLink(BaseOperatorLink):
    """Where the step's report or evidence file lies. Operators set ``evidence_url`` while they run."""

    name = "Evidence"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """A link to the file that this task wrote, or nothing."""
        return page_of(str(getattr(operator, "evidence_url", "")))


class MigrationLink(BaseOperatorLink):
    """The page of the migration that a task works on. Operators that work on another run's set ``migration_id``."""

    name = "Topic migration"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """A link to the page; there from the moment at which the task first waits or ends."""
        other = str(getattr(operator, "migration_id", ""))
        return migration_page(other) if other else run_page(ti_key.dag_id, ti_key.run_id)


class SparkLink(BaseOperatorLink):
    """Spark's page of the application that a task has run, where ``topicshift.ui`` of the Spark connection says."""

    name = "Spark UI"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """A link to Spark's page, or nothing where the connection names none."""
        return str(getattr(operator, "spark_ui", ""))


LINKS = (MigrationLink(), EvidenceLink())
"""Links of a task that works on a migration."""
