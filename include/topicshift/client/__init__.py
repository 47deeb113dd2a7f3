"""The shipped Python client of the route protocol."""
