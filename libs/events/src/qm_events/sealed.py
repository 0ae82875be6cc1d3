"""Personal fields in facts. The bytes on the log are sealed with a key of their subject that is kept outside the log,
so that a person can be erased from a log that is kept for ever; without the key a field reads as `Redacted`."""

from typing import Annotated

from pydantic import StringConstraints

REDACTED = "[redacted]"
"""What a sealed field reads as when its key was erased or was never here."""

Sealed = Annotated[str, StringConstraints(pattern=r"^sealed:v1:[A-Za-z0-9_-]+:[A-Za-z0-9_-]+$")]
"""`sealed:v1:<nonce>:<ciphertext>`, AES-256-GCM with the subject's id as associated data; see `qm_service.sealed`."""
