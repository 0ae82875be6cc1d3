"""The settings of the bare-metal backend, and the config drive."""

import json
from pathlib import Path

import pytest

from qm_provisioner.adapters.ironic_api import check_address, connection
from qm_provisioner.adapters.ironic_drive import BOOTSTRAP, config_drive
from qm_provisioner.adapters.ironic_setup import bare_metal
from qm_provisioner.settings import Settings

SPEC = {"user": "qm", "mount": "/data", "image": "ubuntu", "agents": ["driver"], "keys": ["ssh-ed25519 AAAA own"]}


@pytest.mark.parametrize("url", ["http://host", "ironic+ftp://host", "ironic+http://", "ironic+cloud://", "host"])
def test_an_address_that_is_none_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ValueError, match="the address of Ironic reads") as refused:
        check_address(url)
    assert "host/" not in str(refused.value)


@pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning")  # of what it does itself
def test_the_sdk_repeats_nothing_by_itself() -> None:
    for url in ("ironic+http://127.0.0.1:1", "ironic+http://user:secret@127.0.0.1:1"):
        config = connection(url).config
        assert (config.get_status_code_retries("baremetal"), config.get_connect_retries("baremetal")) == (0, 0)


def test_a_password_is_in_no_repr_of_the_settings() -> None:
    assert "secret" not in repr(Settings(bare_metal_url="ironic+http://user:secret@host"))


def test_a_machine_gets_user_keys_folder_and_bootstrap_with_its_first_boot() -> None:
    drive = config_drive("o1", "n1", SPEC, "#!/bin/sh\necho here\n")
    cloud = json.loads(drive["user_data"].removeprefix("#cloud-config\n"))
    (user,) = cloud["users"]
    assert (user["name"], user["ssh_authorized_keys"], user["lock_passwd"]) == ("qm", SPEC["keys"], True)
    assert cloud["runcmd"][-1] == [BOOTSTRAP]
    files = {file["path"]: file["content"] for file in cloud["write_files"]}
    assert json.loads(files["/etc/quartermaster/environment.json"])["order"] == "o1"
    assert "echo here" in files[BOOTSTRAP]


def test_without_a_bootstrap_the_image_is_taken_as_it_is() -> None:
    assert BOOTSTRAP not in config_drive("o1", "n1", SPEC, "")["user_data"]


def test_a_bootstrap_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        bare_metal(Settings(bare_metal_url="ironic+http://host", bare_metal_bootstrap=tmp_path / "missing"))
