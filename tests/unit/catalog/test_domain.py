"""The rules of the two kinds of streams, and what they make of wishes that come twice, late or wrong."""

from dataclasses import replace
from datetime import timedelta

import pytest

from qm_catalog.consumers import Expiries
from qm_catalog.directory import TENANT, Declare
from qm_catalog.domain import ORDER, RECORDS, Cancel, Expire, Extend, Release, Submit, digest_of
from qm_catalog.request_record import Record
from qm_events.catalog import (
    CatalogueItemStatusChanged,
    ImagePublished,
    MemberGranted,
    MemberRevoked,
    OfferingPublished,
    OrderCancelRequested,
    OrderExpired,
    OrderExtensionRequested,
    OrderReleaseRequested,
    OrderSubmitted,
    ProjectRegistered,
    SpecificationPublished,
    SubjectErased,
    SubjectRegistered,
    TenantRegistered,
)
from qm_events.specs import CatalogueStatus, FaultReport, Role, ServiceModel
from qm_service.testing.given import given
from qm_service.testing.world import START
from tests.unit.catalog.walk import ORDER as ID
from tests.unit.catalog.walk import REQUEST, SPECIFICATION, STORIES, at, fold, in_order, tell

SUBMITTED = OrderSubmitted(order=ID, request=REQUEST, digest=digest_of(REQUEST), submitted_at=START)
LIVE = {RECORDS: {ID: Record(ID)}}
FAULT = FaultReport(category="ecc", summary="errors")


def test_an_order_is_taken_with_the_digest_of_its_parameters() -> None:
    given(ORDER).when(Submit(ID, REQUEST)).then(SUBMITTED)


def test_the_same_order_is_not_taken_twice() -> None:
    given(ORDER, SUBMITTED).when(Submit(ID, REQUEST)).nothing()


def test_the_digest_follows_from_the_content_alone() -> None:
    shuffled = type(REQUEST).model_validate(dict(reversed(REQUEST.model_dump().items())))
    assert digest_of(shuffled) == digest_of(REQUEST)
    assert digest_of(REQUEST.model_copy(update={"count": 2})) != digest_of(REQUEST)


@pytest.mark.parametrize(
    ("command", "fact"),
    [
        (Cancel(ID, "why"), OrderCancelRequested(order=ID, requested_at=START, reason="why")),
        (Release(ID, FAULT), OrderReleaseRequested(order=ID, requested_at=START, fault=FAULT)),
        (Expire(ID, at(-5)), OrderExpired(order=ID, expired_at=at(-5))),
    ],
)
def test_an_order_ends_once_whoever_ends_it(command: object, fact: object) -> None:
    ended = given(ORDER, SUBMITTED).when(command, docs=LIVE).then(fact)
    for again in (Cancel(ID), Release(ID), Expire(ID, at(9))):
        given(ORDER, SUBMITTED, *ended.facts).when(again, docs=LIVE).nothing()


def test_what_is_over_is_not_ended() -> None:
    over = {RECORDS: {ID: fold(in_order(STORIES["rejected"]))}}
    for command in (Cancel(ID), Release(ID), Expire(ID, at(9))):
        given(ORDER, SUBMITTED).when(command, docs=over).nothing()
    given(ORDER, SUBMITTED).when(Extend(ID, at(99)), docs=over).refused("order-ended")


def test_an_unknown_order_cannot_be_ended() -> None:
    given(ORDER).when(Cancel(ID)).refused("not-found")


def test_an_end_moves_only_to_a_later_one() -> None:
    docs = {RECORDS: {ID: fold(STORIES["served"]["orders"][:1] + STORIES["served"]["environments"])}}
    end = at(15 + 8 * 60)
    later = end + timedelta(minutes=1)
    fact = OrderExtensionRequested(order=ID, expires_at=later, requested_at=START)
    given(ORDER, SUBMITTED).when(Extend(ID, later), docs=docs).then(fact)
    given(ORDER, SUBMITTED).when(Extend(ID, end), docs=docs).nothing()
    given(ORDER, SUBMITTED).when(Extend(ID, end - timedelta(seconds=1)), docs=docs).refused("not-an-extension")


def test_the_end_of_an_order_that_waits_for_people_or_quota_is_not_moved() -> None:
    asked = {RECORDS: {ID: fold(STORIES["served"]["orders"][:1])}}
    held = fold(STORIES["served"]["orders"][:1])
    for gate in ("approval", "quota"):
        waiting = {RECORDS: {ID: replace(held, vetted=replace(held.vetted, gate=gate))}}
        given(ORDER, SUBMITTED).when(Extend(ID, at(99_999)), docs=waiting).refused("order-waiting")
    given(ORDER, SUBMITTED).when(Extend(ID, at(99_999)), docs=asked).refused("order-waiting")


def test_the_index_knows_the_next_end_and_forgets_those_that_do_not_count() -> None:
    index = Expiries()
    waiting = fold(in_order(tell((0, SUBMITTED.model_copy(update={"request": _until(30)})))))
    index.changed(RECORDS, ID, None, waiting)
    assert index.next() == at(30)
    longer = fold(in_order(tell((0, SUBMITTED.model_copy(update={"request": _until(60)})))))
    index.changed(RECORDS, ID, waiting, longer)
    assert index.reached(at(59)) == []
    assert index.reached(at(60)) == index.reached(at(61)) == [(at(60), ID)]
    index.changed(RECORDS, ID, longer, None)
    assert index.next() is None
    assert index.reached(at(99)) == []


def _until(minute: float) -> object:
    return REQUEST.model_copy(update={"duration_seconds": None, "expires_at": at(minute)})


# ---- directory

ACME = TenantRegistered(tenant="acme", display_name="Acme")
VISION = ProjectRegistered(tenant="acme", project="vision", display_name="Vision")
PLATFORM = TenantRegistered(tenant="platform", display_name="Platform")
DORA = MemberGranted(tenant="acme", project="vision", subject="dora", role=Role.DEVELOPER)
SPEC = SpecificationPublished(specification=SPECIFICATION)
OFFERING = OfferingPublished(
    name="o", specification="gpu-2x", service_model=ServiceModel.VM, price_per_card_hour="2.5", currency="EUR"
)


@pytest.mark.parametrize("fact", [ACME, SPEC])
def test_what_is_said_again_is_no_fact(fact: object) -> None:
    given(TENANT).when(Declare(fact)).then(fact)
    given(TENANT, fact).when(Declare(fact)).nothing()


@pytest.mark.parametrize(
    ("known", "wish", "code"),
    [
        ((ACME,), ACME.model_copy(update={"timezone": "Europe/Berlin"}), "already-exists"),
        ((ACME, VISION), VISION.model_copy(update={"display_name": "Other"}), "already-exists"),
        ((), VISION, "unknown-name"),
        ((PLATFORM,), VISION.model_copy(update={"tenant": "platform"}), "platform-has-no-projects"),
        ((ACME,), DORA, "unknown-name"),
        ((ACME, VISION), DORA.model_copy(update={"role": Role.OPERATOR}), "role-out-of-place"),
        ((PLATFORM,), MemberGranted(tenant="platform", subject="x", role=Role.VIEWER), "role-out-of-place"),
        ((), OFFERING, "unknown-name"),
        ((SPEC,), OFFERING.model_copy(update={"images": ("ghost",)}), "unknown-name"),
        ((SPEC, OFFERING), OFFERING.model_copy(update={"currency": "USD"}), "already-exists"),
        ((SPEC, OFFERING), OFFERING.model_copy(update={"service_model": ServiceModel.MAAS}), "already-exists"),
        ((), CatalogueItemStatusChanged(kind="image", name="x", status=CatalogueStatus.RETIRED), "unknown-name"),
    ],
)
def test_a_wish_that_contradicts_the_directory_is_refused(known: tuple[object], wish: object, code: str) -> None:
    given(TENANT, *known).when(Declare(wish)).refused(code)


def test_a_changed_specification_is_a_new_version() -> None:
    bigger = SPECIFICATION.model_copy(update={"cpu_milli": 64_000})
    when = given(TENANT, SPEC).when(Declare(SpecificationPublished(specification=bigger)))
    assert [fact.specification.version for fact in when.facts] == [2]


def test_a_new_price_is_a_fact_and_the_same_price_is_none() -> None:
    dearer = OFFERING.model_copy(update={"price_per_card_hour": OFFERING.price_per_card_hour * 2})
    given(TENANT, SPEC, OFFERING).when(Declare(dearer)).then(dearer)
    given(TENANT, SPEC, OFFERING).when(Declare(OFFERING)).nothing()


def test_an_image_does_not_change_under_its_name() -> None:
    image = ImagePublished(name="ubuntu", service_models=(ServiceModel.VM,), reference="a")
    given(TENANT, image).when(Declare(image.model_copy(update={"reference": "b"}))).refused("already-exists")


def test_a_role_is_taken_back_once_and_can_be_given_again() -> None:
    gone = MemberRevoked(**DORA.model_dump())
    given(TENANT, ACME, VISION).when(Declare(gone)).nothing()
    given(TENANT, ACME, VISION, DORA).when(Declare(gone)).then(gone)
    given(TENANT, ACME, VISION, DORA, gone).when(Declare(gone)).nothing()
    given(TENANT, ACME, VISION, DORA, gone).when(Declare(DORA)).then(DORA)


def test_erasing_a_subject_takes_its_roles_so_that_they_can_be_given_again() -> None:
    known = SubjectRegistered(tenant="acme", subject="dora", kind="person")
    erased = SubjectErased(tenant="acme", subject="dora")
    given(TENANT, ACME, VISION, known, DORA).when(Declare(erased)).then(erased)
    given(TENANT, ACME, VISION, known, DORA, erased).when(Declare(erased)).nothing()
    given(TENANT, ACME, VISION, known, DORA, erased).when(Declare(DORA)).then(DORA)
