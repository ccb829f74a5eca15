//! The API for programs: JSON under `/api/v1`.

pub mod calls;
pub mod crashes;
pub mod groups;
pub mod health;
pub mod heartbeat;
pub mod jobs;
pub mod json;
pub mod openapi;
pub mod reports;
pub mod rules;
pub mod sites;
pub mod symbolize;
pub mod tokens;
pub mod uploads;
pub mod whoami;
