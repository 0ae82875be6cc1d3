"""Integer arithmetic over half-open intervals of microseconds since 1970 in UTC: sums are exact in any order."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Return an aware instant as microseconds since 1970, exactly."""
    return (at - EPOCH) // _MICROSECOND


def instant(us: int) -> datetime:
    """Return the instant that is `us` microseconds after 1970, in UTC."""
    return EPOCH + us * _MICROSECOND


@dataclass(frozen=True, slots=True)
class Span:
    """`[start_us, end_us)`; no end: it still runs."""

    start_us: int
    end_us: int | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing lies in it, now or later."""
        return self.end_us is not None and self.end_us <= self.start_us


def clipped_us(span: Span, window: Span, now_us: int) -> int:
    """Return how much of `span` lies in `window`; a span that still runs reaches to `now_us`. Never negative."""
    end = now_us if span.end_us is None else span.end_us
    if window.end_us is not None:
        end = min(end, window.end_us)
    return max(0, end - max(span.start_us, window.start_us))


def chain(marks_us: list[int], stop_us: int | None) -> list[Span]:
    """Cut the time from the first mark to `stop_us` (None: open) at the other marks.

    A mark that lies before its predecessor or after the stop is moved to it, which makes an empty span and never a
    negative one: span for span, the lengths add up to the whole.
    """
    last = marks_us[0] if stop_us is None else max(marks_us[0], stop_us)
    cuts, reached = [], marks_us[0]
    for mark in marks_us:
        reached = max(reached, mark) if stop_us is None else min(max(reached, mark), last)
        cuts.append(reached)
    ends: list[int | None] = [*cuts[1:], None if stop_us is None else last]
    return [Span(start, end) for start, end in zip(cuts, ends, strict=True)]
