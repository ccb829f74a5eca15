-- Reports, stack keys, groups and builds. One schema for SQLite and PostgreSQL: times are
-- microseconds since 1970 in BIGINT, booleans are 0 and 1 in BIGINT, lists are JSON in TEXT.

-- Hosts that sent a heartbeat or a report.
CREATE TABLE hosts (
    host TEXT PRIMARY KEY,
    collector TEXT NOT NULL,
    first_seen BIGINT NOT NULL,
    last_seen BIGINT NOT NULL
);

-- Builds of services. first_ran is NULL while no heartbeat named the build.
CREATE TABLE builds (
    service TEXT NOT NULL,
    build TEXT NOT NULL,
    first_ran BIGINT,
    first_reported BIGINT,
    PRIMARY KEY (service, build)
);

-- Which host ran which build.
CREATE TABLE host_builds (
    service TEXT NOT NULL,
    build TEXT NOT NULL,
    host TEXT NOT NULL,
    first_ran BIGINT NOT NULL,
    last_ran BIGINT NOT NULL,
    PRIMARY KEY (service, build, host)
);

-- Groups of crashes. state: new, ongoing, escalating, regressed, resolved, archived.
CREATE TABLE groups (
    id TEXT PRIMARY KEY,
    service TEXT NOT NULL,
    title TEXT NOT NULL,
    signature TEXT NOT NULL,
    grouping_version BIGINT NOT NULL,
    -- 1 if the signature comes from addresses only, until a bundle gives symbols.
    provisional BIGINT NOT NULL,
    signal BIGINT NOT NULL,
    state TEXT NOT NULL,
    state_since BIGINT NOT NULL,
    -- JSON: the build a fix is in, or the condition of an archived group.
    state_detail TEXT,
    -- Why the last report changed no state: one sentence. NULL: all was determined.
    undetermined TEXT,
    assignee TEXT,
    first_seen BIGINT NOT NULL,
    last_seen BIGINT NOT NULL,
    first_build TEXT NOT NULL,
    last_build TEXT NOT NULL,
    reports BIGINT NOT NULL,
    hosts BIGINT NOT NULL,
    bundles BIGINT NOT NULL
);
CREATE INDEX groups_by_last_seen ON groups (last_seen);
CREATE INDEX groups_by_service ON groups (service, last_seen);

-- Words of a group's title, functions, files, modules and service, for the search.
CREATE TABLE group_words (
    word TEXT NOT NULL,
    group_id TEXT NOT NULL,
    PRIMARY KEY (word, group_id)
);
CREATE INDEX group_words_by_group ON group_words (group_id);

-- Crashes at the same addresses, of one service and signal. A key belongs to one group.
CREATE TABLE stack_keys (
    key TEXT PRIMARY KEY,
    service TEXT NOT NULL,
    signal BIGINT NOT NULL,
    group_id TEXT NOT NULL,
    -- JSON: frames by address, of the first report.
    addresses TEXT NOT NULL,
    -- JSON: frames with symbols, of the last analysis. NULL: none yet.
    frames TEXT,
    -- JSON: what the crash was, of the last analysis. NULL: none yet.
    cause TEXT,
    -- JSON: build ids of frames that lack debug information.
    missing_symbols TEXT,
    first_seen BIGINT NOT NULL,
    last_seen BIGINT NOT NULL,
    reports BIGINT NOT NULL
);
CREATE INDEX stack_keys_by_group ON stack_keys (group_id);

-- Counts per hour. An hour is the number of hours since 1970.
CREATE TABLE key_hours (
    key TEXT NOT NULL,
    build TEXT NOT NULL,
    hour BIGINT NOT NULL,
    reports BIGINT NOT NULL,
    PRIMARY KEY (key, build, hour)
);
CREATE TABLE key_hosts (
    key TEXT NOT NULL,
    host TEXT NOT NULL,
    reports BIGINT NOT NULL,
    last_seen BIGINT NOT NULL,
    PRIMARY KEY (key, host)
);
CREATE TABLE group_hours (
    group_id TEXT NOT NULL,
    build TEXT NOT NULL,
    hour BIGINT NOT NULL,
    reports BIGINT NOT NULL,
    PRIMARY KEY (group_id, build, hour)
);
CREATE TABLE group_hosts (
    group_id TEXT NOT NULL,
    host TEXT NOT NULL,
    reports BIGINT NOT NULL,
    last_seen BIGINT NOT NULL,
    PRIMARY KEY (group_id, host)
);

-- One row per report. bundle: none, wanted, checking, stored, refused, removed.
CREATE TABLE reports (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL,
    time BIGINT NOT NULL,
    received BIGINT NOT NULL,
    host TEXT NOT NULL,
    service TEXT NOT NULL,
    build TEXT NOT NULL,
    -- JSON: the report without its modules and frames.
    report TEXT NOT NULL,
    bundle TEXT NOT NULL,
    -- Until when a wanted bundle counts as on its way.
    bundle_until BIGINT,
    -- Why the hub asked for the bundle. NULL: it did not, a person pushed it.
    bundle_reason TEXT,
    -- Why the bundle was refused, one sentence.
    bundle_problem TEXT,
    bundle_sha256 TEXT,
    bundle_size BIGINT,
    pinned BIGINT NOT NULL,
    segment TEXT NOT NULL
);
CREATE INDEX reports_by_key ON reports (key, time);
CREATE INDEX reports_by_sample ON reports (key, bundle);
CREATE INDEX reports_by_time ON reports (time);
CREATE INDEX reports_by_bundle ON reports (bundle, time);

-- Segments of the journal that the database has.
CREATE TABLE segments (
    name TEXT PRIMARY KEY,
    committed BIGINT NOT NULL,
    -- 1 if retention removed the reports that have no row from the object.
    shortened BIGINT NOT NULL DEFAULT 0
);

-- Objects by content, and who uses them.
CREATE TABLE blobs (
    sha256 TEXT PRIMARY KEY,
    size BIGINT NOT NULL,
    created BIGINT NOT NULL
);
CREATE TABLE report_blobs (
    report TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    -- The path in the bundle, or 'bundle' for the rest of it.
    path TEXT NOT NULL,
    PRIMARY KEY (report, path)
);
CREATE INDEX report_blobs_by_blob ON report_blobs (sha256);
-- kind: executable, debuginfo.
CREATE TABLE build_files (
    build_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    name TEXT NOT NULL,
    size BIGINT NOT NULL,
    -- bundle, upload, upstream
    origin TEXT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (build_id, kind)
);
CREATE INDEX build_files_by_blob ON build_files (sha256);

-- Blobs that nothing uses. state: marked; deleting, while their object is being deleted.
CREATE TABLE garbage (
    sha256 TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    since BIGINT NOT NULL
);
