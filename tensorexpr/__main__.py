"""`python -m tensorexpr`: the command line (see `tensorexpr.cli`)."""

from tensorexpr.cli.main import main

raise SystemExit(main())
