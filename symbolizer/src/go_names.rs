//! Names of Go functions: `main.Sum[...]`, `example.com/stack.(*Stack[...]).Push`.

/// The parts of a name of Go.
pub(crate) struct GoName<'n> {
    /// The import path before the last element: `example.com/`.
    path: &'n str,
    /// The package and the names after it, without the receiver's star and without type arguments.
    parts: Vec<&'n str>,
    /// Whether type arguments are stated, and not as `[...]`.
    generic: bool,
}

impl<'n> GoName<'n> {
    /// Splits a name. Returns `None` if it is none of Go.
    pub fn parse(name: &'n str) -> Option<Self> {
        if !name.contains('.') || name.contains("::") || name.contains(['<', ' ']) {
            return None;
        }
        let brackets = name.find(['(', '[']).unwrap_or(name.len());
        let slash = name.get(..brackets)?.rfind('/').map_or(0, |slash| slash + 1);
        let (path, rest) = name.split_at_checked(slash)?;
        let mut parts = Vec::new();
        let (mut depth, mut start) = (0u32, 0);
        for (at, byte) in rest.bytes().enumerate() {
            match byte {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth = depth.checked_sub(1)?,
                b'.' if depth == 0 => {
                    parts.push(plain(rest.get(start..at)?)?);
                    start = at + 1;
                }
                _ => {}
            }
        }
        parts.push(plain(rest.get(start..)?)?);
        let arguments = name.get(brackets..)?.replace("[...]", "");
        (depth == 0 && parts.len() >= 2).then_some(Self {
            path,
            parts,
            generic: arguments.contains('['),
        })
    }

    /// Returns whether this name, as a user types it, means a function. The package may be left
    /// out before a receiver, and type arguments everywhere.
    pub fn means(&self, name: &GoName<'_>) -> bool {
        let is_whole = self.parts.len() == name.parts.len();
        !self.generic
            && name.parts.ends_with(&self.parts)
            && (self.path.is_empty() || is_whole && name.path.ends_with(self.path))
    }

    /// Returns the last part.
    pub fn last(&self) -> &'n str {
        self.parts.last().copied().unwrap_or_default()
    }
}

/// Returns a part without parentheses, star and type arguments. Returns `None` if it is no
/// identifier.
fn plain(part: &str) -> Option<&str> {
    let inner = match part.strip_prefix("(*") {
        Some(receiver) => receiver.strip_suffix(')')?,
        None => part,
    };
    let name = inner.split('[').next().unwrap_or(inner);
    let is_identifier = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '%' | '·');
    (!name.is_empty() && name.chars().all(is_identifier)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::GoName;

    #[test]
    fn parts_have_no_arguments() {
        let parts = |name| GoName::parse(name).map(|name| (name.path, name.parts));
        assert_eq!(parts("main.main"), Some(("", vec!["main", "main"])));
        assert_eq!(
            parts("example.com/x/stack.(*Stack[go.shape.int_0]).Push"),
            Some(("example.com/x/", vec!["stack", "Stack", "Push"]))
        );
        assert_eq!(parts("main.Sum[...]"), Some(("", vec!["main", "Sum"])));
        assert_eq!(
            parts("main.main.func1"),
            Some(("", vec!["main", "main", "func1"]))
        );
        for name in [
            "main",
            "ns::f.x",
            "f(int).x)",
            "f.",
            ".f",
            "a.(b",
            "std::vector<int>",
        ] {
            assert_eq!(parts(name), None, "{name}");
        }
    }

    #[test]
    fn paths_and_arguments_that_are_typed_count() {
        let means = |typed, name| GoName::parse(typed).unwrap().means(&GoName::parse(name).unwrap());
        assert!(means("stack.New", "example.com/x/stack.New[...]"));
        assert!(means("x/stack.New", "example.com/x/stack.New[...]"));
        assert!(!means("y/stack.New", "example.com/x/stack.New[...]"));
        assert!(!means("main.Sum[int]", "main.Sum[...]"));
        assert!(means("main.Sum[...]", "main.Sum[go.shape.int]"));
    }
}
