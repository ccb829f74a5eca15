//! Measures `iptr-edge-analyzer` with its own handler, a bitmap of edges, and its caches.

#[cfg(feature = "edges")]
mod code;
#[cfg(feature = "edges")]
mod measure;

#[cfg(feature = "edges")]
pub use measure::run;

/// Returns an error, because the dependencies are missing.
#[cfg(not(feature = "edges"))]
pub fn run(_: &crate::arguments::Arguments) -> Result<serde_json::Value, crate::Failure> {
    Err("built without the feature `edges`".to_owned())
}
