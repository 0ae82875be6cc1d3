"""`python -m qm_client`: the `qm` command."""

from qm_client.cli import main

main()
