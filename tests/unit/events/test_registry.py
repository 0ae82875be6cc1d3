"""The table of all facts."""

import importlib
import inspect
import pkgutil
import re

import pytest

import qm_events
from qm_events import EventData, all_facts, fact, registry, topics_of
from qm_events.audit import AccessAudited
from qm_events.registry import ADMISSIONS, PARTITIONS, TOPICS, event

FACTS = list(all_facts())
OWNERS = {topic.owner for topic in TOPICS.values()}


def modules():
    """The modules of the owners, parts included: `admission_quota` belongs to admission."""
    names = [name for _, name, _ in pkgutil.iter_modules(qm_events.__path__)]
    return {name: importlib.import_module(f"qm_events.{name}") for name in names if name.partition("_")[0] in OWNERS}


@pytest.fixture
def own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FACTS", dict(registry._FACTS))


@pytest.mark.parametrize("cls", FACTS, ids=lambda cls: cls.wire_type)
def test_a_fact_is_in_the_module_of_the_service_that_writes_its_topic(cls):
    # `admission`, or a part of it: `admission_quota`.
    assert cls.__module__.removeprefix("qm_events.").partition("_")[0] == TOPICS[cls.topic].owner


@pytest.mark.parametrize("cls", FACTS, ids=lambda cls: cls.wire_type)
def test_a_fact_says_in_its_docstring_what_happened(cls):
    assert "__doc__" in vars(cls)
    assert len((cls.__doc__ or "").strip()) > 10


@pytest.mark.parametrize("cls", FACTS, ids=lambda cls: cls.wire_type)
def test_the_name_of_a_fact_is_noun_verb_version(cls):
    assert re.fullmatch(r"[a-z_]+\.[a-z_]+\.v[1-9]\d*", cls.wire_type)


@pytest.mark.parametrize("cls", FACTS, ids=lambda cls: cls.wire_type)
def test_a_field_that_may_be_missing_defaults_to_none(cls):
    # The encoder leaves None out and nothing else: another default would be written into facts that never had it.
    nullable = [name for name, field in cls.model_fields.items() if _may_be_none(field.annotation)]
    assert [name for name in nullable if cls.model_fields[name].get_default() is not None] == []


def _may_be_none(annotation: object) -> bool:
    return type(None) in getattr(annotation, "__args__", ())


def test_every_wire_name_has_one_class_and_every_class_one_name():
    assert len({cls.wire_type for cls in FACTS}) == len(set(FACTS)) == len(FACTS)
    assert all(fact(cls.wire_type) is cls for cls in FACTS)
    assert fact("order.painted.v1") is None


def test_every_public_class_of_an_owner_that_is_a_fact_is_registered():
    declared = {
        cls
        for module in {*modules().values(), *(importlib.import_module(cls.__module__) for cls in FACTS)}
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if issubclass(cls, EventData) and cls.__module__ == module.__name__ and not cls.__subclasses__()
    }
    assert declared == set(FACTS)


def test_a_name_that_is_used_twice_fails_at_import_with_both_classes(own_table):
    event("order.painted", version=1, topic=ADMISSIONS)(type("Painted", (EventData,), {"__module__": __name__}))
    with pytest.raises(ValueError, match=r"order\.painted\.v1 is declared twice: Painted and Repainted"):
        event("order.painted", version=1, topic=ADMISSIONS)(type("Repainted", (EventData,), {"__module__": __name__}))


def test_every_service_has_one_audit_fact():
    audits = [TOPICS[cls.topic].owner for cls in FACTS if issubclass(cls, AccessAudited)]
    assert sorted(audits) == sorted(OWNERS)


def test_every_topic_has_one_owner_and_twelve_partitions():
    assert {topic.partitions for topic in TOPICS.values()} == {PARTITIONS} == {12}
    assert sorted(topic.name for owner in OWNERS for topic in topics_of(owner)) == sorted(TOPICS)
    assert {cls.topic for cls in FACTS} == set(TOPICS)


def test_the_life_of_an_order_in_the_docstring_names_only_facts_that_exist():
    named = set(re.findall(r"`([a-z_]+\.[a-z_]+)`", registry.__doc__ or ""))
    known = {cls.wire_type.rpartition(".v")[0] for cls in FACTS}
    assert named <= known
    walk = {cls.wire_type.rpartition(".v")[0] for cls in FACTS if cls.topic in ("admissions", "environments")}
    assert {name for name in walk if name.startswith("order.")} - named == set()
