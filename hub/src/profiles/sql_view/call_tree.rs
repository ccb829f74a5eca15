//! The text of a tree of calls, as the aggregate `flamegraph` writes it.
//!
//! The text is JSON: `{"name", "value", "self", "children"}`. Trees are deeper than a parser with
//! recursion allows, so that this one has none.

/// The most nodes of a tree.
const MAX_NODES: usize = 200_000;

/// A function with its callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CallNode {
    /// The index of the caller, which comes earlier. `None`: the root.
    pub(super) caller: Option<usize>,
    /// The name.
    pub(super) name: String,
    /// The weight of the samples with this node.
    pub(super) total: i64,
    /// The weight of the samples that end here.
    pub(super) own: i64,
}

/// The reason why a text is no tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallTreeError {
    /// The text has another form.
    Malformed,
    /// The tree has too many nodes.
    TooLarge,
}

/// Returns whether a text begins as a tree does.
pub(super) fn is_call_tree(text: &str) -> bool {
    text.trim_start().starts_with("{\"name\":")
}

/// Reads a tree. Callers come before the functions that they call.
///
/// # Errors
/// Fails if the text has another form, or the tree has too many nodes.
pub(super) fn read(text: &str) -> Result<Vec<CallNode>, CallTreeError> {
    let mut parser = Parser {
        rest: text,
        nodes: Vec::new(),
        open: Vec::new(),
    };
    parser.expect('{')?;
    parser.begin()?;
    loop {
        if parser.take('}') {
            parser.open.pop();
            if parser.open.is_empty() {
                return match parser.rest.trim_start() {
                    "" => Ok(parser.nodes),
                    _ => Err(CallTreeError::Malformed),
                };
            }
            // The next child of the caller, or the end of its children.
            if parser.take(',') {
                parser.expect('{')?;
                parser.begin()?;
            } else {
                parser.expect(']')?;
                parser.take(',');
            }
            continue;
        }
        parser.member()?;
    }
}

struct Parser<'a> {
    rest: &'a str,
    nodes: Vec<CallNode>,
    /// The indexes of the nodes whose ends are not read yet, the innermost last.
    open: Vec<usize>,
}

impl<'a> Parser<'a> {
    /// Begins a node, which the innermost open node calls.
    fn begin(&mut self) -> Result<(), CallTreeError> {
        if self.nodes.len() >= MAX_NODES {
            return Err(CallTreeError::TooLarge);
        }
        let caller = self.open.last().copied();
        self.open.push(self.nodes.len());
        self.nodes.push(CallNode {
            caller,
            ..CallNode::default()
        });
        Ok(())
    }

    /// Reads a member of the innermost open node. With children, the first of them begins.
    fn member(&mut self) -> Result<(), CallTreeError> {
        let key = self.string()?;
        self.expect(':')?;
        if key == "children" {
            self.expect('[')?;
            if self.take('{') {
                return self.begin();
            }
            self.expect(']')?;
        } else {
            let at = self.open.last().copied().unwrap_or_default();
            match key.as_str() {
                "name" => {
                    let name = self.string()?;
                    self.update(at, |node| node.name = name);
                }
                "value" => {
                    let total = self.number()?;
                    self.update(at, |node| node.total = total);
                }
                "self" => {
                    let own = self.number()?;
                    self.update(at, |node| node.own = own);
                }
                _ => return Err(CallTreeError::Malformed),
            }
        }
        self.take(',');
        Ok(())
    }

    fn update(&mut self, at: usize, change: impl FnOnce(&mut CallNode)) {
        if let Some(node) = self.nodes.get_mut(at) {
            change(node);
        }
    }

    /// Takes a character after white space, if it is the next one.
    fn take(&mut self, wanted: char) -> bool {
        match self.rest.trim_start().strip_prefix(wanted) {
            None => false,
            Some(rest) => {
                self.rest = rest;
                true
            }
        }
    }

    fn expect(&mut self, wanted: char) -> Result<(), CallTreeError> {
        match self.take(wanted) {
            true => Ok(()),
            false => Err(CallTreeError::Malformed),
        }
    }

    /// Takes the next `length` bytes after white space.
    fn split(&mut self, length: usize) -> Result<&'a str, CallTreeError> {
        let split = self.rest.trim_start().split_at_checked(length);
        let (first, rest) = split.ok_or(CallTreeError::Malformed)?;
        self.rest = rest;
        Ok(first)
    }

    fn string(&mut self) -> Result<String, CallTreeError> {
        let text = self.rest.trim_start();
        let mut is_escaped = false;
        let end = text.bytes().skip(1).position(|byte| {
            let is_end = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            is_end
        });
        // Both quotes.
        let text = self.split(end.ok_or(CallTreeError::Malformed)? + 2)?;
        serde_json::from_str(text).map_err(|_| CallTreeError::Malformed)
    }

    fn number(&mut self) -> Result<i64, CallTreeError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'-';
        let text = self.rest.trim_start();
        let length = text.bytes().take_while(|byte| is_digit(*byte)).count();
        let text = self.split(length)?;
        text.parse().map_err(|_| CallTreeError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns each node as `caller/name total own`.
    fn shown(text: &str) -> Result<Vec<String>, CallTreeError> {
        let nodes = read(text)?;
        let shown = nodes.iter().map(|node| {
            let caller = node.caller.map_or("", |caller| &nodes[caller].name);
            format!("{caller}/{} {} {}", node.name, node.total, node.own)
        });
        Ok(shown.collect())
    }

    #[test]
    fn trees_of_the_engine_are_read() {
        let text = r#"{"name":"all","value":95,"self":0,"children":[{"name":"main","value":95,"self":5,"children":[{"name":"write;\"all\"\u0000\\","value":50,"self":50,"children":[]},{"name":"</script>","value":40,"self":40,"children":[]}]},{"name":"é","value":-9223372036854775808,"self":9223372036854775807,"children":[]}]}"#;
        assert_eq!(
            shown(text).unwrap(),
            [
                "/all 95 0",
                "all/main 95 5",
                "main/write;\"all\"\0\\ 50 50",
                "main/</script> 40 40",
                "all/é -9223372036854775808 9223372036854775807",
            ]
        );
        let spaced = " { \"name\" : \"all\" ,\n \"children\" : [ ] , \"self\" : 1 } ";
        assert_eq!(shown(spaced).unwrap(), ["/all 0 1"]);
    }

    #[test]
    fn deep_trees_need_no_recursion() {
        let depth = 100_000;
        let mut text = r#"{"name":"f","value":1,"self":0,"children":["#.repeat(depth);
        text.push_str(r#"{"name":"g","value":1,"self":1,"children":[]}"#);
        text.push_str(&"]}".repeat(depth));
        let nodes = read(&text).unwrap();
        assert_eq!((nodes.len(), nodes[depth].caller), (depth + 1, Some(depth - 1)));
        let open = "{\"children\":[".repeat(MAX_NODES + 1);
        assert_eq!(read(&open), Err(CallTreeError::TooLarge));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "{",
            "}",
            "{}}",
            "{} {}",
            "[]",
            "null",
            "{\"name\":\"a}",
            "{\"name\":\"a\\\"}",
            "{\"name\":1}",
            "{\"name\":\"\\q\"}",
            "{\"value\":1.5}",
            "{\"value\":9223372036854775808}",
            "{\"value\":--1}",
            "{\"value\":}",
            "{\"children\":[{}",
            "{\"children\":[1]}",
            "{\"children\":[{}}",
            "{\"other\":1}",
            "{\"nameé",
        ] {
            assert_eq!(read(text), Err(CallTreeError::Malformed), "{text}");
        }
    }
}
