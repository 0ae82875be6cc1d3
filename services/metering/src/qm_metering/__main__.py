"""`python -m qm_metering serve|replay|verify|openapi`."""

from qm_metering.app import build
from qm_metering.settings import Settings
from qm_service.cli import run


def main() -> None:
    """Run the command line of the service."""
    run("metering", build, Settings)


if __name__ == "__main__":
    main()
