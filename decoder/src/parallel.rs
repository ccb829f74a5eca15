//! Decodes one trace on several threads: each decodes segments, which are merged in order.
//!
//! [`segment_output`] buffers the output of one segment. [`merge`] adds it to the history.
//! [`forest_worker`] extends the call forest. [`scheduler`] assigns these jobs to the threads of
//! the [`decoder`]. The result equals that of one thread. If a segment does not continue the one
//! before it, the trace is decoded by one thread instead.

mod decoder;
mod error;
mod forest_worker;
mod history_delta;
mod merge;
pub(crate) mod pool;
mod scheduler;
mod segment_output;
mod table_delta;

pub(crate) use decoder::ParallelDecoder;
pub(crate) use error::ParallelError;

#[cfg(test)]
mod tests;
