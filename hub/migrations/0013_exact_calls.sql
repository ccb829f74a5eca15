-- The functions of which stored bundles have complete calls, in the form of the grouping.
CREATE TABLE exact_calls (
    function TEXT NOT NULL,
    report TEXT NOT NULL,
    -- Empty: the module has no build id.
    build_id TEXT NOT NULL,
    -- The first instruction of the newest call.
    position TEXT NOT NULL,
    calls BIGINT NOT NULL,
    -- Of the newest call and its callees.
    instructions BIGINT NOT NULL,
    -- Of the newest call, in words. NULL: unknown.
    duration TEXT,
    PRIMARY KEY (function, report, build_id)
);
CREATE INDEX exact_calls_by_report ON exact_calls (report);
