//! The threads that an answer is about, and the order of their positions in time.

use super::Navigator;
use crate::breakpoint::Hits;
use crate::error::Result;
use crate::session::Thread;
use crate::thread_order::{Rank, needs_nothing_before, rank};
use backtrail_decoder::{Position, Watch};
use backtrail_pt::Tid;

/// One end of the recorded history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryEdge {
    /// Its beginning.
    Start,
    /// Its end.
    End,
}

impl Navigator {
    /// Returns the threads of the current process that have a history, the current one first.
    ///
    /// # Errors
    ///
    /// If the trace describes no process.
    pub fn process_threads(&self) -> Result<Vec<&Thread>> {
        let pid = self.process()?.pid;
        let of_process = |thread: &&Thread| {
            let process = self.session.process(thread);
            !thread.history.is_empty() && process.is_some_and(|process| process.pid == pid)
        };
        let mut threads: Vec<&Thread> = self.session.threads().iter().filter(of_process).collect();
        threads.sort_by_key(|thread| thread.tid != self.current);
        Ok(threads)
    }

    /// Returns the threads in which commands search: those of the current process, the current one
    /// first. With scheduler locking, it is the current thread alone. A thread without time
    /// stamps has no order with others. So it is searched only if it is the current one, and then
    /// alone.
    ///
    /// # Errors
    ///
    /// If the trace describes no process, or the stamps are in history that is not decoded yet.
    pub fn searched_threads(&self) -> Result<Vec<&Thread>> {
        let current = self.thread()?;
        let mut threads = self.process_threads()?;
        if self.scheduler_locking {
            threads.retain(|thread| thread.tid == current.tid);
            return Ok(threads);
        }
        for thread in &threads {
            if thread.history.first_stamp().is_none() {
                thread.needs_beginning()?;
            }
        }
        let is_timed = |thread: &Thread| thread.history.first_stamp().is_some();
        let is_alone = !current.history.is_empty() && !is_timed(current);
        threads.retain(|thread| match is_alone {
            true => thread.tid == current.tid,
            false => is_timed(thread),
        });
        Ok(threads)
    }

    /// Returns the hit that is nearest to an edge of the history, in the order of time.
    ///
    /// # Errors
    ///
    /// If it may be in history that is not decoded yet; when canceled.
    pub fn outermost_hit(
        &self,
        hits: &Hits,
        edge: HistoryEdge,
        watch: &Watch<'_>,
    ) -> Result<Option<Position>> {
        let mut outermost: Option<(Rank, Position)> = None;
        let mut without = Vec::new();
        for thread in self.searched_threads()? {
            if edge == HistoryEdge::Start {
                thread.needs_beginning()?;
            }
            let found = self.with_steps_of(thread, watch, |steps| match edge {
                HistoryEdge::Start => hits.next(&steps.lines, 0, u64::MAX),
                HistoryEdge::End => hits.previous(&steps.lines, thread.history.len(), 0),
            })?;
            let Some(index) = found else {
                without.push(thread);
                continue;
            };
            // The beginning of the history determines whether its first instruction is a hit.
            if index == 0 {
                thread.needs_beginning()?;
            }
            let rank = self.rank_of(thread, index)?;
            let is_nearer = outermost.is_none_or(|(best, _)| match edge {
                HistoryEdge::Start => rank < best,
                HistoryEdge::End => rank > best,
            });
            if is_nearer {
                outermost = Some((rank, thread.position(index)));
            }
        }
        for thread in without {
            match &outermost {
                Some((rank, _)) => needs_nothing_before(*rank, thread)?,
                None => thread.needs_beginning()?,
            }
        }
        Ok(outermost.map(|(_, position)| position))
    }

    /// Sorts positions of threads, given as indexes, by time.
    ///
    /// # Errors
    ///
    /// If the order depends on history that is not decoded yet.
    pub fn in_time_order(&self, positions: &[(Tid, u64)]) -> Result<Vec<Position>> {
        let mut ranked = Vec::with_capacity(positions.len());
        for &(tid, index) in positions {
            let thread = self.session.thread(tid)?;
            ranked.push((self.rank_of(thread, index)?, thread.position(index)));
        }
        ranked.sort_by_key(|(rank, _)| *rank);
        Ok(ranked.into_iter().map(|(_, position)| position).collect())
    }

    fn rank_of(&self, thread: &Thread, index: u64) -> Result<Rank> {
        let rank = rank(&self.session, thread, index)?;
        // Without times, only the current thread is searched.
        Ok(rank.unwrap_or(Rank::unstamped(thread.tid, index)))
    }
}
