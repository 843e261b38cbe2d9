"""How a question is asked, and where in a response its answer is: prompts and extraction."""
