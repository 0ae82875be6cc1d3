"""The settings of metering: those of every service."""

from qm_service.settings import Settings

__all__ = ["Settings"]
