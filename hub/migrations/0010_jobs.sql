-- Scheduled queries, their runs, and what they announced.

CREATE TABLE query_jobs (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- The definition as JSON.
    definition TEXT NOT NULL,
    -- 1: runs by its schedule.
    enabled BIGINT NOT NULL,
    author TEXT NOT NULL,
    created BIGINT NOT NULL,
    -- The number of changes of the definition.
    revision BIGINT NOT NULL,
    -- The time of the next run by the schedule.
    next_run BIGINT NOT NULL,
    -- 1: a person wants a run now.
    run_now BIGINT NOT NULL,
    -- The present run, and the time until which its hub has it.
    run TEXT,
    lease_until BIGINT NOT NULL,
    -- The time since which the threshold is crossed.
    alerting BIGINT,
    -- The time since which runs fail.
    failing BIGINT
);

CREATE TABLE query_job_runs (
    id TEXT PRIMARY KEY,
    job TEXT NOT NULL,
    -- Whether a schedule or a person began it: schedule, person
    origin TEXT NOT NULL,
    started BIGINT NOT NULL,
    ended BIGINT,
    -- running, done, failed
    state TEXT NOT NULL,
    -- The watched number as text. NULL: the result has none.
    value TEXT,
    -- The rows of the result before the limit.
    row_count BIGINT NOT NULL,
    -- JSON: columns, rows and notes. NULL: there is none, or it is too old.
    result TEXT,
    -- Why the run failed, one sentence.
    problem TEXT
);
CREATE INDEX query_job_runs_of ON query_job_runs (job, started);

-- Slower functions that were announced, so that each is announced once.
CREATE TABLE query_job_findings (
    -- The hash of the job, both builds and the function.
    id TEXT PRIMARY KEY,
    job TEXT NOT NULL,
    found BIGINT NOT NULL
);
CREATE INDEX query_job_findings_of ON query_job_findings (job);
