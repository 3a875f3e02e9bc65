"""`python -m opencognit`."""

import sys

from opencognit.cli import main

if __name__ == "__main__":
    sys.exit(main())
