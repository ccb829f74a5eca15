//! The comparison of variables by their names.

use super::answers::{Answer, GdbFrame, OurFrame, Variable};
use super::builds::{Build, Source};
use super::reasons::REASONS;
use std::collections::BTreeMap;
use std::fmt;

/// The text of a variable that is not listed.
pub const NOT_LISTED: &str = "<not listed>";

/// The name of a line that differs.
pub const LINE: &str = "the line";

/// The name of a frame whose variables ended GDB.
pub const INTERNAL_ERROR: &str = "internal error";

/// A variable with different values.
pub struct Difference<'a> {
    pub build: &'a Build,
    /// The number of the core.
    pub core: usize,
    pub frame: &'a GdbFrame,
    pub name: &'a str,
    /// The type, as Backtrail writes it.
    pub ty: &'a str,
    pub ours: String,
    pub gdb: String,
}

/// The comparison of a build.
pub struct Comparison<'a> {
    build: &'a Build,
    positions: usize,
    frames: usize,
    variables: usize,
    /// How often each reason explained a difference.
    pub reasons: BTreeMap<&'static str, usize>,
    unexplained: Vec<String>,
}

impl Difference<'_> {
    /// Returns the program.
    pub fn source(&self) -> Source {
        self.build.source
    }

    /// Returns whether the frame is in code that stores the arguments of its function.
    pub fn is_at_start_of_function(&self) -> bool {
        self.source().line(self.frame.line).trim() == "{"
    }

    /// Returns whether the frame is in code that destroys the objects of a block.
    pub fn is_at_end_of_block(&self) -> bool {
        let line = self.source().line(self.frame.line);
        line.trim() == "}" || line.trim().starts_with("return ")
    }
}

impl fmt::Display for Difference<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (build, core, frame) = (self.build.name(), self.core, self.frame);
        writeln!(
            out,
            "{build}: core {core} frame {} {:#x} {}:{} {} ({})",
            frame.number, frame.pc, frame.function, frame.line, self.name, self.ty
        )?;
        write!(out, "    ours {}\n    gdb  {}", self.ours, self.gdb)
    }
}

impl<'a> Comparison<'a> {
    /// Returns a comparison without positions.
    pub fn new(build: &'a Build) -> Self {
        Self {
            build,
            positions: 0,
            frames: 0,
            variables: 0,
            reasons: BTreeMap::new(),
            unexplained: Vec::new(),
        }
    }

    /// Compares the frames of a core.
    pub fn add(&mut self, core: usize, gdb: &Answer, ours: &[OurFrame]) {
        self.positions += 1;
        for (frame, our) in gdb.frames.iter().zip(ours) {
            self.frames += 1;
            let build = self.build;
            let difference = |name, ours, gdb| Difference {
                build,
                core,
                frame,
                name,
                ty: "",
                ours,
                gdb,
            };
            let (pc, line) = (our.pc.unwrap_or(0), our.line.unwrap_or(0));
            if pc != frame.pc {
                let (ours, gdb) = (format!("{pc:#x}"), format!("{:#x}", frame.pc));
                self.explain(&difference("the frame", ours, gdb));
                continue;
            }
            if line != frame.line {
                self.explain(&difference(LINE, line.to_string(), frame.line.to_string()));
            }
            match frame.variables() {
                Some(theirs) => self.add_frame(core, frame, our, &theirs),
                None => self.explain(&difference(
                    INTERNAL_ERROR,
                    String::new(),
                    INTERNAL_ERROR.to_owned(),
                )),
            }
        }
    }

    fn add_frame(&mut self, core: usize, frame: &GdbFrame, ours: &OurFrame, theirs: &[Variable]) {
        let (our_values, their_values) = (by_name(&ours.variables), by_name(theirs));
        let mut names: Vec<&str> = our_values.keys().chain(their_values.keys()).copied().collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let (our, their) = (our_values.get(name), their_values.get(name));
            let count = our.map_or(0, Vec::len).max(their.map_or(0, Vec::len));
            for number in 0..count {
                self.variables += 1;
                let our = our.and_then(|values| values.get(number));
                let their = their.and_then(|values| values.get(number));
                let text =
                    |value: Option<&&Variable>| value.map_or(NOT_LISTED, |value| &value.text).to_owned();
                let (ours, gdb) = (text(our), text(their));
                if ours == gdb {
                    continue;
                }
                self.explain(&Difference {
                    build: self.build,
                    core,
                    frame,
                    name,
                    ty: our.map_or("", |value| &value.ty),
                    ours,
                    gdb,
                });
            }
        }
    }

    fn explain(&mut self, difference: &Difference<'_>) {
        match REASONS.iter().find(|reason| (reason.applies)(difference)) {
            Some(reason) => *self.reasons.entry(reason.name).or_default() += 1,
            None => self.unexplained.push(difference.to_string()),
        }
    }

    /// Returns the differences without a reason.
    pub fn unexplained(&self) -> Vec<String> {
        self.unexplained.clone()
    }

    /// Returns the row of the report.
    pub fn row(&self) -> String {
        format!(
            "| {} | {} | {} | {} | {:?} | {} |",
            self.build.name(),
            self.positions,
            self.frames,
            self.variables,
            self.reasons,
            self.unexplained.len()
        )
    }
}

/// Returns the variables of each name, in order.
fn by_name(variables: &[Variable]) -> BTreeMap<&str, Vec<&Variable>> {
    let mut found: BTreeMap<&str, Vec<&Variable>> = BTreeMap::new();
    for variable in variables {
        found.entry(&variable.name).or_default().push(variable);
    }
    found
}
