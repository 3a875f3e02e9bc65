"""`python -m opencognit`."""

import sys

if __name__ == "__main__":
    try:
        from opencognit.cli import main

        sys.exit(main())
    except KeyboardInterrupt:  # while the command line was still being loaded
        sys.exit(130)
