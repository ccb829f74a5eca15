//! Runs independent pieces of work on several threads.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Runs each piece on at most `jobs` threads. The answers are in the order of the pieces.
pub(crate) fn map<I: Send, O: Send>(
    jobs: NonZeroUsize,
    pieces: Vec<I>,
    work: impl Fn(I) -> O + Sync,
) -> Vec<O> {
    let threads = jobs.get().min(pieces.len());
    if threads <= 1 {
        return pieces.into_iter().map(work).collect();
    }
    let pieces = Mutex::new(pieces.into_iter().enumerate());
    let answers = Mutex::new(Vec::new());
    let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
    let take = || {
        while let Some((number, piece)) = next() {
            let answer = work(piece);
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.push((number, answer));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(take);
        }
        take();
    });
    let mut answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    answers.sort_by_key(|&(number, _)| number);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::map;
    use std::num::NonZeroUsize;

    #[test]
    fn answers_come_in_order() {
        let pieces: Vec<u32> = (0..100).collect();
        let wanted: Vec<u32> = pieces.iter().map(|piece| piece * 2).collect();
        for jobs in [1, 3, 200] {
            let jobs = NonZeroUsize::new(jobs).unwrap();
            assert_eq!(map(jobs, pieces.clone(), |piece| piece * 2), wanted);
        }
    }
}
