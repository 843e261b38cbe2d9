"""One file a kind of evidence; importing it registers it."""
