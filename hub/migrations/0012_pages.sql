-- Saved views of profiles, and the functions on the stacks of crashes.

-- A name for the address of a view. The query has its known parameters only.
CREATE TABLE saved_views (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    query TEXT NOT NULL,
    creator TEXT NOT NULL,
    created BIGINT NOT NULL
);

-- The functions on the stack of a key, in the form of the grouping.
CREATE TABLE key_functions (
    function TEXT NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (function, key)
);
CREATE INDEX key_functions_by_key ON key_functions (key);

-- 1 if the functions of the key's frames are in key_functions.
ALTER TABLE stack_keys ADD COLUMN lists_functions BIGINT NOT NULL DEFAULT 0;
CREATE INDEX stack_keys_without_functions ON stack_keys (key) WHERE lists_functions = 0 AND frames IS NOT NULL;
