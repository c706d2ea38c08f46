"""`python -m applier`."""

from applier.cli import main

main()
