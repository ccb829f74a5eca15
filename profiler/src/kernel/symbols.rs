//! The functions of the running kernel, from `/proc/kallsyms`.
//!
//! Source: proc_kallsyms(5), `scripts/kallsyms.c` and `kernel/kallsyms.c` of Linux.

use std::io::{BufRead, BufReader, Read};
use std::ops::Range;

/// The most bytes of the list that are read. The list of a kernel with debug options has 20 MB.
const MAX_BYTES: u64 = 64 << 20;

/// A symbol in the order of addresses.
#[derive(Clone, Copy, Debug)]
struct KernelSymbol {
    address: u64,
    /// The position of the name in the texts.
    name: u32,
    length: u16,
}

/// The functions of the kernel and of its modules at one time.
#[derive(Debug, Default)]
pub(crate) struct KernelSymbols {
    symbols: Vec<KernelSymbol>,
    names: String,
    text: Option<Range<u64>>,
}

impl KernelSymbols {
    /// Reads the list of the running kernel. It is empty if this user may not see addresses.
    pub fn of_this_machine() -> Self {
        let file = std::fs::File::open("/proc/kallsyms");
        file.map(|file| Self::parse(BufReader::with_capacity(1 << 16, file.take(MAX_BYTES))))
            .unwrap_or_default()
    }

    /// Parses lines of address, type, name, and the module in brackets if there is one. Malformed
    /// lines and all but functions are left out.
    pub fn parse(mut list: impl BufRead) -> Self {
        let mut this = Self::default();
        let mut line = Vec::new();
        let (mut start, mut end) = (None, None);
        loop {
            line.clear();
            if !matches!(list.read_until(b'\n', &mut line), Ok(1..)) {
                break;
            }
            let Some((address, name)) = std::str::from_utf8(&line).ok().and_then(function) else {
                continue;
            };
            match name {
                "_text" => start = Some(address),
                "_etext" => end = Some(address),
                _ => this.push(address, name),
            }
        }
        this.text = start
            .zip(end)
            .filter(|(start, end)| start < end)
            .map(|(start, end)| start..end);
        this.sort();
        this
    }

    fn push(&mut self, address: u64, name: &str) {
        let (Ok(at), Ok(length)) = (u32::try_from(self.names.len()), u16::try_from(name.len())) else {
            return;
        };
        self.names.push_str(name);
        self.symbols.push(KernelSymbol {
            address,
            name: at,
            length,
        });
    }

    /// Sorts the symbols, and keeps the best of those with one address. That is one that does not
    /// begin with an underscore, and then the first of the list.
    fn sort(&mut self) {
        let names = std::mem::take(&mut self.names);
        let name = |symbol: &KernelSymbol| text(&names, symbol);
        let is_marked = |symbol: &KernelSymbol| name(symbol).starts_with('_');
        self.symbols
            .sort_by_key(|symbol| (symbol.address, is_marked(symbol)));
        self.symbols.dedup_by_key(|symbol| symbol.address);
        self.symbols.shrink_to_fit();
        self.names = names;
    }

    /// Returns the addresses of the kernel's text without its modules. `None`: they are hidden.
    pub fn text(&self) -> Option<Range<u64>> {
        self.text.clone()
    }

    /// Returns the name of the function at an address. A function of the kernel or of a module has
    /// no size: it ends where the next one begins. `start` is the first address of the module.
    pub fn function_at(&self, start: u64, address: u64) -> Option<&str> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = self.symbols.get(after.checked_sub(1)?)?;
        (symbol.address >= start).then(|| text(&self.names, symbol))
    }
}

fn text<'a>(names: &'a str, symbol: &KernelSymbol) -> &'a str {
    let at = symbol.name as usize;
    names.get(at..at + usize::from(symbol.length)).unwrap_or_default()
}

/// Returns the address and name of a line if the symbol is code. Hidden addresses are 0.
fn function(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
    (is_code && address != 0).then_some((address, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000000 T _text
ffffffff81000100 t __helper
ffffffff81000100 T helper
ffffffff81000100 T helper_alias
bad line
ffffffff81000200 D data
ffffffff82000000 T _etext
ffffffffc0000010 t probe\t[loop]
";

    #[test]
    fn functions_reach_to_the_next_one() {
        let symbols = KernelSymbols::parse(LIST.as_bytes());
        let text = 0xffff_ffff_8100_0000..0xffff_ffff_8200_0000;
        assert_eq!(symbols.text(), Some(text.clone()));
        let at = |offset| symbols.function_at(text.start, text.start + offset);
        assert_eq!(at(0), Some("startup_64"));
        assert_eq!(at(0xff), Some("startup_64"));
        assert_eq!(at(0x100), Some("helper"));
        assert_eq!(at(0x250), Some("helper"));
        let module = 0xffff_ffff_c000_0000;
        assert_eq!(symbols.function_at(module, module + 0x20), Some("probe"));
        // The start of the module has no symbol. That before belongs to another one.
        assert_eq!(symbols.function_at(module, module + 8), None);
        assert_eq!(symbols.function_at(0, 7), None);
    }

    #[test]
    fn hidden_addresses_give_no_functions() {
        let hidden = "0000000000000000 T _text\n0000000000000000 T helper\n0000000000000000 T _etext\n";
        let symbols = KernelSymbols::parse(hidden.as_bytes());
        assert_eq!(symbols.text(), None);
        assert_eq!(symbols.function_at(0, 0x1000), None);
    }

    #[test]
    fn list_of_this_machine_agrees_with_itself() {
        let symbols = KernelSymbols::of_this_machine();
        let Some(text) = symbols.text() else {
            eprintln!("skipped: /proc/kallsyms has no addresses for this user");
            return;
        };
        let list = std::fs::read_to_string("/proc/kallsyms").unwrap();
        for name in ["schedule", "vfs_read", "do_exit"] {
            let line = list.lines().find(|line| line.ends_with(&format!(" T {name}")));
            let Some(line) = line else { continue };
            let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
            assert_eq!(symbols.function_at(text.start, address + 1), Some(name));
        }
    }
}
