"""The spec: its model, how it is read, its trigger form, durations and windows."""
