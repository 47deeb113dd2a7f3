"""Triggers: waits in the triggerer that hold no worker."""
