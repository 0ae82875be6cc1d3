"""What a machine finds at its first boot: a config drive with cloud-init's words for what the order asks for."""

import json
from collections.abc import Mapping
from typing import Any

BOOTSTRAP = "/opt/quartermaster/bootstrap"


def config_drive(order: str, node: str, spec: Mapping[str, Any], bootstrap: str) -> dict[str, Any]:
    """Return the drive: the user with his keys, the data folder, and `bootstrap`, the operator's script that brings
    driver and monitoring agent and registers the machine. Only public keys are in it: Ironic keeps it in its database.
    """
    user, mount = spec["user"], spec["mount"]
    known = {"order": order, "node": node, "image": spec["image"], "agents": spec["agents"]}
    cloud = {
        "hostname": node,
        "ssh_pwauth": False,
        "users": [
            {
                "name": user,
                "shell": "/bin/bash",
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "lock_passwd": True,
                "ssh_authorized_keys": list(spec["keys"]),
            }
        ],
        "write_files": [_file("/etc/quartermaster/environment.json", json.dumps(known), "0644")]
        + ([_file(BOOTSTRAP, bootstrap, "0755")] if bootstrap else []),
        "runcmd": [["mkdir", "-p", mount], ["chown", user, mount], *([[BOOTSTRAP]] if bootstrap else [])],
    }
    return {
        "meta_data": {"uuid": order, "name": node, "hostname": node},
        # JSON is YAML.
        "user_data": f"#cloud-config\n{json.dumps(cloud, indent=1)}\n",
    }


def _file(path: str, content: str, permissions: str) -> dict[str, str]:
    return {"path": path, "content": content, "permissions": permissions}
