-- Indexes for groups with thousands of bundles, and for queues with thousands of jobs.

CREATE INDEX reports_by_build ON reports (key, build, bundle);
-- The name of the reason as JSON has it.
CREATE INDEX reports_sampled ON reports (key) WHERE bundle_reason = 'sampled';

CREATE INDEX jobs_by_kind ON jobs (kind, run_at);
