"""`python -m polysweep`."""

from polysweep import main

if __name__ == "__main__":
    main()
