-- The catalog of the profile store, and the pushes that it has.

CREATE TABLE profile_segments (
    id TEXT PRIMARY KEY,
    -- Hours since 1970.
    hour BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    samples BIGINT NOT NULL,
    -- The description as JSON.
    entry TEXT NOT NULL,
    -- The time of the removal in nanoseconds since 1970. Files of removed segments stay for a while.
    removed BIGINT
);
CREATE INDEX profile_segments_live ON profile_segments (hour) WHERE removed IS NULL;
CREATE INDEX profile_segments_removed ON profile_segments (removed) WHERE removed IS NOT NULL;

-- Pushes by the hash of their content, so that one that is sent again counts once.
CREATE TABLE profile_pushes (
    hash TEXT PRIMARY KEY,
    received BIGINT NOT NULL
);
CREATE INDEX profile_pushes_received ON profile_pushes (received);

-- Agents that ask for requests, by the name of their host.
CREATE TABLE profile_agents (
    host TEXT PRIMARY KEY,
    seen BIGINT NOT NULL
);

-- Profiles that a person wants of a host now.
CREATE TABLE profile_requests (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    event TEXT NOT NULL,
    frequency BIGINT NOT NULL,
    seconds BIGINT NOT NULL,
    creator TEXT NOT NULL,
    created BIGINT NOT NULL,
    -- The time at which the agent took it.
    taken BIGINT,
    -- The time at which the profile was stored, or failed.
    ended BIGINT,
    -- The reason for which there is no profile.
    problem TEXT
);
CREATE INDEX profile_requests_waiting ON profile_requests (host, created) WHERE taken IS NULL;
CREATE INDEX profile_requests_created ON profile_requests (created);
