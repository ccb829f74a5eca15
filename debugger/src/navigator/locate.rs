//! Resolves locations at the navigator's position.

use super::Navigator;
use crate::breakpoint::Hits;
use crate::error::Result;
use crate::location::{Location, Resolved};
use crate::stack::{Origin, StackFrame};
use backtrail_decoder::Watch;
use backtrail_pt::Pid;
use std::collections::BTreeMap;

impl Navigator {
    /// Looks a location up in the current process.
    ///
    /// # Errors
    /// When it is none, or there is no code for it.
    pub fn resolve(&self, text: &str, watch: &Watch<'_>) -> Result<Resolved> {
        let location = Location::parse(text)?;
        let here = self.current_file(watch)?;
        location.resolve(self.process()?, here.as_deref(), self.pc())
    }

    /// Looks a location up in every process, for breakpoints.
    ///
    /// # Errors
    /// When none has code for it.
    pub fn resolve_everywhere(
        &self,
        text: &str,
        watch: &Watch<'_>,
    ) -> Result<(BTreeMap<Pid, Hits>, Vec<String>)> {
        let location = Location::parse(text)?;
        let here = self.current_file(watch)?;
        let mut hits = BTreeMap::new();
        let mut places = Vec::new();
        let mut error = None;
        for process in self.session.processes() {
            match location.resolve(process, here.as_deref(), self.pc()) {
                Ok(resolved) => {
                    hits.insert(process.pid, resolved.hits);
                    places.extend(resolved.places);
                }
                Err(problem) => error = Some(problem),
            }
        }
        places.dedup();
        match error {
            Some(error) if hits.is_empty() => Err(error),
            _ => Ok((hits, places)),
        }
    }

    /// The source file of the selected frame; if it has none, of the nearest frame around it.
    fn current_file(&self, watch: &Watch<'_>) -> Result<Option<String>> {
        self.nearest(watch, |frame| frame.file.clone())
    }

    /// Returns the result of `find` for the selected frame, or for the nearest frame around it that
    /// has one.
    ///
    /// # Errors
    ///
    /// If the frame may be in history that is not decoded yet; when canceled.
    pub fn nearest<T>(
        &self,
        watch: &Watch<'_>,
        find: impl Fn(&StackFrame) -> Option<T>,
    ) -> Result<Option<T>> {
        const FRAMES: usize = 8;
        let stack = self.known_stack(self.frame + FRAMES, watch)?;
        let mut certain = stack.frames.iter().skip(self.frame);
        // Between frames of the core there may be some that older history knows of.
        let found = certain.find_map(|frame| match frame.origin {
            Origin::Core if stack.needs_earlier => Some(None),
            _ => find(frame).map(Some),
        });
        match found.flatten() {
            Some(found) => Ok(Some(found)),
            None => stack.complete().map(|_| None),
        }
    }
}
