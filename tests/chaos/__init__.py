"""Migrations on real parts while processes die and wake late, and outsiders meddle; and a judge of what came of it."""
