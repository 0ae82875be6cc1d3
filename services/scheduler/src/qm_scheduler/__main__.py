"""`python -m qm_scheduler serve|replay|verify|openapi`."""

from qm_scheduler.app import build
from qm_scheduler.settings import Settings
from qm_service import cli


def main() -> None:
    """Run the command line of the service."""
    cli.run("scheduler", build, Settings)


if __name__ == "__main__":
    main()
