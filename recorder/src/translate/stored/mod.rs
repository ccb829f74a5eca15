//! Translations that outlive a process: the code of one mapping of a file, independent of
//! addresses.
//!
//! A [`unit`] holds the blocks that a process has executed from one executable mapping. [`harvest`]
//! builds it when the process has ended, and [`placed`] puts it into the cache of another one.
//! [`file`] is its form on disk, and [`store`] keeps units for the processes of a recording and for
//! later recordings. [`mappings`] are those of a process whose translations are kept.
//!
//! A unit is used only if the process has exactly the code that the unit was translated from.

mod file;
mod harvest;
mod key;
pub(super) mod mappings;
pub(super) mod placed;
pub(super) mod store;
pub(super) mod unit;

#[cfg(test)]
mod tests;
