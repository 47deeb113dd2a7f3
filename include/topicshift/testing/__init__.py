"""Fakes that ship, the embedded broker, the stack and the live load generator."""
