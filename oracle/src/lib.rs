//! Intel's libipt as a decode engine, to compare with the decoder's own.
//!
//! Only tests and benchmarks depend on this crate; the product does not contain libipt. A build
//! needs cmake and libclang. The command `backtrail-oracle info BUNDLE --digest` prints the lines
//! of `backtrail info BUNDLE --digest`, decoded by libipt.
//!
//! # Examples
//!
//! ```
//! use backtrail_decoder::{Config, Decoder};
//! use backtrail_oracle::Libipt;
//! use std::collections::BTreeMap;
//!
//! let config = Config::default();
//! let decoded = Decoder::new(&config).engine(&Libipt).decode(&[], &BTreeMap::new())?;
//! assert!(decoded.threads.is_empty());
//! # Ok::<(), backtrail_decoder::Canceled>(())
//! ```

mod libipt;

use backtrail_decoder::Engine;
use backtrail_decoder::engine::native::Native;
pub use libipt::{Libipt, configuration};

/// The engines to compare, the decoder's own first.
pub const ENGINES: [&dyn Engine; 2] = [&Native, &Libipt];

/// Returns the engine of this name, `native` or `libipt`.
#[must_use]
pub fn engine(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.into_iter().find(|engine| engine.name() == name)
}
