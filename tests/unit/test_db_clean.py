"""`airflow db clean` takes nothing of the audit trail, also where the journal shares Airflow's own database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.log import Log
from airflow.utils.db_cleanup import config_dict, run_cleanup
from sqlalchemy.orm import Session

from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.journal.tables import metadata
from topicshift.core.proof import audit


def test_the_trail_survives_airflow_db_clean(tmp_path: Path) -> None:
    assert not {name for name in config_dict if name.startswith("topicshift")}
    url = f"sqlite:///{tmp_path / 'airflow.db'}"
    engine = sa.create_engine(url)
    import_all_models()
    Base.metadata.create_all(engine)
    journal = SqlJournal(url)
    topics = {"source": "payments", "target": "payments-v2"}
    claim = journal.claim(cluster_id="c", owner="d/r", spec={}, owner_alive=lambda _: True, **topics)
    journal.intend(claim, "create_target", {})
    tables = [table.name for table in metadata.sorted_tables]

    def counted(connection: Any) -> dict[str, int]:
        return {t: connection.execute(sa.text(f"SELECT count(*) FROM {t}")).scalar() for t in tables}

    with Session(engine) as session:
        session.add(Log(event="old", dttm=datetime(2020, 1, 1, tzinfo=UTC)))
        session.commit()
        before = counted(session)
        later = datetime.now(UTC) + timedelta(days=1)
        run_cleanup(clean_before_timestamp=later, confirm=False, skip_archive=True, session=session)
        assert session.scalar(sa.select(sa.func.count()).select_from(Log)) == 0, "it did clean"
        assert counted(session) == before and before["topicshift_events"] == 2
    head, events = journal.trail(claim.migration_id)
    assert audit.verify(events, head, migration_id=claim.migration_id) == []
    journal.close()
