"""Fakes that ship: a cluster, controllers, a journal and a clock that keep the contracts of the ports."""
