"""The service models. A new one is a file beside these and a line in the table."""

from collections.abc import Mapping

from qm_provisioner.models.bare_metal import BARE_METAL
from qm_provisioner.models.kubernetes import KUBERNETES
from qm_provisioner.models.maas import MAAS
from qm_provisioner.models.vm import VM
from qm_provisioner.steps import Model

MODELS: Mapping[str, Model] = {model.name: model for model in (BARE_METAL, VM, KUBERNETES, MAAS)}
"""By the name that an order asks for."""
