//! Finds line table rows by address, and statements by file and line.

use super::info::{DebugInfo, LazyUnit};
use super::lines::PrologueEnd;
use super::paths;
use super::sample_lines::SampleRow;
use crate::LineRow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// The code of a source line in one function or inlined copy.
pub(crate) struct Statement {
    pub address: u64,
    pub file: Arc<str>,
    pub line: u32,
}

impl<'d> DebugInfo<'d> {
    /// Returns the row that covers `at`.
    pub fn line_at(&self, at: u64) -> Option<LineRow> {
        let (table, files) = self.program(self.unit_at(at)?)?;
        table.row_at(at, files)
    }

    /// Returns the line and the discriminator of `at`, for sample profiles.
    pub fn sample_row_at(&self, at: u64) -> Option<SampleRow> {
        let program = self.programs.get(self.unit_at(at)?.program?)?;
        program.sample_lines(&self.code, &self.line_rows).row_at(at)
    }

    /// Returns the rows that overlap `range`, in address order.
    pub fn lines_in(&self, range: Range<u64>) -> Vec<LineRow> {
        let units: BTreeSet<u32> = self.map.meeting(range.clone()).collect();
        let mut seen = BTreeSet::new();
        let mut rows = Vec::new();
        for unit in units
            .into_iter()
            .filter_map(|number| self.units.get(number as usize))
        {
            if let Some((table, files)) = self.program(unit).filter(|_| seen.insert(unit.program)) {
                table.rows_in(&range, files, &mut rows);
            }
        }
        rows.sort_by_key(|row| (row.range.start, row.range.end));
        rows
    }

    /// Returns the end of a function's prologue.
    pub fn after_prologue(&self, entry: u64, end: u64) -> PrologueEnd {
        let program = self.unit_at(entry).and_then(|unit| self.program(unit));
        program.map_or(PrologueEnd::Unknown, |(table, _)| {
            table.after_prologue(entry, end)
        })
    }

    /// Returns the units with a file whose path has this last component.
    fn units_with_file(&self, name: &str) -> impl Iterator<Item = &LazyUnit<'d>> {
        let index = self.with_file.get_or_init(|| {
            let mut index: BTreeMap<Box<str>, Vec<usize>> = BTreeMap::new();
            for (number, unit) in self.units_with_programs() {
                for name in self.files_of(unit).iter().filter_map(|file| paths::name(file)) {
                    let units = index.entry(name.into()).or_default();
                    if units.last() != Some(&number) {
                        units.push(number);
                    }
                }
            }
            index
        });
        let numbers = index.get(name).map_or(&[][..], Vec::as_slice);
        numbers.iter().filter_map(|&number| self.units.get(number))
    }

    /// Returns the paths of all source files.
    pub fn source_files(&self) -> BTreeSet<Arc<str>> {
        let files = self
            .units_with_programs()
            .flat_map(|(_, unit)| self.files_of(unit));
        files.filter(|file| !file.is_empty()).cloned().collect()
    }

    /// Returns the MD5 of a source file, if a line table states it. The path is one of
    /// [`Self::source_files`].
    pub fn source_md5(&self, path: &str) -> Option<[u8; 16]> {
        self.units_with_file(paths::name(path)?).find_map(|unit| {
            let number = self.files_of(unit).iter().position(|file| **file == *path)?;
            self.programs.get(unit.program?)?.md5(number as u64)
        })
    }

    /// Returns the directories in which the units with a source file were compiled. The path is one
    /// of [`Self::source_files`].
    pub fn compile_directories(&self, path: &str) -> BTreeSet<String> {
        let units = paths::name(path).map(|name| self.units_with_file(name));
        let units = units.into_iter().flatten();
        let with_file = units.filter(|unit| self.files_of(unit).iter().any(|file| **file == *path));
        let directories = with_file.filter_map(|unit| unit.unit.gimli.comp_dir.as_ref());
        directories
            .map(|directory| String::from_utf8_lossy(directory.slice()).into_owned())
            .collect()
    }

    /// Returns the statements of `line` in the files that `wanted` names. If the line has no code,
    /// they are those of the nearest line after it.
    pub fn statements_of_line(&self, wanted: &str, line: u32) -> Vec<Statement> {
        let mut nearest = u32::MAX;
        let mut found: Vec<Statement> = Vec::new();
        let Some(name) = paths::name(wanted) else {
            return found;
        };
        for unit in self.units_with_file(name) {
            let Some(program) = unit.program.and_then(|program| self.programs.get(program)) else {
                continue;
            };
            let files = self.files_of(unit);
            let matching: Vec<bool> = files.iter().map(|file| paths::ends_with(file, wanted)).collect();
            if !matching.contains(&true) {
                continue;
            }
            for (here, file, address) in program.table(&self.code, &self.line_rows).statements(&matching) {
                if here < line || here > nearest {
                    continue;
                }
                if here < nearest {
                    nearest = here;
                    found.clear();
                }
                let file = files.get(file as usize).cloned().unwrap_or_default();
                found.push(Statement {
                    address,
                    file,
                    line: here,
                });
            }
        }
        found.sort_by_key(|statement| statement.address);
        found
    }
}
