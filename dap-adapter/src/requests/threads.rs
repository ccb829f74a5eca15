//! `threads`.

use super::Ignored;
use crate::failure::Result;
use crate::protocol::types::{Thread, ThreadsResponseBody};
use crate::session::ClientSession;
use backtrail_decoder::Watch;

/// All threads, the one that crashed first, then by id.
pub fn threads(client: &mut ClientSession, _: Ignored, _: &Watch<'_>) -> Result<ThreadsResponseBody> {
    let session = client.debuggee()?.navigator.session();
    let mut all: Vec<_> = session.threads().iter().collect();
    all.sort_by_key(|thread| session.crash_of(thread.tid).is_none());
    let threads = all.into_iter().map(|thread| {
        let history = match thread.history.is_empty() {
            true => ", no history",
            false => "",
        };
        // As the timeline marks it. Clients cut a long name, and show the signal beside it.
        let crashed = match session.crash_of(thread.tid) {
            Some(_) => " ✕",
            None => "",
        };
        let name = thread.name.as_deref().unwrap_or("thread");
        Thread {
            id: i64::from(thread.tid.0),
            name: format!("{name}{crashed} ({}{history})", thread.tid),
        }
    });
    Ok(ThreadsResponseBody {
        threads: threads.collect(),
    })
}
