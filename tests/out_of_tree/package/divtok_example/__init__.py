"""One thing of every kind that divtok can be extended with, each in a file of its own."""
