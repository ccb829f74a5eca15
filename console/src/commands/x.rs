//! `x`: memory at an address.

use super::error::misuse;
use super::{Context, list};
use crate::output::{MemoryLine, Output};
use backtrail_debugger::evaluation::with_context;
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::{Error, Result};
use backtrail_decoder::Watch;
use backtrail_pt::Avma;
use backtrail_symbolizer::types::Encoding;
use backtrail_values::{EvalContext, Failure, Number, Units, ValueFormatter, integer, lettered, parse};

/// No more are shown at once.
const MAX_COUNT: u64 = 4096;

/// The format of memory.
struct MemoryFormat {
    count: u64,
    letter: char,
    /// In bytes.
    size: u64,
}

/// `x/NFU ADDRESS`.
pub(super) fn examine(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    shown(context.navigator, context.watch, arguments)
}

/// A display of this format shows what `x` does, not a value: it has a count, a size, or asks for
/// instructions or a string.
pub(super) fn is_of_memory(format: &str) -> bool {
    let asks = |character: char| character.is_ascii_digit() || "isbhwg".contains(character);
    format.contains(asks)
}

/// Returns the answer of `x`.
pub(super) fn shown(navigator: &Navigator, watch: &Watch<'_>, arguments: &str) -> Result<Output> {
    let (format, place) = super::format_argument::format_of(arguments);
    let instructions = format.ends_with('i') || (format.is_empty() && place.is_empty());
    let format = MemoryFormat::parse(format)?;
    let place = if place.is_empty() { "$pc" } else { place };
    let at = with_context(navigator, watch, |eval| address(eval, place));
    if instructions {
        // An invalid expression can be a function or a code address.
        return match at {
            Ok(at) => list::instructions(navigator, at, format.count, watch),
            Err(_) => list::examine(navigator, arguments, watch),
        };
    }
    let at = at?;
    let lines = with_context(navigator, watch, |eval| {
        Ok(match format.letter {
            's' => strings(eval, at, &format),
            _ => numbers(eval, at, &format),
        })
    })?;
    Ok(Output::Memory { lines })
}

impl MemoryFormat {
    fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::Cannot(format!(
                "\"/{text}\" is not a format; use a count, a letter of xduotacfsi, and a size b, h, w or g"
            ))
        };
        let end = text
            .find(|character: char| !character.is_ascii_digit())
            .unwrap_or(text.len());
        let (count, letters) = text.split_at(end);
        let count = match count {
            "" => 1,
            count => count.parse::<u64>().map_err(|_| wrong())?.min(MAX_COUNT),
        };
        let (mut letter, mut size) = (None, None);
        for character in letters.chars() {
            match character {
                'b' => size = Some(1),
                'h' => size = Some(2),
                'w' => size = Some(4),
                'g' => size = Some(8),
                'x' | 'd' | 'u' | 'o' | 't' | 'a' | 'c' | 'f' | 's' | 'i' | 'z' => letter = Some(character),
                _ => return Err(wrong()),
            }
        }
        let letter = letter.unwrap_or('x');
        let default = match letter {
            'a' | 'f' => 8,
            'c' | 's' => 1,
            _ => 4,
        };
        Ok(Self {
            count,
            letter,
            size: if letter == 'a' { 8 } else { size.unwrap_or(default) },
        })
    }
}

/// `info symbol ADDRESS`.
pub(super) fn symbol(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    if arguments.is_empty() {
        return Err(misuse("info symbol requires an address", "info symbol ADDRESS"));
    }
    let found = with_context(context.navigator, context.watch, |eval| {
        let at = address(eval, arguments)?;
        Ok((at, eval.symbol(at)))
    });
    let (at, symbol) = found?;
    let symbol = symbol.ok_or_else(|| Error::Cannot(format!("no symbol covers {at:#x}")))?;
    let module = context.navigator.symbols()?.module_at(Avma(at));
    let module = module
        .map(|module| format!(" of {}", module.name))
        .unwrap_or_default();
    Ok(Output::message(format!("{}{module}", symbol.replace('+', " + "))))
}

/// The address that an expression means: the value of a number or pointer, the place of anything
/// else.
pub(super) fn address(eval: &EvalContext<'_>, text: &str) -> Result<u64> {
    let parsed = parse(text, eval)?;
    let found = eval
        .evaluate(&parsed)
        .and_then(|value| eval.without_reference(value))
        .and_then(|value| match value.ty.is_scalar() {
            // A number that is shorter than an address is not read as one.
            true => match eval.number(&value) {
                Ok((Number::Integer(number), _)) => Ok(number as u64),
                Ok((Number::Float(number), _)) => Ok(number as u64),
                Ok((Number::Complex(_), _)) => Err(Failure::Error(backtrail_values::Error(
                    "a complex number is not an address".to_owned(),
                ))),
                Err(failure) => Err(failure),
            },
            false => match value.address() {
                Some(at) => Ok(at),
                None => Err(Failure::Error(backtrail_values::Error(
                    "it is not in memory, so it has no address".to_owned(),
                ))),
            },
        });
    found.map_err(|failure| match failure {
        Failure::Error(error) => error.into(),
        Failure::Unavailable(cause) => Error::UnknownValue {
            name: text.to_owned(),
            why: cause.reason(),
        },
    })
}

fn label(eval: &EvalContext<'_>, at: u64) -> String {
    match eval.symbol(at) {
        Some(symbol) => format!("{at:#x} <{symbol}>:"),
        None => format!("{at:#x}:"),
    }
}

fn strings(eval: &EvalContext<'_>, start: u64, format: &MemoryFormat) -> Vec<MemoryLine> {
    let formatter = ValueFormatter::new(eval, None);
    let mut at = start;
    let mut lines = Vec::new();
    for _ in 0..format.count {
        let (text, length) = formatter.string_and_length(at, Units::of_size(format.size));
        lines.push(MemoryLine {
            address: at,
            label: label(eval, at),
            unknown: text.contains("<unknown: ").then(|| text.clone()),
            values: vec![text],
        });
        match length {
            Some(length) => at = at.wrapping_add(length),
            None => break,
        }
    }
    lines
}

fn numbers(eval: &EvalContext<'_>, start: u64, format: &MemoryFormat) -> Vec<MemoryLine> {
    let per_line = match (format.letter, format.size) {
        ('c', _) => 8,
        ('a', _) | ('t', 4) => 2,
        ('t', 8) => 1,
        ('f', 8) => 2,
        (_, 1) => 8,
        (_, 2) => 8,
        (_, 8) => 2,
        _ => 4,
    };
    let formatter = ValueFormatter::new(eval, None);
    let mut lines: Vec<MemoryLine> = Vec::new();
    for number in 0..format.count {
        let at = start.wrapping_add(number.wrapping_mul(format.size));
        if number % per_line == 0 {
            lines.push(MemoryLine {
                address: at,
                label: label(eval, at),
                values: Vec::new(),
                unknown: None,
            });
        }
        let Some(line) = lines.last_mut() else { break };
        let mut bytes = [0; 8];
        let Some(part) = bytes.get_mut(..format.size as usize) else {
            break;
        };
        if let Err(why) = eval.source.memory(at, part) {
            line.values.push(format!("<unknown: {why}>"));
            line.unknown = Some(why.to_string());
            break;
        }
        line.values.push(written(&formatter, part, format));
    }
    lines
}

fn written(formatter: &ValueFormatter<'_>, bytes: &[u8], format: &MemoryFormat) -> String {
    let bits = bytes.len() as u64 * 8;
    let letter = match format.letter {
        'a' => {
            let at = integer(bytes, false, bits).unwrap_or_default() as u64;
            return formatter.with_symbol(at);
        }
        // Numbers stand below each other.
        'x' => 'z',
        letter => letter,
    };
    let encoding = match letter {
        'c' | 'd' => Encoding::Signed,
        'f' if bytes.len() >= 4 => Encoding::Float,
        _ => Encoding::Unsigned,
    };
    if letter == 't' {
        let value = integer(bytes, false, bits).unwrap_or_default();
        return format!("{value:0width$b}", width = bits as usize);
    }
    lettered(bytes, letter, encoding, bits).unwrap_or_else(|| "?".to_owned())
}
