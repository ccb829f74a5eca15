//! Frames of a profile, by which a query finds their stacks in all segments.

use crate::frame_line::FrameLine;
use backtrail_profile::{Frame, Id, Profile};
use backtrail_pt::BuildId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The stacks of a query, by their frames. The default has all stacks.
#[derive(Clone, Debug, Default)]
pub struct StackFilter {
    /// Frames of which a stack must have one. `None`: no condition.
    pub with: Option<Arc<FrameSet>>,
    /// Frames of which a stack must have none. `None`: no condition.
    pub without: Option<Arc<FrameSet>>,
}

impl StackFilter {
    /// Returns the sets, and whether a stack must have a frame of each.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = (&FrameSet, bool)> {
        let with = self.with.iter().map(|set| (&**set, true));
        with.chain(self.without.iter().map(|set| (&**set, false)))
    }
}

/// The identity of a module: its build, or else its path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ModuleId {
    Build(BuildId),
    Path(Box<str>),
}

impl ModuleId {
    fn new(build_id: Option<&BuildId>, path: &str) -> Self {
        match build_id {
            Some(build_id) => Self::Build(build_id.clone()),
            None => Self::Path(path.into()),
        }
    }
}

/// A set of frames.
#[derive(Clone, Debug, Default)]
pub struct FrameSet {
    /// The offsets of code by module.
    code: HashMap<ModuleId, HashSet<u64>>,
    addresses: HashSet<u64>,
    functions: HashSet<FrameLine>,
    has_lost: bool,
}

impl FrameSet {
    /// Returns the frames of a profile whose place in `members` is true. Code is the same at each
    /// path of a build.
    #[must_use]
    pub fn of_profile(profile: &Profile, members: &[bool]) -> Self {
        let mut set = Self::default();
        let frames = profile.frames.iter();
        for (_, frame) in frames.filter(|(id, _)| members.get(id.index()) == Some(&true)) {
            match *frame {
                Frame::Code { module, offset } => {
                    let Some(module) = profile.modules.get(module) else {
                        continue;
                    };
                    let module = ModuleId::new(module.build_id.as_ref(), profile.text(module.path));
                    set.code.entry(module).or_default().insert(offset.0);
                }
                Frame::Address(address) => {
                    set.addresses.insert(address);
                }
                Frame::Function { function, line } => {
                    set.functions.extend(FrameLine::of(profile, function, line));
                }
                Frame::Lost => set.has_lost = true,
                _ => {}
            }
        }
        set
    }

    /// Returns the offsets of a module's code. `None`: the set has none of it.
    pub(crate) fn code_of(&self, build_id: Option<&BuildId>, path: &str) -> Option<&HashSet<u64>> {
        self.code.get(&ModuleId::new(build_id, path))
    }

    /// Returns whether the set has an address.
    pub(crate) fn has_address(&self, address: u64) -> bool {
        self.addresses.contains(&address)
    }

    /// Returns whether the set has a function with this line.
    pub(crate) fn has_function(&self, line: &FrameLine) -> bool {
        self.functions.contains(line)
    }

    /// Returns whether the set has the mark of lost frames.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost
    }
}
