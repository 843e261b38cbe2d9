"""One file a divergence; importing it registers it."""
