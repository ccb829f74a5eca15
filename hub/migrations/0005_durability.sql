-- Parts of uploads by name, and blobs that garbage collection keeps although no row names them.

-- The parts of an upload, in their order. Each has a name of its own, so that a hub which a sender
-- gave up on cannot replace the part that another hub has confirmed.
CREATE TABLE upload_parts (
    upload TEXT NOT NULL,
    number BIGINT NOT NULL,
    -- The object is uploads/UPLOAD/NAME.
    name TEXT NOT NULL,
    PRIMARY KEY (upload, number)
);

-- Blobs that an answer or a job relies on until a time.
CREATE TABLE reservations (
    sha256 TEXT PRIMARY KEY,
    until BIGINT NOT NULL
);
