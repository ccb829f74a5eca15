//! `iptr-edge-analyzer`, measured.
//!
//! It says what it finds to a handler: each block, and with its feature `cache`, where a sequence of branches comes again,
//! only the key that the handler gave to that sequence. How fast it is depends on what the handler makes of it.

#[cfg(feature = "edges")]
mod code;
#[cfg(feature = "edges")]
mod counter;
#[cfg(feature = "edges-cache")]
mod list;
#[cfg(feature = "edges")]
mod measure;

#[cfg(feature = "edges")]
pub use measure::run;

/// What it takes is not there.
#[cfg(not(feature = "edges"))]
pub fn run(_: &crate::arguments::Arguments) -> Result<serde_json::Value, crate::Failure> {
    Err("built without the feature `edges`".to_owned())
}
