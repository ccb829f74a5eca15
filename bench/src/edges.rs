//! Measures `iptr-edge-analyzer`.
//!
//! The analyzer reports each block to a handler. With its feature `cache`, a repeated sequence of
//! branches is only reported by the key that the handler gave it. The speed depends on the handler.

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

/// Returns an error, because the dependencies are missing.
#[cfg(not(feature = "edges"))]
pub fn run(_: &crate::arguments::Arguments) -> Result<serde_json::Value, crate::Failure> {
    Err("built without the feature `edges`".to_owned())
}
