"""The configuration of a run: `tree` reads strict YAML, `run` gives it a meaning."""
