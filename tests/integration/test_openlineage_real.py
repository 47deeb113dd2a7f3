"""What a task tells lineage, taken by the real OpenLineage provider, in a folder of its own beside Airflow.

It is no package of the project: once installed beside Airflow it is loaded by every process of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PINS = (
    "apache-airflow-providers-openlineage==2.20.3",
    "openlineage-integration-common==1.54.0",
    "openlineage-python==1.54.0",
    "openlineage-sql==1.54.0",
    "httpx2==2.16.2",
    "httpcore2==2.16.2",
    "truststore==0.10.5",
    "lazy-importer==0.1.0",
)
TASK = """
import json
from airflow.providers.openlineage.extractors.base import DefaultExtractor
from openlineage.client.naming.dataset import Kafka
from topicshift_airflow.lineage import Lineage, installed, namespace_of
from topicshift_airflow.operators.advance import AdvanceOperator

operator = AdvanceOperator(task_id="switch")
nothing = DefaultExtractor(operator).extract_on_complete(None)
operator.lineage = Lineage(namespace_of("SASL_SSL://broker-1:9093"), ("payments",), ("payments-v2",))
told = DefaultExtractor(operator).extract_on_complete(None)
print(json.dumps({
    "installed": installed(),
    "nothing": nothing is None,
    "inputs": [[d.namespace, d.name] for d in told.inputs],
    "outputs": [[d.namespace, d.name] for d in told.outputs],
    "kinds": sorted({type(d).__module__.partition(".")[0] for d in [*told.inputs, *told.outputs]}),
    "named": [[k.get_namespace(), k.get_name()] for k in [Kafka("broker-1", "9093", "payments")]],
}))
"""


@pytest.fixture(scope="module")
def provider() -> Path:
    """The folder that it is installed in, fetched once."""
    folder = ROOT / "build" / "openlineage" / "-".join(pin.rpartition("=")[2] for pin in PINS[:2])
    if not folder.is_dir():
        part = folder.with_name(f"{folder.name}.{os.getpid()}")
        uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*uv, "--python", sys.executable, "--target", str(part), *PINS], check=True, timeout=300)
        part.rename(folder)
    return folder


def test_the_provider_takes_source_and_target_by_its_own_naming_of_kafka(provider: Path, tmp_path: Path) -> None:
    path = os.pathsep.join(map(str, (ROOT / "include", ROOT / "plugins", provider)))
    env = {**os.environ, "PYTHONPATH": path, "AIRFLOW_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", TASK], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["installed"] and said["nothing"]
    assert said["inputs"] == [["kafka://broker-1:9093", "payments"]] == said["named"]
    assert said["outputs"] == [["kafka://broker-1:9093", "payments-v2"]]
    assert said["kinds"] == ["openlineage"], "the client's own datasets, not the stand-ins of a provider without it"
