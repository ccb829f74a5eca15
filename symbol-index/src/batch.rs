//! Looks up many positions at once, in address order and by several threads.

use crate::error::Error;
use crate::frame::{Frames, Position};
use crate::index::{FoundFunction, Index, none};
use std::num::NonZeroUsize;

/// The fewest positions for which another thread is started.
const MIN_PER_THREAD: usize = 1024;

impl Index {
    /// Returns the frames at each position, in the order of the positions. At most `threads` are
    /// used.
    ///
    /// # Errors
    /// Fails if a record is damaged.
    pub fn lookup_all(&self, positions: &[Position], threads: NonZeroUsize) -> Result<Vec<Frames>, Error> {
        // An address twice is looked up once, and neighbors share a function.
        let mut wanted: Vec<(u64, usize)> = positions
            .iter()
            .enumerate()
            .filter_map(|(number, position)| Some((self.address(*position)?, number)))
            .collect();
        wanted.sort_unstable();
        let threads = threads.get().min(wanted.len() / MIN_PER_THREAD).max(1);
        let length = wanted.len().div_ceil(threads).max(1);
        let found = std::thread::scope(|scope| {
            let mut chunks = wanted.chunks(length);
            let first = chunks.next().unwrap_or_default();
            let others: Vec<_> = chunks
                .map(|chunk| scope.spawn(move || self.lookup_sorted(chunk)))
                .collect();
            let mut found = vec![self.lookup_sorted(first)];
            for other in others {
                let failed = |_| Err(Error::Damaged("a thread ended early"));
                found.push(other.join().unwrap_or_else(failed));
            }
            found
        });
        let empty = none();
        let mut frames: Vec<Frames> = positions.iter().map(|_| empty.clone()).collect();
        for (chunk, found) in wanted.chunks(length).zip(found) {
            for ((_, number), found) in chunk.iter().zip(found?) {
                if let Some(place) = frames.get_mut(*number) {
                    *place = found;
                }
            }
        }
        Ok(frames)
    }

    /// Returns the frames of addresses in their order.
    fn lookup_sorted(&self, wanted: &[(u64, usize)]) -> Result<Vec<Frames>, Error> {
        let empty = none();
        let mut found: Vec<Frames> = Vec::with_capacity(wanted.len());
        let mut rest = wanted;
        while let Some((address, _)) = rest.first() {
            let Some(function) = self.function_at(*address)? else {
                found.push(empty.clone());
                rest = rest.get(1..).unwrap_or_default();
                continue;
            };
            let inside = rest.partition_point(|(address, _)| *address < function.range.end);
            let (inside, after) = rest.split_at(inside);
            rest = after;
            self.lookup_inside(function, inside, &mut found)?;
        }
        Ok(found)
    }

    /// Adds the frames of addresses in a function.
    fn lookup_inside(
        &self,
        function: FoundFunction,
        wanted: &[(u64, usize)],
        found: &mut Vec<Frames>,
    ) -> Result<(), Error> {
        if self.is_to_scan(&function, wanted.len()) {
            let mut last: Option<(u64, Frames)> = None;
            for (address, _) in wanted {
                let frames = match last.take_if(|last| last.0 == *address) {
                    Some((_, frames)) => frames,
                    None => self.scan(function.number, *address)?,
                };
                found.push(frames.clone());
                last = Some((*address, frames));
            }
            return Ok(());
        }
        let function = self.decoded(function)?;
        let mut last = (None, none());
        for (address, _) in wanted {
            let piece = function.piece(*address);
            if piece != last.0 {
                last = (piece, function.frames(piece, self));
            }
            found.push(last.1.clone());
        }
        Ok(())
    }
}
