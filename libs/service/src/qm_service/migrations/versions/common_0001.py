"""The tables of every service as of the first release. They may exist: a service that starts creates what is missing."""

import sqlalchemy as sa
from alembic import op

revision = "common_0001"
down_revision = None
branch_labels = ("common",)
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")
ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    for name, items in TABLES.items():
        op.create_table(name, *items, if_not_exists=True)
    op.create_index("events_relay", "events", ["xid", "id"], if_not_exists=True)


TABLES = {
    "events": (
        sa.Column("id", ID, primary_key=True),
        sa.Column("xid", sa.BigInteger, nullable=False),
        sa.Column("stream", KEY, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("topic", sa.String, nullable=False),
        sa.Column("type", sa.String, nullable=False),
        sa.Column("time", sa.String, nullable=False),
        sa.Column("traceparent", sa.String),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("stream", "version"),
    ),
    "positions": (
        sa.Column("consumer", sa.String, primary_key=True),
        sa.Column("topic", sa.String, primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
    ),
    "seen": (sa.Column("stream", KEY, primary_key=True), sa.Column("version", sa.Integer, nullable=False)),
    "cursors": (
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("xid", sa.BigInteger, nullable=False),
        sa.Column("id", sa.BigInteger, nullable=False),
    ),
    "lease": (
        sa.Column("service", sa.String, primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.String, nullable=False),
        sa.Column("beat", sa.BigInteger, nullable=False),
    ),
    "idempotency": (
        sa.Column("key", KEY, primary_key=True),
        sa.Column("request", sa.String, nullable=False),
        sa.Column("stream", sa.String, nullable=False),
        sa.Column("first_version", sa.Integer, nullable=False),
        sa.Column("last_version", sa.Integer, nullable=False),
    ),
    "parked": (
        sa.Column("id", ID, primary_key=True),
        sa.Column("topic", sa.String, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("offset", sa.BigInteger, nullable=False),
        sa.Column("stream", KEY, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("type", sa.String, nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("parked_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("stream", "version"),
    ),
    "discarded": (sa.Column("stream", KEY, primary_key=True), sa.Column("version", sa.Integer, primary_key=True)),
    "effects": (
        sa.Column("reactor", sa.String, primary_key=True),
        sa.Column("key", KEY, primary_key=True),
        sa.Column("done_at", sa.BigInteger, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
    ),
    "built": (sa.Column("name", sa.String, primary_key=True), sa.Column("version", sa.Integer, primary_key=True)),
}
