import sys

from electra.cli import main

sys.exit(main())
