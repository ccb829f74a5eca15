//! The calls of each function, for queries of one function.

use super::CallId;
use super::nodes::Nodes;
use crate::Canceled;
use crate::watch::{Stage, Watch};

/// The calls of each function, in order; 4 bytes per call.
#[derive(Debug, Default)]
pub(super) struct ByFunction {
    /// The start of each function's calls in `calls`, and the end of the last.
    starts: Vec<usize>,
    calls: Vec<CallId>,
}

/// Calls between two progress reports.
const REPORT_EVERY: u32 = 1 << 20;

impl ByFunction {
    /// Sorts all calls in two passes; `functions` is the number of functions.
    pub fn new(nodes: &Nodes, functions: usize, watch: &Watch<'_>) -> Result<Self, Canceled> {
        let len = nodes.len() as u32;
        let report = |id: u32, pass: u64| match id.is_multiple_of(REPORT_EVERY) {
            true => watch.report(
                Stage::Calls,
                pass * u64::from(len) + u64::from(id),
                2 * u64::from(len),
            ),
            false => Ok(()),
        };
        let mut starts = vec![0; functions + 1];
        for id in 0..len {
            report(id, 0)?;
            let count = nodes
                .function(id)
                .and_then(|function| starts.get_mut(function as usize + 1));
            if let Some(count) = count {
                *count += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut ends = starts.clone();
        let mut calls = vec![CallId(0); sum];
        for id in 0..len {
            report(id, 1)?;
            let end = nodes
                .function(id)
                .and_then(|function| ends.get_mut(function as usize));
            if let Some(end) = end
                && let Some(call) = calls.get_mut(*end)
            {
                *call = CallId(id);
                *end += 1;
            }
        }
        Ok(Self { starts, calls })
    }

    /// Returns the calls of a function.
    pub fn of(&self, function: usize) -> &[CallId] {
        match self.starts.get(function..) {
            Some(&[start, end, ..]) => self.calls.get(start..end).unwrap_or(&[]),
            _ => &[],
        }
    }

    /// Returns the bytes in use.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.calls)
    }
}
