"""One module per revision; :data:`topicshift.adapters.journal.schema.REVISIONS` names them in order."""
