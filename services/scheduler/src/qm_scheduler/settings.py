"""The settings of the scheduler: those of every service."""

from qm_service.settings import Settings

__all__ = ["Settings"]
