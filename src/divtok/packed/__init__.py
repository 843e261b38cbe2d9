"""A transformers model run on tokens laid end to end, without padding: for reading and writing."""
