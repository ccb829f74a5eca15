-- How crashes are grouped: rules, the version of the signatures, and the version beside it.

-- One row, whose id is 'grouping'.
CREATE TABLE grouping_state (
    id TEXT PRIMARY KEY,
    -- Random, and another one after each change of rules or versions.
    revision TEXT NOT NULL,
    version BIGINT NOT NULL,
    -- The version that is computed beside. NULL: none is.
    next_version BIGINT,
    next_since BIGINT,
    -- The time at which the version beside replaces the other one.
    switch_at BIGINT
);
-- A hub that has groups keeps their version until a person changes it.
INSERT INTO grouping_state (id, revision, version)
SELECT 'grouping', '', CASE WHEN EXISTS (SELECT 1 FROM groups) THEN 1 ELSE 2 END;

CREATE INDEX rules_by_position ON rules (position);

-- JSON: what the crash was by its first report. NULL: the report came before this column.
ALTER TABLE stack_keys ADD COLUMN report_cause TEXT;

-- The group that each key would have by the version beside.
CREATE TABLE next_groups (
    key TEXT PRIMARY KEY,
    group_id TEXT NOT NULL,
    title TEXT NOT NULL,
    signature TEXT NOT NULL
);
CREATE INDEX next_groups_by_group ON next_groups (group_id);

-- Where a job that was cut off goes on.
ALTER TABLE jobs ADD COLUMN done_to TEXT;
