//! Names of Java's classes as people read them.

/// Returns a class as Java's source writes it, from its name in the JVM: `pkg.Outer$Inner`, or
/// `byte[]`. The address of a hidden class is left out, since it differs in each run.
pub(super) fn class_name(internal: &str) -> String {
    let element = internal.trim_start_matches('[');
    let dimensions = internal.len() - element.len();
    let element = match (dimensions, element) {
        (0, name) => name,
        (_, "B") => "byte",
        (_, "C") => "char",
        (_, "D") => "double",
        (_, "F") => "float",
        (_, "I") => "int",
        (_, "J") => "long",
        (_, "S") => "short",
        (_, "Z") => "boolean",
        (_, name) => name
            .strip_prefix('L')
            .and_then(|name| name.strip_suffix(';'))
            .unwrap_or(name),
    };
    let mut name = without_address(element).replace('/', ".");
    for _ in 0..dimensions.min(255) {
        name.push_str("[]");
    }
    name
}

/// Returns a name without the address of a hidden class: `+0x…`, `/0x…` or `.0x…` at its end.
fn without_address(name: &str) -> &str {
    let Some((start, _)) = name.rmatch_indices("0x").next() else {
        return name;
    };
    let (head, address) = name.split_at(start);
    let digits = address.trim_start_matches("0x");
    // Some versions of the JVM add `/` and a hash code in decimal.
    let is_address = digits.len() >= 8
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'/');
    match head.strip_suffix(['+', '/', '.']) {
        Some(head) if is_address => head,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_named_as_in_source() {
        for (internal, name) in [
            ("java/util/Map$Entry", "java.util.Map$Entry"),
            ("[B", "byte[]"),
            ("[[Ljava/lang/String;", "java.lang.String[][]"),
            ("B", "B"),
            ("Work$$Lambda$1+0x00007f0d68000a08", "Work$$Lambda$1"),
            ("Work$$Lambda+0x00007f0d68000a08/1845066581", "Work$$Lambda"),
            (
                "java/lang/invoke/LambdaForm$MH.0x000000080010a400",
                "java.lang.invoke.LambdaForm$MH",
            ),
            ("a/x0x12", "a.x0x12"),
            ("a/0xshort", "a.0xshort"),
            ("", ""),
        ] {
            assert_eq!(class_name(internal), name);
        }
    }
}
