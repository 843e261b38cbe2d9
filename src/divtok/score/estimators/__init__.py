"""One file an idea, with the estimators made of it; importing it registers them."""
