"""`python -m fsspeckit` runs the command line."""

from fsspeckit.cli import main

if __name__ == "__main__":
    main()
