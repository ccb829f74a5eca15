//! Names of Go functions.

/// Suffixes of functions that the Go compiler makes. A number may follow some.
const WRAPPERS: &[&str] = &["-fm", ".abi0", ".abiinternal"];

/// Returns whether a name has the form of Go: a package path, a period, and a function.
///
/// Names of C have a period only before a suffix, and names of C++ and Rust have `::`.
pub fn is_go(name: &str) -> bool {
    if name.contains("::") || name.contains(' ') || name.contains('$') {
        return false;
    }
    let at = name.rfind('/').map_or(0, |slash| slash + 1);
    let Some((package, function)) = name[at..].split_once('.') else {
        return false;
    };
    let is_package = !package.is_empty()
        && !package.starts_with('_')
        && package.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'%')
        });
    let first = function.chars().next().unwrap_or_default();
    let is_function = first.is_alphabetic() || matches!(first, '(' | '_') || function.starts_with(".eq.");
    // The suffixes of C compilers are no functions.
    let word = function.split(['.', '[']).next().unwrap_or_default();
    let is_suffix = super::suffixes::without_suffixes(&name[at..]) == package;
    is_package && is_function && !is_suffix && word.len() < 256
}

/// Returns the name without type arguments, and without the numbers of closures.
pub fn normalize(name: &str) -> String {
    let mut name = name;
    while let Some(shorter) = WRAPPERS.iter().find_map(|suffix| name.strip_suffix(suffix)) {
        name = shorter;
    }
    let name = without_type_arguments(name);
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('.') {
        let word = part.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let part = word.strip_suffix("-range").unwrap_or(part);
        let is_made = matches!(word, "func" | "gowrap" | "deferwrap") && !parts.is_empty();
        match (word.is_empty(), is_made) {
            // Closures within closures: `func1.2` and `func1.func3`.
            (true, _) if parts.last() == Some(&"func") || part.is_empty() => {}
            // `init.0`: one of several initializers.
            (true, _) if parts.last() == Some(&"init") => {}
            (_, true) if parts.last() == Some(&word) => {}
            (_, true) => parts.push(word),
            _ => parts.push(part),
        }
    }
    parts.join(".")
}

/// Returns the name with `[T]` in place of each bracketed list.
fn without_type_arguments(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut depth = 0_usize;
    for letter in name.chars() {
        match letter {
            '[' => {
                if depth == 0 {
                    out.push_str("[T]");
                }
                depth += 1;
            }
            ']' => depth = depth.saturating_sub(1),
            _ if depth == 0 => out.push(letter),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_go_are_recognized() {
        for name in [
            "main.main",
            "runtime.gopanic",
            "net/http.(*conn).serve",
            "github.com/acme/ledger/v2.(*Store).Post.func1.2",
            "gopkg.in/yaml%2ev3.Unmarshal",
            "main.Map[go.shape.int]",
            "sync.(*Mutex).Lock",
        ] {
            assert!(is_go(name), "{name}");
        }
        for name in [
            "post.cold",
            "post.part.0",
            "post.constprop.0.isra.0",
            "main",
            "std::vector<int>::at",
            "_PyEval_EvalFrameDefault.cold",
            "post.llvm.123",
            "caml.",
            "",
            "f(int).g h",
        ] {
            assert!(!is_go(name), "{name}");
        }
    }

    #[test]
    fn closures_and_type_arguments_have_no_numbers() {
        for (name, expected) in [
            ("main.handle.func1", "main.handle.func"),
            ("main.handle.func1.2", "main.handle.func"),
            ("main.handle.func1.2.3", "main.handle.func"),
            ("main.handle.func2.func7", "main.handle.func"),
            ("main.handle.gowrap1", "main.handle.gowrap"),
            ("main.handle.deferwrap2", "main.handle.deferwrap"),
            ("main.init.0", "main.init"),
            ("main.(*T).Close-fm", "main.(*T).Close"),
            ("main.Map[go.shape.int,map[string]int]", "main.Map[T]"),
            ("main.(*List[...]).Push", "main.(*List[T]).Push"),
            ("main.each-range1", "main.each"),
            ("runtime.sigpanic0", "runtime.sigpanic0"),
            ("runtime.memmove.abi0", "runtime.memmove"),
            ("github.com/acme/ledger/v2.Post", "github.com/acme/ledger/v2.Post"),
            ("main.func1", "main.func"),
        ] {
            assert_eq!(normalize(name), expected, "{name}");
        }
    }
}
