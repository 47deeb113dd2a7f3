"""Make ``.env`` for docker-compose.yml: passwords and keys, made here, mode 0600. What is there is kept.

Standard library only: ``make compose-env`` needs no set-up.
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "include"))

from topicshift.core.files import write_whole  # noqa: E402

MADE: dict[str, Callable[[], str]] = {
    "POSTGRES_PASSWORD": lambda: secrets.token_hex(20),
    "AIRFLOW_ADMIN_PASSWORD": lambda: secrets.token_hex(8),
    "AIRFLOW_VIEWER_PASSWORD": lambda: secrets.token_hex(8),
    "GRAFANA_ADMIN_PASSWORD": lambda: secrets.token_hex(8),
    "AIRFLOW_FERNET_KEY": lambda: base64.urlsafe_b64encode(os.urandom(32)).decode(),
    "AIRFLOW_API_SECRET_KEY": lambda: secrets.token_hex(24),
    "AIRFLOW_JWT_SECRET": lambda: secrets.token_hex(32),
    # Where the project lies inside the image; deploy/airflow.env is filled in with it.
    "TOPICSHIFT_ROOT": lambda: "/opt/topicshift",
}


def settings_of(path: Path) -> dict[str, str]:
    """The settings that an env file has already."""
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def make(path: Path) -> list[str]:
    """Add what is missing to the file, which only its owner can read, and return the names that were added."""
    have = settings_of(path)
    added = [name for name in MADE if not have.get(name)]
    have |= {name: MADE[name]() for name in added}
    lines = ["# Secrets of docker-compose.yml, made by `make compose-env`. Never commit this file."]
    lines += [f"{name}={value}" for name, value in have.items()]
    write_whole(path, "\n".join(lines) + "\n", private=True)
    return added


def main() -> int:
    """Make ``.env`` in the project's folder."""
    path = ROOT / ".env"
    try:
        added = make(path)
    except OSError as problem:
        print(f"compose-env: {path.name} could not be written: {problem.strerror}", file=sys.stderr)
        return 2
    print(
        f"compose-env: {path.name} has {len(added)} new settings" if added else f"compose-env: {path.name} is complete"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
