//! The view `lines`: source lines with their weights and, if the files are here, their text.

use super::selected::Selected;
use crate::exit::Failure;
use backtrail_profile::{LineWeight, line_weights};
use serde::Serialize;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The largest part of a source file that is read.
const MAX_SOURCE: u64 = 16 << 20;

/// A source line.
#[derive(Serialize)]
pub struct LineRow {
    /// Empty: all code whose line is unknown.
    pub file: Box<str>,
    pub line: u32,
    pub own: i64,
    pub total: i64,
    /// The text, without the spaces around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Returns the lines with the largest own weights.
pub fn rows(selected: &Selected, limit: usize) -> Result<Vec<LineRow>, Failure> {
    let mut weights = line_weights(&selected.functions)?;
    weights.truncate(limit);
    let texts = texts(&weights);
    let row = |weight: LineWeight| LineRow {
        text: texts.get(&(weight.file.clone(), weight.line)).cloned(),
        file: weight.file,
        line: weight.line,
        own: weight.own,
        total: weight.total,
    };
    Ok(weights.into_iter().map(row).collect())
}

/// Returns the texts of lines whose files are on this machine.
fn texts(weights: &[LineWeight]) -> HashMap<(Box<str>, u32), String> {
    let mut wanted: HashMap<&str, Vec<u32>> = HashMap::new();
    for weight in weights
        .iter()
        .filter(|weight| Path::new(&*weight.file).is_absolute())
    {
        wanted.entry(&weight.file).or_default().push(weight.line);
    }
    let mut texts = HashMap::new();
    for (file, lines) in wanted {
        let path = Path::new(file);
        let source = path.is_file().then(|| File::open(path).ok()).flatten();
        let Some(source) = source else { continue };
        let source = BufReader::new(source.take(MAX_SOURCE));
        for (number, text) in (1..).zip(source.lines()) {
            // Another encoding has no text.
            let Ok(text) = text else { break };
            if lines.contains(&number) {
                texts.insert((file.into(), number), text.trim().to_owned());
            }
        }
    }
    texts
}
