"""`python -m polyfuse`."""

from polyfuse.cli import main

if __name__ == "__main__":
    main()
