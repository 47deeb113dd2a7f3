"""The promises that a history is judged by: one function a promise, one module a subject."""
