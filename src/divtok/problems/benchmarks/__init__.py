"""The benchmarks that ship with divtok, one YAML file each."""
