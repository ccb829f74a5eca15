//! Requests that the protocol has no words for: see `docs/dap.md`.

pub mod bookmarks;
pub mod calls;
pub mod compare;
pub mod coverage;
pub mod functions;
pub mod latency;
pub mod locals;
pub mod my_code;
pub mod navigation;
pub mod place;
pub mod time;
pub mod timeline;
