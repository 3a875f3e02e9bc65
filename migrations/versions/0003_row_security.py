"""Who sees which memory, held by the database too: a policy on every table that tells of one.

The policies bind whoever is not the tables' owner: the application's own role (opencognit/db/roles.py). The two searches are
functions with the owner's rights that carry the predicate inside: under a policy `@@` may not use its index, and likeness would
not (measured: 336 ms instead of 20 among 100,000).

Revision ID: 0003
Revises: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

VISIBLE = """
CREATE FUNCTION memory_visible(scope text, owner text, agent text, team text, board boolean) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN board OR scope = 'org' OR (scope = 'agent_private' AND owner = agent) OR (scope = 'team' AND owner = team)
"""
# The board is '*', which no agent can be named. Where nobody has said who asks, nothing is seen.
ASKED = """
coalesce(current_setting('opencognit.agent', true), '') <> '' AND memory_visible(scope, owner,
  current_setting('opencognit.agent', true), nullif(current_setting('opencognit.team', true), ''),
  current_setting('opencognit.agent', true) = '*')
"""
SEEN = "EXISTS (SELECT 1 FROM memories m WHERE m.id = {column})"
POLICIES = {
    "memories": ASKED,
    "memory_embeddings": ASKED,
    "memory_entities": SEEN.format(column="memory_id"),
    "memory_edges": f"{SEEN.format(column='source_id')} AND {SEEN.format(column='target_id')}",
}

# In force, and what was asked for.
MATCHES = """memory_visible(m.scope, m.owner, agent, team, board)
             AND (types IS NULL OR m.type = ANY (types)) AND (in_room IS NULL OR m.room = in_room)
             AND (entity IS NULL OR EXISTS (SELECT 1 FROM memory_entities e WHERE e.memory_id = m.id AND e.entity_id = entity))
             AND CASE WHEN as_of IS NULL THEN m.lifecycle IN ('active', 'stale')
                 ELSE m.created_at <= as_of AND (m.retired_at IS NULL OR m.retired_at > as_of) END
             AND (m.valid_from IS NULL OR m.valid_from <= coalesce(as_of, now()))
             AND (m.valid_to IS NULL OR m.valid_to > coalesce(as_of, now()))"""
ASKER = """agent text, team text, board boolean, types text[], in_room text, entity bigint, as_of timestamptz, most integer"""

BY_WORDS = f"""
CREATE FUNCTION memories_by_words(
  words text, {ASKER}, OUT ids bytea, OUT terms bytea, OUT sizes bytea, OUT inside bytea
) LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
-- Candidates by words: whatever shares a lexeme of either language with `words` (OR: AND finds nothing for most natural
-- questions), is visible, in force and asked for; at most `most`, in no order. One row comes back, of packed arrays.
-- `words` has words only (brain/folding.py): no lexeme needs more than its quotes.
DECLARE
  sought tsquery := (SELECT string_agg(quote_literal(lexeme), ' | ')::tsquery
                       FROM (SELECT unnest(tsvector_to_array(to_tsvector('english'::regconfig, words))) AS lexeme
                              UNION SELECT unnest(tsvector_to_array(to_tsvector('german'::regconfig, words)))) AS both_languages);
BEGIN
  SELECT string_agg(int8send(f.id), ''::bytea), string_agg(f.terms, ''::bytea),
         string_agg(int4send(octet_length(f.terms)), ''::bytea), string_agg(int4send(f.content_terms), ''::bytea)
    INTO ids, terms, sizes, inside
    FROM (SELECT m.id, m.terms, m.content_terms FROM memories m
           WHERE m.search @@ sought AND {MATCHES}
           LIMIT most) f;
END
$$
"""
BY_LIKENESS = f"""
CREATE FUNCTION memories_by_likeness(sought vector, of_model text, exact boolean, {ASKER})
RETURNS TABLE (memory_id bigint, similarity double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT
AS $$
-- Candidates by likeness, the likest first: through the model's index, or `exact`, one by one. The model is written out, since
-- a parameter would hide from the planner that its index is meant; a sum is no expression that the index knows.
BEGIN
  RETURN QUERY EXECUTE format($query$
    SELECT v.memory_id, 1 - (v.embedding::vector(%1$s) <=> $1)
      FROM memory_embeddings v JOIN memories m ON m.id = v.memory_id,
           LATERAL (SELECT $2 AS agent, $3 AS team, $4 AS board, $5 AS types, $6 AS in_room, $7 AS entity, $8 AS as_of) AS asker
     WHERE v.model = %2$L AND memory_visible(v.scope, v.owner, agent, team, board)
       AND {MATCHES}
     ORDER BY (v.embedding::vector(%1$s) <=> $1) %3$s LIMIT $9
  $query$, vector_dims(sought), of_model, CASE WHEN exact THEN '+ 0' ELSE '' END)
  USING sought, agent, team, board, types, in_room, entity, as_of, most;
END
$$
"""


def upgrade() -> None:
    op.execute(VISIBLE)
    op.execute(BY_WORDS)
    op.execute(BY_LIKENESS)
    op.execute("REVOKE EXECUTE ON FUNCTION memories_by_words, memories_by_likeness FROM PUBLIC")
    for table, sees in POLICIES.items():
        op.execute(f"CREATE POLICY seen ON {table} USING ({sees}) WITH CHECK ({sees})")
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")


def downgrade() -> None:
    for table in POLICIES:
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
        op.execute(f"DROP POLICY seen ON {table}")
    op.execute("DROP FUNCTION memories_by_likeness")
    op.execute("DROP FUNCTION memories_by_words")
    op.execute("DROP FUNCTION memory_visible")
