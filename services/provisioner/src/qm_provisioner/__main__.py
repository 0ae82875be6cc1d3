"""`python -m qm_provisioner serve|replay|verify|openapi`."""

from qm_provisioner.app import build
from qm_provisioner.settings import Settings
from qm_service import cli


def main() -> None:
    """Run the command line of the service."""
    cli.run("provisioner", build, Settings)


if __name__ == "__main__":
    main()
