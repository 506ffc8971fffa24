"""`python -m fsspeckit` is `fsspeckit`."""

from fsspeckit.cli import main

if __name__ == "__main__":
    main()
