"""Comparing answers as mathematics: exact rules, and algebra in processes that can be killed."""
