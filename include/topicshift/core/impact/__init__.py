"""The key-rehash impact: the report, how partitioners are told apart, sampling and skew."""
