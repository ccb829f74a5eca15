//! Names code addresses by their functions.

use backtrail_pt::Avma;
use backtrail_symbolizer::Symbolizer;

/// Returns `main+4` for an address in a function; `None` if no symbol covers it.
#[must_use]
pub fn code_symbol(symbols: &Symbolizer, at: Avma) -> Option<String> {
    let function = symbols.function_at(at)?;
    Some(match at - function.entry {
        0 => function.name.to_string(),
        offset if at >= function.entry => format!("{}+{offset}", function.name),
        _ => format!("{} (part at {})", function.name, function.range.start),
    })
}
