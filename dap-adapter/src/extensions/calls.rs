//! The call tree, page by page.

use super::time::{Length, Moment};
use crate::call_list_cache::CallListCache;
use crate::failure::Result;
use crate::session::ClientSession;
use backtrail_debugger::calls::Calls;
use backtrail_debugger::session::Thread;
use backtrail_debugger::{Error, Navigator};
use backtrail_decoder::{CallId, Watch};
use backtrail_pt::Tid;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The limit of calls in one response.
const MOST: usize = 500;

/// `CallNode` of `docs/dap.md`.
#[derive(Debug, Serialize)]
pub struct CallNode {
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<String>,
    function: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    library: Option<String>,
    position: String,
    instructions: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration: Option<Length>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entered: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<String>,
    children: usize,
    number: usize,
    around: bool,
}

/// The arguments of `backtrail/calls`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallsArguments {
    #[serde(default)]
    thread_id: Option<f64>,
    #[serde(default)]
    parent: Option<String>,
    #[serde(default)]
    start: Option<usize>,
    #[serde(default)]
    count: Option<usize>,
}

/// A page of calls.
#[derive(Debug, Serialize)]
pub struct CallPage {
    calls: Vec<CallNode>,
    total: usize,
}

/// `backtrail/calls`.
pub fn calls(client: &mut ClientSession, arguments: CallsArguments, watch: &Watch<'_>) -> Result<CallPage> {
    let debuggee = client.debuggee()?;
    let tid = debuggee.tid(arguments.thread_id.map(|id| id as i64))?;
    let siblings = &debuggee.call_lists;
    let page = debuggee.navigator.with_earlier(watch, |navigator| {
        let tree = CallTreeView::new(navigator, siblings, tid, watch)?;
        let parent = arguments
            .parent
            .as_deref()
            .map(|parent| tree.named(parent))
            .transpose()?;
        let count = arguments.count.unwrap_or(MOST).min(MOST);
        let start = arguments.start.unwrap_or(0);
        let all = tree.siblings(parent);
        let page = all.iter().enumerate().skip(start).take(count);
        let calls = page.map(|(number, &id)| tree.call(id, number));
        Ok(CallPage {
            calls: calls.collect::<backtrail_debugger::Result<_>>()?,
            total: all.len(),
        })
    });
    Ok(page?)
}

/// The arguments of `backtrail/callPath`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathArguments {
    #[serde(default)]
    thread_id: Option<f64>,
}

/// The calls around a position.
#[derive(Debug, Serialize)]
pub struct CallPath {
    path: Vec<CallNode>,
}

/// `backtrail/callPath`.
pub fn path(client: &mut ClientSession, arguments: PathArguments, watch: &Watch<'_>) -> Result<CallPath> {
    let debuggee = client.debuggee()?;
    let tid = debuggee.tid(arguments.thread_id.map(|id| id as i64))?;
    let siblings = &debuggee.call_lists;
    let path = debuggee.navigator.with_earlier(watch, |navigator| {
        let tree = CallTreeView::new(navigator, siblings, tid, watch)?;
        let mut ids = tree.around.clone();
        ids.reverse();
        let mut parent = None;
        let mut path = Vec::new();
        for id in ids {
            // In order, as all calls are.
            let number = tree.siblings(parent).binary_search(&id).unwrap_or(0);
            path.push(tree.call(id, number)?);
            parent = Some(id);
        }
        Ok(CallPath { path })
    });
    Ok(path?)
}

/// The calls of a thread, as seen from where it is.
struct CallTreeView<'a> {
    navigator: &'a Navigator,
    calls: Calls<'a>,
    lists: &'a CallListCache,
    thread: &'a Thread,
    /// The calls around the position, the innermost first.
    around: Vec<CallId>,
}

impl<'a> CallTreeView<'a> {
    fn new(
        navigator: &'a Navigator,
        lists: &'a CallListCache,
        tid: Tid,
        watch: &Watch<'_>,
    ) -> backtrail_debugger::Result<Self> {
        let thread = navigator.session().thread(tid)?;
        let calls = Calls::of_all(navigator.session(), thread, watch)?;
        let forest = calls.forest();
        let at = forest.call_at(navigator.index_of(tid));
        let around = at
            .map(|call| forest.ancestors(call).collect())
            .unwrap_or_default();
        Ok(Self {
            navigator,
            calls,
            lists,
            thread,
            around,
        })
    }

    fn named(&self, name: &str) -> backtrail_debugger::Result<CallId> {
        named(self.thread, &self.calls, name)
    }

    /// The calls that one made; without one, those that history begins with.
    fn siblings(&self, parent: Option<CallId>) -> Arc<[CallId]> {
        self.lists.of(self.thread.tid, self.calls.forest(), parent)
    }

    fn call(&self, id: CallId, number: usize) -> backtrail_debugger::Result<CallNode> {
        let mut view = self.calls.view(id, 0)?;
        self.navigator.mark_skipped(&mut view);
        Ok(CallNode {
            call: view.call,
            function: view.function,
            file: view.file,
            line: view.line,
            library: view.library,
            position: view.position,
            instructions: view.instructions,
            time: view.time.map(Moment::from),
            duration: view.duration.map(Length::from),
            entered: view.entered,
            left: view.left,
            children: self.siblings(Some(id)).len(),
            number,
            around: self.around.contains(&id),
        })
    }
}

/// The call of a name.
///
/// # Errors
/// When the thread has none of this name.
pub fn named(thread: &Thread, calls: &Calls<'_>, name: &str) -> backtrail_debugger::Result<CallId> {
    let none = || Error::Cannot(format!("thread {} has no call {name}", thread.tid));
    let parsed = name.parse().map_err(|()| none())?;
    thread.call_named(calls.forest(), parsed)?.ok_or_else(none)
}
