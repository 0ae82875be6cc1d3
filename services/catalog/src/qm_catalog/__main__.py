"""`python -m qm_catalog serve|replay|verify|openapi`."""

from qm_catalog.app import build
from qm_catalog.settings import Settings
from qm_service import cli


def main() -> None:
    """Run the command line of the service."""
    cli.run("catalog", build, Settings)


if __name__ == "__main__":
    main()
