"""One YAML file a benchmark."""
