//! A line of a frame, as the table `frames` has it.

use crate::Result;
use backtrail_profile::{Function, FunctionId, Line, Profile};

/// A line of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrameLine {
    pub(crate) name: Box<str>,
    pub(crate) linkage_name: Box<str>,
    pub(crate) file: Option<Box<str>>,
    pub(crate) start_line: u32,
    pub(crate) line: u32,
}

impl FrameLine {
    /// Returns the line of a profile's function. `None`: the profile does not have the function.
    pub(crate) fn of(profile: &Profile, function: FunctionId, line: u32) -> Option<Self> {
        let function = profile.functions.get(function)?;
        Some(Self {
            name: profile.text(function.name).into(),
            linkage_name: profile.text(function.linkage_name).into(),
            file: function.file.map(|file| profile.text(file).into()),
            start_line: function.start_line,
            line,
        })
    }

    /// Adds the line to a profile.
    pub(crate) fn intern(&self, profile: &mut Profile) -> Result<Line> {
        let function = Function {
            name: profile.string(&self.name)?,
            linkage_name: profile.string(&self.linkage_name)?,
            file: self.file.as_ref().map(|file| profile.string(file)).transpose()?,
            start_line: self.start_line,
        };
        Ok(Line {
            function: profile.functions.intern(function)?,
            line: self.line,
        })
    }
}
