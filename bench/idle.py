"""What `qm up` costs before anybody orders anything: the time until it serves, and its memory at rest."""

import tempfile
import time
from pathlib import Path

from bench.figures import Figure
from bench.served import embedded

_SETTLE_SECONDS = 3.0


def idle(_: bool) -> list[Figure]:
    """Start the sample world twice: the second start finds its data, as every later one does."""
    with tempfile.TemporaryDirectory(prefix="qm-bench-") as folder:
        data = Path(folder) / "data"
        with embedded(data) as product:
            first = product.serving_seconds
        with embedded(data) as product:
            again = product.serving_seconds
            used = product.cpu_seconds()
            time.sleep(_SETTLE_SECONDS)
            busy = (product.cpu_seconds() - used) / _SETTLE_SECONDS * 100
            memory = product.rss_bytes() / 2**20
    return [
        Figure("qm up, exec to serving, first start", first, "s", 5.0, "<="),
        Figure("qm up, exec to serving, later start", again, "s", 5.0, "<="),
        Figure("qm up, memory at rest", memory, "MiB", 250.0, "<="),
        Figure("qm up, CPU at rest", busy, "% of a core"),
    ]
