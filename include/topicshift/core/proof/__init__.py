"""The proofs: order per key, what was read, the journal's hash chain, when the source may go."""
