"""`python -m qm_admission serve|replay|verify|openapi`."""

from qm_admission.app import build
from qm_admission.settings import Settings
from qm_service import cli


def main() -> None:
    """Run the command line of the service."""
    cli.run("admission", build, Settings)


if __name__ == "__main__":
    main()
