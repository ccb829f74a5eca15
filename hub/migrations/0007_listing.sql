-- Indexes of lists and pages.

-- What a host runs, at each of its heartbeats.
CREATE INDEX host_builds_by_host ON host_builds (host);
-- The newest crashes of a service, with which a group is compared.
CREATE INDEX reports_by_service ON reports (service, time);
-- The group that took over the keys of another one.
CREATE INDEX key_moves_by_origin ON key_moves (from_group);
