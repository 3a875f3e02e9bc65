"""The first schema: company, work, runs, events, brain.

Revision ID: 0001
Revises: nothing
"""

import pgvector.sqlalchemy
import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE EXTENSION IF NOT EXISTS vector")
    op.execute(sa.schema.CreateSequence(sa.Sequence("fencing_token", data_type=sa.BigInteger())))
    op.create_table(
        "agents",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'idle'"), nullable=False),
        sa.Column("status_reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("present", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("adapter", sa.Text(), nullable=False),
        sa.Column("max_concurrent_runs", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("heartbeat_interval_s", sa.Double(), nullable=False),
        sa.Column("next_beat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reports_to", sa.Text(), nullable=True),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("status IN ('error', 'idle', 'paused')", name=op.f("ck_agents_status")),
        sa.CheckConstraint("max_concurrent_runs >= 1", name=op.f("ck_agents_max_concurrent_runs")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_agents")),
    )
    op.create_index(
        "ix_agents_next_beat_at",
        "agents",
        ["next_beat_at"],
        unique=False,
        postgresql_where=sa.text("next_beat_at IS NOT NULL AND status = 'idle'"),
    )
    op.create_table(
        "company",
        sa.Column("id", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("paused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("paused_by", sa.Text(), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("ck_company_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_company")),
    )
    op.create_table(
        "entities",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_entities")),
    )
    op.create_index("uq_entities_kind_key", "entities", ["kind", "key"], unique=True)
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("subject_kind", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("subject_title", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_at", "events", ["at"], unique=False)
    op.create_index("ix_events_subject", "events", ["subject_kind", "subject_id", "id"], unique=False)
    op.create_table(
        "goals",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("priority", sa.Text(), server_default=sa.text("'medium'"), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'open'"), nullable=False),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("budget_usd", sa.Numeric(precision=18, scale=6), nullable=True),
        sa.Column("report", sa.Text(), nullable=True),
        sa.Column("reported_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("priority IN ('low', 'medium', 'high', 'critical')", name=op.f("ck_goals_priority")),
        sa.CheckConstraint(
            "status IN ('open', 'planning', 'active', 'achieved', 'blocked', 'cancelled')", name=op.f("ck_goals_status")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_goals")),
    )
    op.create_index("ix_goals_status", "goals", ["status", "id"], unique=False)
    op.create_table(
        "memories",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("room", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("trust", sa.Text(), nullable=False),
        sa.Column("lifecycle", sa.Text(), server_default=sa.text("'active'"), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.LargeBinary(), nullable=False),
        sa.Column("context", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("language", sa.Text(), nullable=False),
        sa.Column("search_text", sa.Text(), nullable=False),
        sa.Column(
            "search",
            postgresql.TSVECTOR(),
            sa.Computed(
                "CASE WHEN language = 'german' THEN to_tsvector('german'::regconfig, search_text) ELSE to_tsvector('english'::regconfig, search_text) END",
                persisted=True,
            ),
            nullable=False,
        ),
        sa.Column("evidence", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("source_agent", sa.Text(), nullable=True),
        sa.Column("source_run_id", sa.BigInteger(), nullable=True),
        sa.Column("source_task_id", sa.BigInteger(), nullable=True),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=True),
        sa.Column("valid_to", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("(scope = 'org') = (owner = '')", name=op.f("ck_memories_owner")),
        sa.CheckConstraint("language IN ('english', 'german')", name=op.f("ck_memories_language")),
        sa.CheckConstraint("lifecycle IN ('active', 'stale', 'superseded', 'archived')", name=op.f("ck_memories_lifecycle")),
        sa.CheckConstraint("scope IN ('agent_private', 'team', 'org')", name=op.f("ck_memories_scope")),
        sa.CheckConstraint("trust IN ('verified', 'observed', 'asserted')", name=op.f("ck_memories_trust")),
        sa.CheckConstraint(
            "type IN ('fact', 'episode', 'decision', 'rule', 'plan', 'preference', 'action', 'outcome')",
            name=op.f("ck_memories_type"),
        ),
        sa.CheckConstraint("confidence >= 0 AND confidence <= 1", name=op.f("ck_memories_confidence")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_memories")),
    )
    op.create_index("ix_memories_room", "memories", ["room", "id"], unique=False)
    op.create_index("ix_memories_search", "memories", ["search"], unique=False, postgresql_using="gin")
    op.create_index("ix_memories_source_run_id", "memories", ["source_run_id"], unique=False)
    op.create_index(
        "uq_memories_content",
        "memories",
        ["scope", "owner", "content_hash"],
        unique=True,
        postgresql_where=sa.text("lifecycle = 'active'"),
    )
    op.create_table(
        "nodes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("capacity", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
    )
    op.create_table(
        "routines",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("present", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_routines")),
    )
    op.create_table(
        "memory_edges",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("source_id", sa.BigInteger(), nullable=False),
        sa.Column("relation", sa.Text(), nullable=False),
        sa.Column("target_id", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "relation IN ('supersedes', 'supports', 'contradicts', 'derives_from', 'related_to', 'observed_with')",
            name=op.f("ck_memory_edges_relation"),
        ),
        sa.CheckConstraint("source_id <> target_id", name=op.f("ck_memory_edges_not_itself")),
        sa.ForeignKeyConstraint(["source_id"], ["memories.id"], name=op.f("fk_memory_edges_source_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["target_id"], ["memories.id"], name=op.f("fk_memory_edges_target_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_memory_edges")),
    )
    op.create_index("ix_memory_edges_target_id", "memory_edges", ["target_id"], unique=False)
    op.create_index("uq_memory_edges", "memory_edges", ["source_id", "relation", "target_id"], unique=True)
    op.create_table(
        "memory_embeddings",
        sa.Column("memory_id", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("embedding", pgvector.sqlalchemy.vector.VECTOR(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.id"], name=op.f("fk_memory_embeddings_memory_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("memory_id", "model", name=op.f("pk_memory_embeddings")),
    )
    op.create_table(
        "memory_entities",
        sa.Column("memory_id", sa.BigInteger(), nullable=False),
        sa.Column("entity_id", sa.BigInteger(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.CheckConstraint("role IN ('subject', 'object', 'mentioned')", name=op.f("ck_memory_entities_role")),
        sa.ForeignKeyConstraint(["entity_id"], ["entities.id"], name=op.f("fk_memory_entities_entity_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.id"], name=op.f("fk_memory_entities_memory_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("memory_id", "entity_id", "role", name=op.f("pk_memory_entities")),
    )
    op.create_index("ix_memory_entities_entity_id", "memory_entities", ["entity_id", "memory_id"], unique=False)
    op.create_table(
        "routine_firings",
        sa.Column("routine", sa.Text(), nullable=False),
        sa.Column("slot", sa.DateTime(), nullable=False),
        sa.Column("fired_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["routine"], ["routines.name"], name=op.f("fk_routine_firings_routine"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("routine", "slot", name=op.f("pk_routine_firings")),
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), server_default=sa.text("'work'"), nullable=False),
        sa.Column("goal_id", sa.BigInteger(), nullable=True),
        sa.Column("parent_id", sa.BigInteger(), nullable=True),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("skills", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'backlog'"), nullable=False),
        sa.Column("priority", sa.Text(), server_default=sa.text("'medium'"), nullable=False),
        sa.Column("assignee", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("files", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("attempt", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("lost", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("stale_runs", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("rounds", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("depth", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("about_id", sa.BigInteger(), nullable=True),
        sa.Column("execution_run_id", sa.BigInteger(), nullable=True),
        sa.Column("execution_agent_key", sa.Text(), nullable=True),
        sa.Column("execution_locked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lock_token", sa.BigInteger(), nullable=True),
        sa.Column("lock_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('work', 'plan', 'review', 'report', 'chat')", name=op.f("ck_tasks_kind")),
        sa.CheckConstraint("priority IN ('low', 'medium', 'high', 'critical')", name=op.f("ck_tasks_priority")),
        sa.CheckConstraint(
            "status <> 'in_progress' OR execution_run_id IS NOT NULL", name=op.f("ck_tasks_in_progress_is_locked")
        ),
        sa.CheckConstraint(
            "status IN ('backlog', 'todo', 'in_progress', 'in_review', 'done', 'blocked', 'cancelled')",
            name=op.f("ck_tasks_status"),
        ),
        sa.CheckConstraint(
            "(execution_run_id IS NULL) = (lock_expires_at IS NULL) AND (execution_run_id IS NULL) = (execution_locked_at IS NULL) AND (execution_run_id IS NULL) = (execution_agent_key IS NULL)",
            name=op.f("ck_tasks_lock_whole"),
        ),
        sa.ForeignKeyConstraint(["about_id"], ["tasks.id"], name=op.f("fk_tasks_about_id")),
        sa.ForeignKeyConstraint(["assignee"], ["agents.name"], name=op.f("fk_tasks_assignee")),
        sa.ForeignKeyConstraint(["goal_id"], ["goals.id"], name=op.f("fk_tasks_goal_id")),
        sa.ForeignKeyConstraint(["parent_id"], ["tasks.id"], name=op.f("fk_tasks_parent_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
    )
    op.create_index("ix_tasks_goal_id", "tasks", ["goal_id", "id"], unique=False)
    op.create_index(
        "ix_tasks_locked", "tasks", ["lock_expires_at"], unique=False, postgresql_where=sa.text("execution_run_id IS NOT NULL")
    )
    op.create_index(
        "ix_tasks_open", "tasks", ["status", "id"], unique=False, postgresql_where=sa.text("status NOT IN ('done', 'cancelled')")
    )
    op.create_index("ix_tasks_parent_id", "tasks", ["parent_id"], unique=False, postgresql_where=sa.text("parent_id IS NOT NULL"))
    op.create_index("ix_tasks_ready", "tasks", ["assignee", "id"], unique=False, postgresql_where=sa.text("status = 'todo'"))
    op.create_table(
        "approvals",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("options", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("goal_id", sa.BigInteger(), nullable=True),
        sa.Column("task_id", sa.BigInteger(), nullable=True),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("kind IN ('hire', 'budget', 'strategy', 'question', 'action')", name=op.f("ck_approvals_kind")),
        sa.CheckConstraint("status IN ('pending', 'approved', 'rejected', 'cancelled')", name=op.f("ck_approvals_status")),
        sa.ForeignKeyConstraint(["goal_id"], ["goals.id"], name=op.f("fk_approvals_goal_id")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_approvals_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
    )
    op.create_index("ix_approvals_goal_id", "approvals", ["goal_id"], unique=False)
    op.create_index("ix_approvals_task_id", "approvals", ["task_id"], unique=False)
    op.create_index(
        "uq_approvals_pending", "approvals", ["kind", "subject"], unique=True, postgresql_where=sa.text("status = 'pending'")
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=True),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("adapter", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'running'"), nullable=False),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("attempt", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("depth", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("slot", sa.SmallInteger(), nullable=False),
        sa.Column("adapter_slot", sa.SmallInteger(), nullable=True),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("resumes_status", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested_by", sa.Text(), nullable=True),
        sa.Column("cancel_mode", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cost_usd", sa.Numeric(precision=18, scale=6), nullable=True),
        sa.Column("tokens_in", sa.BigInteger(), nullable=True),
        sa.Column("tokens_out", sa.BigInteger(), nullable=True),
        sa.Column("soul_hash", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.BigInteger(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("notes", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False),
        sa.CheckConstraint("(status = 'running') = (ended_at IS NULL)", name=op.f("ck_runs_ended")),
        sa.CheckConstraint("cancel_mode IN ('run', 'task', 'release', 'drain')", name=op.f("ck_runs_cancel_mode")),
        sa.CheckConstraint(
            "resumes_status IN ('backlog', 'todo', 'in_progress', 'in_review', 'done', 'blocked', 'cancelled')",
            name=op.f("ck_runs_resumes_status"),
        ),
        sa.CheckConstraint(
            "status IN ('running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'lost')", name=op.f("ck_runs_status")
        ),
        sa.ForeignKeyConstraint(["agent"], ["agents.name"], name=op.f("fk_runs_agent")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_runs_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index("ix_runs_agent", "runs", ["agent", "id"], unique=False)
    op.create_index("ix_runs_lease", "runs", ["lease_expires_at"], unique=False, postgresql_where=sa.text("status = 'running'"))
    op.create_index("ix_runs_task_id", "runs", ["task_id", "id"], unique=False)
    op.create_index(
        "uq_runs_adapter_slot", "runs", ["adapter", "adapter_slot"], unique=True, postgresql_where=sa.text("status = 'running'")
    )
    op.create_index("uq_runs_agent_slot", "runs", ["agent", "slot"], unique=True, postgresql_where=sa.text("status = 'running'"))
    op.create_index("uq_runs_task", "runs", ["task_id"], unique=True, postgresql_where=sa.text("status = 'running'"))
    op.create_table(
        "task_dependencies",
        sa.Column("task_id", sa.BigInteger(), nullable=False),
        sa.Column("after_id", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("task_id <> after_id", name=op.f("ck_task_dependencies_not_itself")),
        sa.ForeignKeyConstraint(["after_id"], ["tasks.id"], name=op.f("fk_task_dependencies_after_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_task_dependencies_task_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("task_id", "after_id", name=op.f("pk_task_dependencies")),
    )
    op.create_index("ix_task_dependencies_after_id", "task_dependencies", ["after_id"], unique=False)
    op.create_table(
        "wakeups",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'queued'"), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("reasons", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("count", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("rank", sa.SmallInteger(), server_default=sa.text("2"), nullable=False),
        sa.Column("depth", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cause_run_id", sa.BigInteger(), nullable=True),
        sa.Column("talk", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("aged_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.CheckConstraint(
            "source IN ('timer', 'assignment', 'comment', 'mention', 'dependency', 'children', 'approval', 'routine', 'board', 'retry')",
            name=op.f("ck_wakeups_source"),
        ),
        sa.CheckConstraint("status IN ('queued', 'claimed', 'done', 'skipped', 'expired')", name=op.f("ck_wakeups_status")),
        sa.ForeignKeyConstraint(["agent"], ["agents.name"], name=op.f("fk_wakeups_agent")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_wakeups_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_wakeups")),
    )
    op.create_index("ix_wakeups_due", "wakeups", ["rank", "id"], unique=False, postgresql_where=sa.text("status = 'queued'"))
    op.create_index("ix_wakeups_run_id", "wakeups", ["run_id"], unique=False)
    op.create_index("ix_wakeups_task_id", "wakeups", ["task_id"], unique=False, postgresql_where=sa.text("status = 'queued'"))
    op.create_index(
        "uq_wakeups_queued", "wakeups", ["agent", "subject"], unique=True, postgresql_where=sa.text("status = 'queued'")
    )
    op.create_table(
        "comments",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_comments_run_id")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_comments_task_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_comments")),
    )
    op.create_index("ix_comments_task_id", "comments", ["task_id", "id"], unique=False)
    op.create_table(
        "costs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("call_no", sa.BigInteger(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=True),
        sa.Column("goal_id", sa.BigInteger(), nullable=True),
        sa.Column("adapter", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("cost_usd", sa.Numeric(precision=18, scale=6), nullable=True),
        sa.Column("tokens_in", sa.BigInteger(), nullable=True),
        sa.Column("tokens_out", sa.BigInteger(), nullable=True),
        sa.Column("price_source", sa.Text(), server_default=sa.text("'provider'"), nullable=False),
        sa.Column("booked_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["agent"], ["agents.name"], name=op.f("fk_costs_agent")),
        sa.ForeignKeyConstraint(["goal_id"], ["goals.id"], name=op.f("fk_costs_goal_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_costs_run_id")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_costs_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_costs")),
    )
    op.create_index("ix_costs_agent_booked_at", "costs", ["agent", "booked_at"], unique=False)
    op.create_index("ix_costs_goal_id", "costs", ["goal_id"], unique=False)
    op.create_index("uq_costs_run_id_call_no", "costs", ["run_id", "call_no"], unique=True)
    op.create_table(
        "run_log",
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("chunk", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_log_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_run_log")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=True),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('board', 'agent', 'mcp', 'run')", name=op.f("ck_tokens_kind")),
        sa.ForeignKeyConstraint(["agent"], ["agents.name"], name=op.f("fk_tokens_agent")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_tokens_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
    )
    op.create_index(op.f("ix_tokens_run_id"), "tokens", ["run_id"], unique=False)
    op.create_index("uq_tokens_hash", "tokens", ["hash"], unique=True)
    op.create_index(
        "uq_tokens_name", "tokens", ["name"], unique=True, postgresql_where=sa.text("revoked_at IS NULL AND kind <> 'run'")
    )
    op.execute("INSERT INTO company DEFAULT VALUES")


def downgrade() -> None:
    op.drop_index("uq_tokens_name", table_name="tokens", postgresql_where=sa.text("revoked_at IS NULL AND kind <> 'run'"))
    op.drop_index("uq_tokens_hash", table_name="tokens")
    op.drop_index(op.f("ix_tokens_run_id"), table_name="tokens")
    op.drop_table("tokens")
    op.drop_table("run_log")
    op.drop_index("uq_costs_run_id_call_no", table_name="costs")
    op.drop_index("ix_costs_goal_id", table_name="costs")
    op.drop_index("ix_costs_agent_booked_at", table_name="costs")
    op.drop_table("costs")
    op.drop_index("ix_comments_task_id", table_name="comments")
    op.drop_table("comments")
    op.drop_index("uq_wakeups_queued", table_name="wakeups", postgresql_where=sa.text("status = 'queued'"))
    op.drop_index("ix_wakeups_task_id", table_name="wakeups", postgresql_where=sa.text("status = 'queued'"))
    op.drop_index("ix_wakeups_run_id", table_name="wakeups")
    op.drop_index("ix_wakeups_due", table_name="wakeups", postgresql_where=sa.text("status = 'queued'"))
    op.drop_table("wakeups")
    op.drop_index("ix_task_dependencies_after_id", table_name="task_dependencies")
    op.drop_table("task_dependencies")
    op.drop_index("uq_runs_task", table_name="runs", postgresql_where=sa.text("status = 'running'"))
    op.drop_index("uq_runs_agent_slot", table_name="runs", postgresql_where=sa.text("status = 'running'"))
    op.drop_index("uq_runs_adapter_slot", table_name="runs", postgresql_where=sa.text("status = 'running'"))
    op.drop_index("ix_runs_task_id", table_name="runs")
    op.drop_index("ix_runs_lease", table_name="runs", postgresql_where=sa.text("status = 'running'"))
    op.drop_index("ix_runs_agent", table_name="runs")
    op.drop_table("runs")
    op.drop_index("uq_approvals_pending", table_name="approvals", postgresql_where=sa.text("status = 'pending'"))
    op.drop_index("ix_approvals_task_id", table_name="approvals")
    op.drop_index("ix_approvals_goal_id", table_name="approvals")
    op.drop_table("approvals")
    op.drop_index("ix_tasks_ready", table_name="tasks", postgresql_where=sa.text("status = 'todo'"))
    op.drop_index("ix_tasks_parent_id", table_name="tasks", postgresql_where=sa.text("parent_id IS NOT NULL"))
    op.drop_index("ix_tasks_open", table_name="tasks", postgresql_where=sa.text("status NOT IN ('done', 'cancelled')"))
    op.drop_index("ix_tasks_locked", table_name="tasks", postgresql_where=sa.text("execution_run_id IS NOT NULL"))
    op.drop_index("ix_tasks_goal_id", table_name="tasks")
    op.drop_table("tasks")
    op.drop_table("routine_firings")
    op.drop_index("ix_memory_entities_entity_id", table_name="memory_entities")
    op.drop_table("memory_entities")
    op.drop_table("memory_embeddings")
    op.drop_index("uq_memory_edges", table_name="memory_edges")
    op.drop_index("ix_memory_edges_target_id", table_name="memory_edges")
    op.drop_table("memory_edges")
    op.drop_table("routines")
    op.drop_table("nodes")
    op.drop_index("uq_memories_content", table_name="memories", postgresql_where=sa.text("lifecycle = 'active'"))
    op.drop_index("ix_memories_source_run_id", table_name="memories")
    op.drop_index("ix_memories_search", table_name="memories", postgresql_using="gin")
    op.drop_index("ix_memories_room", table_name="memories")
    op.drop_table("memories")
    op.drop_index("ix_goals_status", table_name="goals")
    op.drop_table("goals")
    op.drop_index("ix_events_subject", table_name="events")
    op.drop_index("ix_events_at", table_name="events")
    op.drop_table("events")
    op.drop_index("uq_entities_kind_key", table_name="entities")
    op.drop_table("entities")
    op.drop_table("company")
    op.drop_index(
        "ix_agents_next_beat_at", table_name="agents", postgresql_where=sa.text("next_beat_at IS NOT NULL AND status = 'idle'")
    )
    op.drop_table("agents")
    op.execute(sa.schema.DropSequence(sa.Sequence("fencing_token")))
