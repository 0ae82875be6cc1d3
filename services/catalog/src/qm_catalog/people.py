"""Names and addresses of people: sealed on the log and in every projection, opened only to be shown."""

from collections.abc import Iterable, Mapping

from pydantic import BaseModel

from qm_catalog.directory import declare
from qm_catalog.forms import SubjectForm
from qm_catalog.projections import PEOPLE, Person
from qm_events.catalog import SubjectErased, SubjectRegistered
from qm_service.commands import Cause
from qm_service.runtime import Runtime
from qm_service.sealed import SubjectKeys, seal, unseal


class PersonView(BaseModel):
    """A subject as one tenant knows it; null where nothing was given or it was erased."""

    tenant: str
    subject: str
    kind: str
    display_name: str | None
    email: str | None


class People:
    """The people of all tenants. A key belongs to one tenant, so that its erasure does not reach into another."""

    def __init__(self, runtime: Runtime, keys: SubjectKeys) -> None:
        self._runtime = runtime
        self._keys = keys

    async def known(self, tenant: str, subjects: Iterable[str]) -> Mapping[str, PersonView]:
        """Return those who are registered in the tenant, by subject."""
        ids = [f"{tenant}/{subject}" for subject in subjects]
        found: dict[str, Person] = await self._runtime.docs.many(PEOPLE, ids)
        keys = await self._keys.of(*found) if found else {}
        return {person.subject: _opened(id_, person, keys.get(id_)) for id_, person in found.items()}

    async def register(self, form: SubjectForm, cause: Cause) -> PersonView:
        """Make a subject known, or change what is known. Raises what `Runtime.execute` raises."""
        wanted = PersonView(**form.model_dump())
        if (await self.known(form.tenant, [form.subject])).get(form.subject) != wanted:
            id_ = f"{form.tenant}/{form.subject}"
            key = await self._keys.ensure(id_)
            fact = SubjectRegistered(
                tenant=form.tenant,
                subject=form.subject,
                kind=form.kind,
                display_name=seal(key, id_, form.display_name) if form.display_name else None,
                email=seal(key, id_, form.email) if form.email else None,
            )
            await self._runtime.execute(declare(form.tenant, fact), cause)
        return wanted

    async def erase(self, tenant: str, subject: str, cause: Cause) -> None:
        """Forget a person for good: the key first, for the fact says that it is gone."""
        await self._keys.erase(f"{tenant}/{subject}")
        await self._runtime.execute(declare(tenant, SubjectErased(tenant=tenant, subject=subject)), cause)


def _opened(id_: str, person: Person, key: bytes | None) -> PersonView:
    return PersonView(
        tenant=person.tenant,
        subject=person.subject,
        kind=person.kind,
        display_name=unseal(key, id_, person.display_name) if person.display_name else None,
        email=unseal(key, id_, person.email) if person.email else None,
    )
