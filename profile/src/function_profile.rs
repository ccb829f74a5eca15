//! A profile by functions: what views and rules work on.

use crate::Result;
use crate::frame::{Frame, FrameId, Function, LOST, Line, StringId};
use crate::profile::Profile;
use crate::sample::{EventId, LabelSetId, Sample, ThreadId, UnixNanos};
use crate::stacks::{StackId, Stacks};
use crate::table::{Id, Table, table_id};
use backtrail_pt::BuildId;
use std::collections::HashMap;
use std::fmt::Write;

table_id! {
    /// A symbol of a [`FunctionProfile`].
    SymbolId
}

/// A function as a view shows it. Functions with the same name in the same module are one, and
/// without a module those in the same file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol {
    /// The name. Without symbols, `MODULE+0xOFFSET`; without a module, the address.
    pub name: Box<str>,
    /// The source file of the declaration, or else of a line. Empty: unknown.
    pub file: Box<str>,
    /// The name of the module's file, without its folder. Empty: unknown.
    pub module: Box<str>,
    /// The build id of the module, if the name is an offset in it.
    pub build_id: Option<BuildId>,
    /// Whether the name is that of a function. If not, it is an address or a mark.
    pub is_function: bool,
}

/// A frame of a view: a function, and the line that ran in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// The function.
    pub symbol: SymbolId,
    /// The file of the line, in the table of the profile. The line of a macro is in another file
    /// than its function. `None`: unknown.
    pub file: Option<StringId>,
    /// The line. 0: unknown.
    pub line: u32,
    /// Whether the compiler inlined it into the next frame outward.
    pub is_inlined: bool,
}

/// A sample of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteSample {
    /// The event type, in the table of the profile.
    pub event: EventId,
    /// The weight.
    pub weight: i64,
    /// The stack of sites.
    pub stack: StackId,
    /// The time, if it is known.
    pub time: Option<UnixNanos>,
    /// The thread, in the table of the profile.
    pub thread: Option<ThreadId>,
    /// The labels, in the table of the profile.
    pub labels: LabelSetId,
}

/// The samples of a profile with functions instead of addresses. Inlined functions are frames of
/// their own.
#[derive(Clone, Debug, Default)]
pub struct FunctionProfile {
    /// The functions.
    pub symbols: Table<SymbolId, Symbol>,
    /// The files of lines.
    pub files: Table<StringId, Box<str>>,
    /// The stacks.
    pub stacks: Stacks<Site>,
    /// The samples.
    pub samples: Vec<SiteSample>,
}

impl FunctionProfile {
    /// Returns the samples of a profile by functions.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) if a table would have 2^32 entries.
    pub fn new(profile: &Profile) -> Result<Self> {
        Ok(Self::with_stacks(profile)?.0)
    }

    /// Returns the same with its stack for each stack of the profile, by the index of the stack.
    ///
    /// # Errors
    ///
    /// As [`FunctionProfile::new`].
    pub fn with_stacks(profile: &Profile) -> Result<(Self, Vec<StackId>)> {
        let (mut this, sites) = Self::of_frames(profile)?;
        // The stack of sites of each stack.
        let mut stacks = vec![StackId::EMPTY];
        for (_, caller, frame) in profile.stacks.iter() {
            let mut stack = stacks.get(caller.index()).copied().unwrap_or(StackId::EMPTY);
            for site in sites.get(frame.index()).into_iter().flatten() {
                stack = this.stacks.push(stack, *site)?;
            }
            stacks.push(stack);
        }
        let site_sample = |sample: &Sample| SiteSample {
            event: sample.event,
            weight: sample.weight,
            stack: stacks
                .get(sample.stack.index())
                .copied()
                .unwrap_or(StackId::EMPTY),
            time: sample.time,
            thread: sample.thread,
            labels: sample.labels,
        };
        this.samples = profile.samples.iter().map(site_sample).collect();
        Ok((this, stacks))
    }

    /// Returns a profile without samples, and its sites for each frame of the profile, the
    /// outermost first.
    pub(crate) fn of_frames(profile: &Profile) -> Result<(Self, Vec<Vec<Site>>)> {
        let mut this = Self::default();
        let files = files_of(profile);
        let mut sites = Vec::with_capacity(profile.frames.len());
        for (id, frame) in profile.frames.iter() {
            sites.push(this.sites(profile, id, frame, &files)?);
        }
        Ok((this, sites))
    }

    /// Returns the sites of a frame, the outermost first.
    fn sites(
        &mut self,
        profile: &Profile,
        id: FrameId,
        frame: &Frame,
        files: &Files<'_>,
    ) -> Result<Vec<Site>> {
        let module = module_name(profile, frame);
        let lines = profile.lines_of(id);
        if let Some(outermost) = lines.len().checked_sub(1) {
            let lines = lines.iter().enumerate().rev();
            return lines
                .map(|(index, line)| self.site(profile, module, line, index < outermost, files))
                .collect();
        }
        let build_id = match frame {
            Frame::Code { module, .. } => profile.modules.get(*module),
            _ => None,
        };
        let build_id = build_id.and_then(|module| module.build_id.clone());
        let named = |name| Symbol {
            name,
            file: "".into(),
            module: module.into(),
            build_id,
            is_function: false,
        };
        let symbol = match *frame {
            Frame::Function { function, line } => {
                let line = Line { function, line };
                return Ok(vec![self.site(profile, module, &line, false, files)?]);
            }
            Frame::Code { offset, .. } => named(format!("{module}+{offset}").into()),
            Frame::Address(address) => named(format!("{address:#x}").into()),
            Frame::Lost => named(LOST.into()),
        };
        let symbol = self.symbols.intern(symbol)?;
        Ok(vec![Site {
            symbol,
            file: None,
            line: 0,
            is_inlined: false,
        }])
    }

    fn site(
        &mut self,
        profile: &Profile,
        module: &str,
        line: &Line,
        is_inlined: bool,
        files: &Files<'_>,
    ) -> Result<Site> {
        let function = profile.functions.get(line.function);
        let text = |id: Option<StringId>| id.map_or("", |id| profile.text(id));
        let row_file = function.and_then(|function| function.file);
        let file = function.and_then(|function| files.get(&(module, function.name)));
        let symbol = self.symbols.intern(Symbol {
            name: text(function.map(|function| function.name)).into(),
            file: text(file.map_or(row_file, |file| Some(file.name))).into(),
            module: module.into(),
            build_id: None,
            is_function: true,
        })?;
        let file = match row_file.map(|file| profile.text(file)) {
            Some(file) => Some(self.files.intern_with(file, || file.into())?),
            None => None,
        };
        Ok(Site {
            symbol,
            file,
            line: line.line,
            is_inlined,
        })
    }

    /// Returns the samples as a profile whose frames are functions, for formats that have no other
    /// form of changed stacks. Code has no addresses in it. Events, threads and labels are those of
    /// `profile`, of which this one was made.
    ///
    /// # Errors
    ///
    /// As [`FunctionProfile::new`].
    pub fn to_profile(&self, profile: &Profile) -> Result<Profile> {
        let mut new = Profile {
            frames: Table::default(),
            lines: HashMap::default(),
            stacks: Stacks::default(),
            samples: Vec::new(),
            ..profile.clone()
        };
        let mut stacks = vec![StackId::EMPTY];
        for (_, caller, site) in self.stacks.iter() {
            let file = match self.symbol(site.symbol).map_or("", |symbol| &symbol.file) {
                "" => None,
                file => Some(new.string(file)?),
            };
            let name = new.string(self.name(site.symbol))?;
            let function = new.functions.intern(Function {
                name,
                linkage_name: name,
                file,
                start_line: 0,
            })?;
            let line = site.line;
            let frame = new.frames.intern(Frame::Function { function, line })?;
            let caller = stacks.get(caller.index()).copied().unwrap_or(StackId::EMPTY);
            stacks.push(new.stacks.push(caller, frame)?);
        }
        let sample = |sample: &SiteSample| Sample {
            event: sample.event,
            weight: sample.weight,
            stack: stacks
                .get(sample.stack.index())
                .copied()
                .unwrap_or(StackId::EMPTY),
            time: sample.time,
            thread: sample.thread,
            cpu: None,
            labels: sample.labels,
        };
        new.samples = self.samples.iter().map(sample).collect();
        Ok(new)
    }

    /// Returns a function. An id of another profile gives `None`.
    #[must_use]
    pub fn symbol(&self, id: SymbolId) -> Option<&Symbol> {
        self.symbols.get(id)
    }

    /// Returns the file of a line. Empty: unknown.
    #[must_use]
    pub fn file(&self, site: Site) -> &str {
        site.file
            .and_then(|file| self.files.get(file))
            .map_or("", |file| file)
    }

    /// Returns the name of a function.
    #[must_use]
    pub fn name(&self, id: SymbolId) -> &str {
        self.symbol(id).map_or("", |symbol| &symbol.name)
    }

    /// Returns a stack as folded text: names from the outermost to the innermost, with `;` between
    /// them.
    #[must_use]
    pub fn folded(&self, stack: StackId) -> String {
        let mut names: Vec<_> = self
            .stacks
            .frames(stack)
            .map(|site| self.name(site.symbol))
            .collect();
        names.reverse();
        let mut text = String::new();
        for (index, name) in names.into_iter().enumerate() {
            if index > 0 {
                text.push(';');
            }
            // Writing to a string cannot fail.
            let _ = write!(text, "{}", OneFrame(name));
        }
        text
    }
}

/// The file of a function, and whether the function is declared in it.
struct FunctionFile {
    name: StringId,
    is_declared: bool,
}

/// The files of the functions of each module, by the names of both.
type Files<'a> = HashMap<(&'a str, StringId), FunctionFile>;

/// Returns the file of each function in a module: that of its declaration, or else of its first
/// line. Lines of one function may be in several files.
fn files_of(profile: &Profile) -> Files<'_> {
    let mut files = Files::new();
    for (id, frame) in profile.frames.iter() {
        let module = module_name(profile, frame);
        if module.is_empty() {
            continue;
        }
        for line in profile.lines_of(id) {
            let function = profile.functions.get(line.function);
            let Some((function, name)) = function.and_then(|one| Some((one, one.file?))) else {
                continue;
            };
            let is_declared = function.start_line > 0;
            let found = FunctionFile { name, is_declared };
            match files.get_mut(&(module, function.name)) {
                Some(file) if is_declared && !file.is_declared => *file = found,
                Some(_) => {}
                None => {
                    files.insert((module, function.name), found);
                }
            }
        }
    }
    files
}

/// Returns the name of the file of a frame's module. Empty: there is none.
fn module_name<'a>(profile: &'a Profile, frame: &Frame) -> &'a str {
    let module = match frame {
        Frame::Code { module, .. } => profile.modules.get(*module),
        _ => None,
    };
    let path = module.map_or("", |module| profile.text(module.path));
    path.rsplit('/').next().unwrap_or_default()
}

/// A name without the separators of folded stacks.
struct OneFrame<'a>(&'a str);

impl std::fmt::Display for OneFrame<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            ';' => f.write_char(':'),
            c if c.is_control() => f.write_char(' '),
            c => f.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Function, Module};
    use backtrail_pt::FileOffset;

    /// Returns a profile with two frames: `leaf`, inlined into `work`, of which `main` is not
    /// symbolized.
    fn profile() -> Profile {
        let mut profile = Profile::default();
        let path = profile.string("/usr/bin/server").unwrap();
        let module = Module { build_id: None, path };
        let module = profile.modules.intern(module).unwrap();
        let mut stack = StackId::EMPTY;
        for offset in [0x10, 0x20] {
            let frame = Frame::Code {
                module,
                offset: FileOffset(offset),
            };
            let frame = profile.frames.intern(frame).unwrap();
            stack = profile.stacks.push(stack, frame).unwrap();
        }
        let functions = ["leaf;", "work"].map(|name| profile.function(name).unwrap());
        let lines = functions.map(|function| Line { function, line: 7 });
        let inner = profile.stacks.split(stack).unwrap().1;
        profile.lines.insert(inner, lines.into());
        let event = profile.event("cpu", "count", 1).unwrap();
        profile.add(event, 3, stack).unwrap();
        profile
    }

    #[test]
    fn inlined_functions_are_frames() {
        let profile = FunctionProfile::new(&profile()).unwrap();
        let stack = profile.samples[0].stack;
        assert_eq!(profile.folded(stack), "server+0x10;work;leaf:");
        let sites: Vec<_> = profile.stacks.frames(stack).collect();
        let flags = |site: &Site| (site.is_inlined, site.line);
        let flags: Vec<_> = sites.iter().map(flags).collect();
        assert_eq!(flags, [(true, 7), (false, 7), (false, 0)]);
        assert!(!profile.symbol(sites[2].symbol).unwrap().is_function);
    }

    #[test]
    fn function_with_lines_in_two_files_is_one() {
        let mut profile = profile();
        let texts = ["twice", "c1.h", "c1.c"].map(|text| profile.string(text).unwrap());
        let [name, declared, other] = texts;
        let function = |file, start_line| Function {
            name,
            linkage_name: name,
            file: Some(file),
            start_line,
        };
        let functions = [(other, 0), (declared, 3)].map(|(file, line)| {
            let function = profile.functions.intern(function(file, line));
            function.unwrap()
        });
        let frames: Vec<_> = profile.frames.iter().map(|(id, _)| id).collect();
        for ((frame, function), line) in frames.into_iter().zip(functions).zip([10, 4]) {
            profile.lines.insert(frame, [Line { function, line }].into());
        }
        let functions = FunctionProfile::new(&profile).unwrap();
        let sites: Vec<_> = functions.stacks.frames(functions.samples[0].stack).collect();
        assert_eq!(sites[0].symbol, sites[1].symbol);
        let places: Vec<_> = sites
            .iter()
            .map(|site| (functions.file(*site), site.line))
            .collect();
        assert_eq!(places, [("c1.h", 4), ("c1.c", 10)]);
        assert_eq!(&*functions.symbol(sites[0].symbol).unwrap().file, "c1.h");
        let lines = crate::line_weights(&functions).unwrap();
        let lines: Vec<_> = lines.iter().map(|row| (&*row.file, row.line)).collect();
        assert_eq!(lines, [("c1.h", 4), ("c1.c", 10)]);
    }
}
