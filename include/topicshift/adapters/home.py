"""Where Topicshift keeps what it is not told another place for."""

from __future__ import annotations

import os
from pathlib import Path


def topicshift_home() -> Path:
    """``TOPICSHIFT_HOME``, or ``topicshift`` under ``AIRFLOW_HOME`` (``~/airflow``); absolute."""
    own = os.environ.get("TOPICSHIFT_HOME") or f"{os.environ.get('AIRFLOW_HOME') or '~/airflow'}/topicshift"
    return Path(own).expanduser().absolute()
