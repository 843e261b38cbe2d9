"""UQAC: the response tokens that attention links to the answer."""
