-- Uploads, jobs, alerts, people's decisions and tokens.

-- Resumable uploads (TUS 1.0.0). The bytes are objects uploads/ID/NUMBER.
CREATE TABLE uploads (
    id TEXT PRIMARY KEY,
    -- bundle, module, debug
    kind TEXT NOT NULL,
    -- A report id or a build id.
    subject TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    length BIGINT NOT NULL,
    received BIGINT NOT NULL,
    parts BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    token TEXT NOT NULL,
    -- open, complete
    state TEXT NOT NULL
);
CREATE INDEX uploads_by_subject ON uploads (subject);

-- Work off the request path. A hub leases a job, so that another can take over.
CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    -- accept, analyze, regroup, deliver
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    run_at BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    lease TEXT,
    lease_until BIGINT NOT NULL,
    progress TEXT,
    UNIQUE (kind, subject)
);
CREATE INDEX jobs_by_time ON jobs (run_at);

-- Changes of a group's state. Each is announced once.
CREATE TABLE changes (
    id TEXT PRIMARY KEY,
    group_id TEXT NOT NULL,
    time BIGINT NOT NULL,
    -- new, first-in-build, regressed, escalating, resolved, archived, reopened
    event TEXT NOT NULL,
    build TEXT,
    -- The report that caused it. NULL: a person did.
    report TEXT,
    actor TEXT,
    -- group, event and build: a second row of the same change is refused.
    once TEXT NOT NULL UNIQUE
);
CREATE INDEX changes_by_group ON changes (group_id, time);

-- Messages to send. state: waiting, sending, sent, failed, held-back, duplicate.
CREATE TABLE deliveries (
    id TEXT PRIMARY KEY,
    -- A change, or the hour that a summary is about.
    change_id TEXT NOT NULL,
    channel TEXT NOT NULL,
    -- alert, summary
    kind TEXT NOT NULL,
    -- JSON: the message.
    payload TEXT NOT NULL,
    state TEXT NOT NULL,
    created BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    -- The time of the next attempt. While a hub sends: the end of its lease.
    next_try BIGINT NOT NULL,
    -- The time at which the message was sent, or held back.
    ended BIGINT,
    -- Why the last attempt failed, one sentence.
    problem TEXT,
    -- 1 if a summary reports that this message was held back.
    summarized BIGINT NOT NULL,
    UNIQUE (change_id, channel)
);
CREATE INDEX deliveries_by_state ON deliveries (channel, state, next_try);

-- Rules of grouping. action: group-by, ignore, ignore-up-to.
CREATE TABLE rules (
    id TEXT PRIMARY KEY,
    position BIGINT NOT NULL,
    service TEXT,
    action TEXT NOT NULL,
    pattern TEXT NOT NULL,
    created BIGINT NOT NULL,
    author TEXT NOT NULL
);

-- Moves of keys between groups, for the group's page.
CREATE TABLE key_moves (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL,
    from_group TEXT NOT NULL,
    to_group TEXT NOT NULL,
    time BIGINT NOT NULL,
    -- symbols, rules, version
    reason TEXT NOT NULL
);
CREATE INDEX key_moves_by_group ON key_moves (to_group);

CREATE TABLE comments (
    id TEXT PRIMARY KEY,
    group_id TEXT NOT NULL,
    time BIGINT NOT NULL,
    author TEXT NOT NULL,
    text TEXT NOT NULL
);

-- Tokens, by the SHA-256 of their secret. scopes: JSON list of ingest, read, admin.
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    scopes TEXT NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT,
    last_used BIGINT,
    revoked BIGINT
);

-- Who did what.
CREATE TABLE audit (
    id TEXT PRIMARY KEY,
    time BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL
);
CREATE INDEX audit_by_time ON audit (time);

-- Absent files at upstream servers, and servers that fail.
CREATE TABLE upstream_misses (
    build_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (build_id, kind)
);

-- Work that one hub does at a time.
CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    until BIGINT NOT NULL
);
