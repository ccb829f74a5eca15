//! Work on all data of a hub: retention, garbage collection, new indexes, backups.

pub mod backup;
pub mod decisions;
pub mod gc;
pub mod index_garbage;
pub mod maintain;
mod profile_segments;
pub mod rebuild;
pub mod retention;
pub mod rows;

#[cfg(test)]
mod tests;
