"""The fence: when nothing is written to the source any more, and the DENY that holds it."""
