"""The settings of the catalog."""

from qm_service import settings


class Settings(settings.Settings):
    """Those of every service, and who may begin."""

    bootstrap_operator: str | None = None
    """The subject that becomes operator of the platform at the first start: it gives all other roles."""
