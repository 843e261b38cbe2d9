"""The families that ship with divtok, one YAML file each."""
