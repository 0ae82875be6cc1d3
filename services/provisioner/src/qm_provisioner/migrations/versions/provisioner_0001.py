"""The credentials as of the first release. The table may exist: who writes the first one creates it."""

import sqlalchemy as sa
from alembic import op

revision = "provisioner_0001"
down_revision = None
branch_labels = ("provisioner",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "credentials",
        sa.Column("order_id", sa.String, primary_key=True),
        sa.Column("key_id", sa.String, nullable=False),
        sa.Column("sealed", sa.LargeBinary),
        sa.Column("written_at", sa.BigInteger, nullable=False),
        if_not_exists=True,
    )
