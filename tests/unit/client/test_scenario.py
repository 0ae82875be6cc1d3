"""A scenario is whole and right, or refused with every fault and its place."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from qm_client.embedded.load import calls
from qm_client.embedded.scenario import ScenarioError, load_scenario
from qm_client.embedded.up import SAMPLE

AT = datetime(2026, 6, 1, tzinfo=UTC)


def write(folder: Path, content: Any) -> Path:
    file = folder / "scenario.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


def sample() -> dict[str, Any]:
    return dict(yaml.safe_load(SAMPLE.read_text()))


def test_the_sample_is_a_scenario_and_every_part_of_it_is_loaded() -> None:
    loaded = list(calls(load_scenario(SAMPLE), AT))
    paths = {path.split("?")[0].split("/")[1] for _, path, _ in loaded}
    assert paths == {
        "tenants",
        "projects",
        "subjects",
        "accelerators",
        "specifications",
        "images",
        "models",
        "offerings",
        "quotas",
        "approval-policies",
        "fleet",
    }
    assert ("POST", "/projects/acme.vision/members", {"subject": "alice", "role": "developer"}) in loaded


def test_managers_and_groups_are_told_after_all_users(tmp_path: Path) -> None:
    users = [
        {"subject": "ann", "tenant": "acme", "manager": "bob", "groups": ["board"]},
        {"subject": "bob", "tenant": "acme"},
    ]
    world = load_scenario(write(tmp_path, {"tenants": [{"name": "acme"}], "users": users}))
    told = [(method, path, body) for method, path, body in calls(world, AT) if "acme" in path or "subjects" in path]
    assert told[-2:] == [
        ("PUT", "/subjects/ann/manager", {"tenant": "acme", "manager": "bob"}),
        ("POST", "/tenants/acme/groups/board/members", {"subject": "ann"}),
    ]
    users[0]["manager"] = "nobody"
    with pytest.raises(ScenarioError, match="names manager 'nobody'"):
        load_scenario(write(tmp_path, {"tenants": [{"name": "acme"}], "users": users}))


@pytest.mark.parametrize(
    ("change", "place", "fault"),
    [
        ({"colour": "blue"}, "colour", "Extra inputs are not permitted"),
        ({"tenants": [{"name": "No Label"}]}, "tenants.0.name", "should match pattern"),
        ({"nodes": [{"name": "n", "accelerator": "a100", "cards": -1}]}, "nodes.0.cards", "greater than or equal to 0"),
        ({"specifications": [{"name": "s", "cards_per_unit": "eight"}]}, "specifications.0.cards_per_unit", "integer"),
        ({"quotas": [{"tenant": "nobody", "limits": {}}]}, "file", "names tenant 'nobody', which is not declared"),
        (
            {"quotas": [{"tenant": "acme", "project": "x", "limits": {}}]},
            "file",
            "names project 'acme/x', which is not declared",
        ),
        ({"sick_cards": [{"card": "gpu-9-c0", "status": "failed"}]}, "file", "names card 'gpu-9-c0'"),
        (
            {"images": [{"name": "ubuntu-24-04-cuda", "service_models": ["maas"], "reference": "r"}]},
            "file",
            "names an image for bare_metal 'ubuntu-24-04-cuda'",
        ),
        ({"backends": {"teapot": {}}}, "backends.teapot", "Input should be"),
    ],
)
def test_a_fault_is_named_with_its_place(change: dict[str, Any], place: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as refused:
        load_scenario(write(tmp_path, sample() | change))
    assert any(place in line and fault in line for line in str(refused.value).splitlines()), refused.value


@pytest.mark.parametrize("content", ["a: [", "- just\n- a list", "", "\x00"])
def test_what_is_no_yaml_or_no_scenario_is_refused_in_words(content: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"scenario\.yaml"):
        load_scenario(write(tmp_path, content))


def test_a_missing_file_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="No such file"):
        load_scenario(tmp_path / "none.yaml")


def test_a_node_group_makes_equal_nodes_with_cards_of_their_own() -> None:
    group = load_scenario(SAMPLE).nodes[0]
    nodes = group.nodes()
    assert list(nodes) == ["gpu-1", "gpu-2"]
    cards = [card["card"] for node in nodes.values() for card in node["cards"]]
    assert len(set(cards)) == len(cards) == 16
