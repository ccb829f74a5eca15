-- Debug files: their detail, who lacks them, uploads in chunks, and upstream servers.

-- What a file says of functions: 0 nothing, 1 their names, 2 lines and variables too. The kind of a
-- source file is 'source/PATH'.
ALTER TABLE build_files ADD COLUMN detail BIGINT NOT NULL DEFAULT 0;

-- When symbols that came after the bundle were applied. NULL: none were.
ALTER TABLE reports ADD COLUMN symbolized BIGINT;

-- Build ids without which frames of a key have no function or no line.
CREATE TABLE missing_symbols (
    build_id TEXT NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (build_id, key)
);
CREATE INDEX missing_symbols_by_key ON missing_symbols (key);

-- Chunks of debug files, by the SHA-1 of their content. The bytes are objects chunks/SHA1.
CREATE TABLE chunks (
    sha1 TEXT PRIMARY KEY,
    size BIGINT NOT NULL,
    expires BIGINT NOT NULL
);
CREATE INDEX chunks_by_expiry ON chunks (expires);

-- Debug files made of chunks, by the SHA-1 of the whole. state: assembling, ok, error.
CREATE TABLE assemblies (
    sha1 TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    -- The identifier that the client read in the file. NULL: it named none.
    debug_id TEXT,
    -- JSON: the SHA-1 of each chunk, in order.
    chunks TEXT NOT NULL,
    sender TEXT NOT NULL,
    state TEXT NOT NULL,
    -- Why it failed, one sentence.
    detail TEXT,
    build_id TEXT,
    changed BIGINT NOT NULL
);

-- Upstream servers that fail.
CREATE TABLE upstream_failures (
    server TEXT PRIMARY KEY,
    expires BIGINT NOT NULL
);
