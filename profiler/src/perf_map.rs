//! Perf maps: `/tmp/perf-PID.map`, in which a program lists the functions that it generated.
//!
//! Source: `tools/perf/Documentation/jit-interface.txt` of Linux. A line has the address and the
//! size as hexadecimal numbers, and the name, which may contain spaces.

/// The most bytes of a name. Longer ones are cut off.
pub const MAX_NAME: usize = 1024;

/// A line of a perf map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapLine<'a> {
    /// The first address.
    pub start: u64,
    /// The size in bytes.
    pub size: u64,
    /// The name. Its encoding is not known.
    pub name: &'a [u8],
}

/// Parses a line with or without its line feed. `None`: it is malformed, or the code is empty.
#[must_use]
pub fn parse(line: &[u8]) -> Option<MapLine<'_>> {
    let (start, rest) = word(line)?;
    let (size, name) = word(rest)?;
    let (start, size) = (hex(start)?, hex(size)?);
    let name = name.trim_ascii();
    let name = name.get(..MAX_NAME).unwrap_or(name);
    let is_named_code = is_code(start, size) && !name.is_empty();
    is_named_code.then_some(MapLine { start, size, name })
}

/// Returns whether a range of addresses may have code.
pub(crate) fn is_code(start: u64, size: u64) -> bool {
    size > 0 && start.checked_add(size).is_some()
}

fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| *byte == b' ')?;
    text.split_at_checked(end)
        .map(|(word, rest)| (word, rest.trim_ascii_start()))
}

fn hex(word: &[u8]) -> Option<u64> {
    let word = word.strip_prefix(b"0x").unwrap_or(word);
    let is_number = word.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(word).ok().filter(|_| is_number)?;
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_spaces() {
        let line = parse(b"7f0012 1f0 JS:*work /srv/a b.js:7:12\n").unwrap();
        assert_eq!((line.start, line.size), (0x7f_0012, 0x1f0));
        assert_eq!(line.name, b"JS:*work /srv/a b.js:7:12");
        assert_eq!(parse(b"0x10 0x20 f").unwrap().size, 0x20);
    }

    #[test]
    fn malformed_lines_are_left_out() {
        for line in [
            &b""[..],
            b"\n",
            b"10 20",
            b"10 20 \n",
            b"10 0 empty",
            b"-1 2 f",
            b"+1 2 f",
            b"x 2 f",
            b"ffffffffffffffff 2 f",
            b"11112222333344445 2 f",
        ] {
            assert_eq!(parse(line), None, "{}", String::from_utf8_lossy(line));
        }
        let long = [b"1 2 ".as_slice(), &[b'n'; 5000]].concat();
        assert_eq!(parse(&long).unwrap().name.len(), MAX_NAME);
    }
}
