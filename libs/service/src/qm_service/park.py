"""What becomes of a record that a rule cannot handle: it delays its own stream, or (for billing) its partition."""

from datetime import datetime
from enum import Enum
from typing import Any

from qm_service.log import Record


class ParkPolicy(Enum):
    """PARK_STREAM keeps the partition moving: the record and later ones of its stream wait in the table `parked`.
    HALT_PARTITION reads no further in that partition, for folds that may not miss anything."""

    PARK_STREAM = "park_stream"
    HALT_PARTITION = "halt_partition"


PARK_STREAM = ParkPolicy.PARK_STREAM
HALT_PARTITION = ParkPolicy.HALT_PARTITION

_ERROR_LENGTH = 2_000
WAITS = "waits behind an earlier fact of its stream"


def parked_row(record: Record, error: str, now: datetime) -> dict[str, Any]:
    """Return the row of a record that waits, with its bytes as they were."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "stream": record.subject,
        "version": record.version,
        "type": record.type,
        "value": record.value,
        "error": error[:_ERROR_LENGTH],
        "parked_at": now,
    }


def failed_row(row: int, error: str) -> dict[str, Any]:
    """Return what changes in the row of a record that failed again."""
    return {"row": row, "why": error[:_ERROR_LENGTH]}


def parked_record(row: Any) -> Record:
    """Return the record of a row."""
    return Record(row.topic, row.partition, row.offset, row.type, row.stream, row.version, row.value)
