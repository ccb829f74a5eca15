//! The calls that a call made, as a list: a forest walks from one to the next, which takes long for
//! the millionth.

use backtrail_decoder::{CallId, Forest};
use backtrail_pt::Tid;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// No more calls are kept in all lists.
const MOST: usize = 1 << 24;
/// Lists that are shorter are walked again.
const SHORT: usize = 256;

/// The lists that were asked for.
#[derive(Debug, Default)]
pub struct CallListCache(RefCell<CallLists>);

#[derive(Debug, Default)]
struct CallLists {
    known: HashMap<CallListKey, Arc<[CallId]>>,
    calls: usize,
}

/// A thread with the number of its calls, which is another when more of its history is decoded, and
/// the parent.
type CallListKey = (Tid, usize, Option<u32>);

impl CallListCache {
    /// The calls that one made; without one, those that history begins with.
    pub fn of(&self, tid: Tid, forest: &Forest, parent: Option<CallId>) -> Arc<[CallId]> {
        let key = (tid, forest.len(), parent.map(CallId::number));
        if let Some(known) = self.0.borrow().known.get(&key) {
            return Arc::clone(known);
        }
        let list: Arc<[CallId]> = match parent {
            Some(parent) => forest.children(parent).collect(),
            None => forest.roots().collect(),
        };
        if list.len() > SHORT {
            let mut lists = self.0.borrow_mut();
            if lists.calls.saturating_add(list.len()) > MOST {
                *lists = CallLists::default();
            }
            lists.calls = lists.calls.saturating_add(list.len());
            lists.known.insert(key, Arc::clone(&list));
        }
        list
    }
}
