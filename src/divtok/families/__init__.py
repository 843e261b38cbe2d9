"""Named presets: which generators, auxiliary, base models, theta and sampling belong together."""
