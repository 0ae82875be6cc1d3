"""Where `qm login` keeps address and token for the commands that follow: one file, readable by its owner alone."""

import json
import os
from pathlib import Path

from qm_client.sdk import Client

DEFAULT_URL = "http://127.0.0.1:8080"


def session_file() -> Path:
    """Return the path of the session file."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(os.environ.get("QM_SESSION", f"{base}/quartermaster/session.json"))


def save_session(url: str, token: str) -> Path:
    """Write the session, mode 0600 from the first byte."""
    path = session_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(json.dumps({"url": url, "token": token}))
    return path


def open_session() -> Client:
    """Return a client for the saved session; QM_URL and QM_TOKEN override it."""
    try:
        saved = json.loads(session_file().read_text())
    except (OSError, ValueError):
        saved = {}
    url = os.environ.get("QM_URL") or saved.get("url") or DEFAULT_URL
    return Client(url, os.environ.get("QM_TOKEN") or saved.get("token"))
