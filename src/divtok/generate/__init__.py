"""From a problem to a trajectory: sampled tokens that are never changed again."""
