"""Links on tasks: from a step to the evidence it wrote."""

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
