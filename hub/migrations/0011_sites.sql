-- Other hubs that this one asks for profiles.

CREATE TABLE sites (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    url TEXT NOT NULL,
    -- The token that the other hub wants. NULL: none is known, as after a restored backup.
    token TEXT,
    -- 1: asked.
    enabled BIGINT NOT NULL,
    author TEXT NOT NULL,
    created BIGINT NOT NULL
);
