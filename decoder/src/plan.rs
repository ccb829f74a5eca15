//! The parameters of a decode.

use crate::{Config, DecodeCachePool, Engine, Functions};
use backtrail_pt::Tid;
use std::num::NonZeroUsize;

/// The parameters of a decode.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    /// The configuration of the trace.
    pub config: &'a Config,
    /// The engine.
    pub engine: &'a dyn Engine,
    /// The most threads to use.
    pub jobs: NonZeroUsize,
    /// The size in bytes of the segments that threads decode.
    pub segment: usize,
    /// The number of bytes to decode of each trace, approximately, from its end; `None`: all.
    pub last: Option<u64>,
    /// Returns the functions in the code of a thread; `None`: its calls are not wanted.
    pub functions: &'a (dyn Fn(Tid) -> Option<&'a dyn Functions> + Sync),
    /// The pool of decode caches; `None`: caches are used only for this decode.
    pub caches: Option<&'a DecodeCachePool>,
}

impl<'a> Plan<'a> {
    /// A size that distributes evenly, but is large enough for the caches to fill.
    pub const SEGMENT: usize = 1 << 20;

    /// Returns a plan with one thread.
    #[must_use]
    pub fn new(config: &'a Config, engine: &'a dyn Engine) -> Self {
        Self {
            config,
            engine,
            jobs: NonZeroUsize::MIN,
            segment: Self::SEGMENT,
            last: None,
            functions: &|_| None,
            caches: None,
        }
    }
}
