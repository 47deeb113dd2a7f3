"""Adapters: the ports of :mod:`topicshift.ports` over real systems."""
