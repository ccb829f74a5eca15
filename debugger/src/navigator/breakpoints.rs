//! Sets breakpoints at the navigator's position.

use super::Navigator;
use crate::breakpoint::{Condition, Hits};
use crate::error::Result;
use crate::evaluation::conditions::check;
use backtrail_decoder::Watch;
use backtrail_pt::{Pid, Tid};
use std::collections::BTreeMap;

impl Navigator {
    /// Sets a breakpoint in every process that has code for a location, and gives its number.
    ///
    /// # Errors
    /// When none has, or the condition makes no sense there.
    pub fn set_breakpoint(
        &mut self,
        location: &str,
        condition: Option<&str>,
        thread: Option<Tid>,
        temporary: bool,
        watch: &Watch<'_>,
    ) -> Result<u32> {
        let found = self.resolve_everywhere(location, watch)?;
        let condition = condition
            .map(|text| self.condition(text, &found.hits))
            .transpose()?;
        let number = self.breakpoints.add(location.to_owned(), found, temporary);
        let breakpoint = self.breakpoints.get_mut(number)?;
        breakpoint.condition = condition;
        breakpoint.thread = thread;
        Ok(number)
    }

    /// A condition, whose expressions of the program make sense where a breakpoint hits.
    ///
    /// # Errors
    /// When it is none, or they do not.
    pub fn condition(&self, text: &str, hits: &BTreeMap<Pid, Hits>) -> Result<Condition> {
        let condition = Condition::parse(text)?;
        let here = hits.get(&self.process()?.pid);
        for expression in condition.values().filter(|_| here.is_some()) {
            check(self, here.and_then(Hits::address), expression)?;
        }
        Ok(condition)
    }
}
