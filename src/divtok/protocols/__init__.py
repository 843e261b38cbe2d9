"""How a question is asked, and where a response holds its answer: one protocol a file in kinds/."""
