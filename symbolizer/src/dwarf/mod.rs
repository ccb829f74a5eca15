//! The DWARF of one file (DWARF 2 to 5), read one unit at a time.

mod abbreviations;
mod budget;
mod call_sites;
mod dies;
mod entry;
mod evaluate;
mod functions;
mod index;
mod info;
mod language;
mod line_row;
mod lines;
mod lookup;
mod name_table;
mod named;
mod paths;
mod resolve;
mod sample_lines;
mod scopes;
mod sections;
mod source_language;
mod source_lines;
mod split;
mod stated_name;
mod template_names;
mod types;
mod unit;
mod variants;

pub(crate) use budget::Budget;
pub(crate) use dies::ResolvedName;
pub(crate) use functions::FunctionAt;
pub(crate) use info::DebugInfo;
pub(crate) use lines::PrologueEnd;
pub(crate) use sections::Slice;
pub(crate) use source_lines::Statement;
pub(crate) use split::{Skeleton, skeletons};
