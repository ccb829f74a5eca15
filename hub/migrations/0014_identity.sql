-- The identity of the hubs that share this database: one row.

CREATE TABLE identity (
    id TEXT PRIMARY KEY
);
