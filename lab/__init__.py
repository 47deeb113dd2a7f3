"""The laboratory: an embedded broker, the whole stack, live load and the demo. Not in the wheel."""
