//! Debug files by build id: uploads, upstream servers, directories for analyses, and indexes.

pub mod chunks;
pub mod debug_dir;
pub mod debug_id;
pub mod fetch;
pub mod index_cache;
pub mod index_job;
pub mod index_record;
pub mod index_state;
pub mod section;
pub mod store;
pub mod upstream;
