-- Debug files that were refused after their last byte. The sender asks for the reason.
CREATE TABLE refused_uploads (
    -- The upload, which is gone.
    id TEXT PRIMARY KEY,
    token TEXT NOT NULL,
    problem TEXT NOT NULL,
    refused BIGINT NOT NULL
);
