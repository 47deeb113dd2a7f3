"""The steps of the protocol: observe, decide, write the intent, act, observe again. Ports only."""
