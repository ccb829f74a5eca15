//! Debug files by build id: uploads, upstream servers, and directories for analyses.

pub mod chunks;
pub mod debug_dir;
pub mod debug_id;
pub mod fetch;
pub mod section;
pub mod store;
pub mod upstream;
