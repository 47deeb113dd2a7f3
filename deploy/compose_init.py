"""The ``init`` service of docker-compose.yml: bring Airflow's database to its schema, and write the log-ins.

``python -m deploy.compose_init``; settings come from the environment, as for every service of Airflow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lab.runfolder import write_private

PASSWORDS = {"admin": "AIRFLOW_ADMIN_PASSWORD", "viewer": "AIRFLOW_VIEWER_PASSWORD"}


def write_passwords() -> Path:
    """Write SimpleAuthManager's file (mode 0600) from the environment.

    Raises:
        KeyError: a variable is not set.
    """
    path = Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_private(path, json.dumps({user: os.environ[name] for user, name in PASSWORDS.items()}) + "\n")


def main() -> int:
    """Write the log-ins and migrate the database; Airflow's exit code, or 2 where a variable is missing."""
    try:
        write_passwords()
    except KeyError as missing:
        print(f"error: {missing} is not set. Run make compose-env, which writes it into .env.", file=sys.stderr)
        return 2
    code = subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=False).returncode
    if code == 0:
        print("log in at http://localhost:8080 as admin with AIRFLOW_ADMIN_PASSWORD of .env")
    return code


if __name__ == "__main__":
    sys.exit(main())
