//! One trace decoded by several threads: each decodes segments of it, and what they tell is put together in
//! order.
//!
//! [`tape`] keeps what an engine tells of a segment, [`join`] tells it to the history, [`plant`] makes the forest of what the history
//! got, and [`desk`] hands the work of the [`crew`] out. The history is the one that a single thread would have made; where a segment turns out not to
//! continue the one before it, all is given up, and decoded by a single thread.

mod crew;
mod desk;
mod join;
mod news;
mod plant;
pub(crate) mod pool;
mod tape;

pub(crate) use crew::Crew;
pub(crate) use desk::Failed;

#[cfg(test)]
mod tests;
