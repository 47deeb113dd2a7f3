"""Requests to an application's own interface, and what its answers say. Pure."""
