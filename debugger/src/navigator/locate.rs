//! Resolves locations at the navigator's position.

use super::Navigator;
use crate::breakpoint::ResolvedLocation;
use crate::error::Result;
use crate::location::{Location, Resolved};
use crate::session::Process;
use crate::source::is_same_file;
use crate::source_names::SourceNames;
use crate::stack::{Origin, StackFrame};
use backtrail_decoder::Watch;

impl Navigator {
    /// Looks a location up in the current process.
    ///
    /// # Errors
    /// When it is none, or there is no code for it.
    pub fn resolve(&self, text: &str, watch: &Watch<'_>) -> Result<Resolved> {
        self.resolve_in(self.process()?, text, watch)
    }

    /// Looks a location up in a process.
    ///
    /// # Errors
    /// When it is none, or there is no code for it.
    pub fn resolve_in(&self, process: &Process, text: &str, watch: &Watch<'_>) -> Result<Resolved> {
        let location = Location::parse(text)?;
        let here = self.current_file(watch)?;
        let names = self.names_of(&location);
        location.resolve(process, here.as_deref(), self.pc(), &names)
    }

    /// Looks a location up in every process, for breakpoints.
    ///
    /// # Errors
    /// When none has code for it.
    pub fn resolve_everywhere(&self, text: &str, watch: &Watch<'_>) -> Result<ResolvedLocation> {
        let location = Location::parse(text)?;
        let here = self.current_file(watch)?;
        let names = self.names_of(&location);
        let mut found = ResolvedLocation::default();
        let mut error = None;
        for process in self.session.processes() {
            match location.resolve(process, here.as_deref(), self.pc(), &names) {
                Ok(resolved) => {
                    found.hits.insert(process.pid, resolved.hits);
                    found.places.extend(resolved.places);
                    found.asked = resolved.asked;
                }
                Err(problem) => error = Some(problem),
            }
        }
        found.places.dedup();
        match error {
            Some(error) if found.hits.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    /// Returns the names of source files in the debug information.
    pub fn source_names(&self) -> &SourceNames {
        self.source_names.get_or_init(|| SourceNames::of(&self.session))
    }

    /// Returns whether two names of the debug information lead to one file.
    #[must_use]
    pub fn is_same_source(&self, one: &str, other: &str) -> bool {
        one == other
            || matches!(
                (self.sources.find(one), self.sources.find(other)),
                (Some(one), Some(other)) if is_same_file(&one, &other)
            )
    }

    /// Returns the names that the file of a location has in the debug information. A plain file
    /// name means every file of that name, so it has no others.
    fn names_of(&self, location: &Location) -> Vec<String> {
        match location {
            Location::Line { file: Some(file), .. } if file.contains('/') => {
                self.source_names().same_as(&self.sources, file)
            }
            _ => Vec::new(),
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
