"""What all logs do in the same way. Pure."""

from qm_service.log import Message, Position, PositionLost, Record, partition_of


def target_of(message: Message, partitions: int) -> int:
    """Return the partition that a message goes to."""
    return partition_of(message.key, partitions) if message.partition is None else message.partition


def record_of(message: Message, partition: int, offset: int) -> Record:
    """Return what a reader sees of a message."""
    return Record(message.topic, partition, offset, message.type, message.subject, message.version, message.value)


def shares(position: Position, ends: Position, limit: int, turn: int) -> Position:
    """Return how many records to take of each partition that has some: a fair share, and what others leave over.

    `turn` rotates the partitions, so that none starves where `limit` is below their number. Raises PositionLost for a
    position that the log does not cover.
    """
    for at, offset in position.items():
        if not 0 <= offset <= ends.get(at, -1):
            raise PositionLost(f"{at[0]}/{at[1]}: position {offset} is not within 0..{ends.get(at, 'nothing')}")
    ready = [(ends[at] - offset, at) for at, offset in sorted(position.items()) if ends[at] > offset]
    turn %= max(len(ready), 1)
    chosen = (ready[turn:] + ready[:turn])[:limit]
    found: Position = {}
    for i, (available, at) in enumerate(sorted(chosen)):
        found[at] = min(available, -(-limit // (len(chosen) - i)))
        limit -= found[at]
    return found


def headers_of(message: Message) -> dict[str, str]:
    """Return the attributes that travel beside the value, so that a reader can choose without parsing."""
    headers = {
        "content-type": "application/cloudevents+json",
        "ce_id": message.id,
        "ce_type": message.type,
        "ce_time": message.time,
        "ce_subject": message.subject,
        "ce_version": str(message.version),
    }
    return headers | ({"traceparent": message.traceparent} if message.traceparent else {})
