"""`python -m divtok`: the same as the console script."""

from divtok.cli import main

if __name__ == "__main__":
    main()
