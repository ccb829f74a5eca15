//! Options as one types them: read, and shown again.

use crate::Failure;
use std::str::FromStr;

/// An option, and the following words.
pub struct Word<'a, 'b> {
    /// As it was typed.
    pub name: &'a str,
    rest: &'b mut std::slice::Iter<'a, &'a str>,
}

impl<'a> Word<'a, '_> {
    /// Returns the next word, which is its value.
    pub fn value(&mut self) -> Result<&'a str, Failure> {
        let value = self.rest.next();
        value
            .copied()
            .ok_or_else(|| format!("{} needs a value", self.name))
    }

    /// Its value, a number.
    pub fn number<T: FromStr>(&mut self) -> Result<T, Failure> {
        let value = self.value()?;
        value.parse().map_err(|_| format!("'{value}' is not a number"))
    }
}

/// Returns the names of rows among the arguments. `option` reads the others, and returns whether it
/// knows them.
pub fn read<'a>(
    arguments: &'a [&'a str],
    is_row: impl Fn(&str) -> bool,
    mut option: impl FnMut(&mut Word<'a, '_>) -> Result<bool, Failure>,
) -> Result<Vec<String>, Failure> {
    let mut rows = Vec::new();
    let mut rest = arguments.iter();
    while let Some(&name) = rest.next() {
        let mut word = Word {
            name,
            rest: &mut rest,
        };
        if option(&mut word)? {
            continue;
        }
        if !is_row(name) {
            return Err(format!(
                "'{name}' is neither an option nor a program of the table"
            ));
        }
        rows.push(name.to_owned());
    }
    Ok(rows)
}

/// The flags that are set, the values that are given, and the rows, as one would type them.
pub fn shown<const N: usize>(
    flags: &[(bool, &str)],
    values: [(&str, Option<String>); N],
    rows: &[String],
) -> String {
    let flags = flags
        .iter()
        .filter(|(set, _)| *set)
        .map(|&(_, name)| name.to_owned());
    let values = values
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    let words: Vec<String> = flags.chain(values).chain(rows.iter().cloned()).collect();
    words.join(" ")
}
