"""One YAML file a family."""
