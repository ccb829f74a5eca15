//! The protocol's names as Rust has them.

/// Words that Rust refuses as a field's name.
const KEYWORDS: [&str; 4] = ["type", "ref", "where", "match"];

/// `supportsANSIStyling` → `supports_ansi_styling`.
pub fn field(name: &str) -> String {
    let snake = words(name).join("_").to_lowercase();
    if KEYWORDS.contains(&snake.as_str()) {
        format!("r#{snake}")
    } else {
        snake
    }
}

/// `function breakpoint` → `FunctionBreakpoint`.
pub fn variant(name: &str) -> String {
    words(name)
        .iter()
        .map(|word| {
            let mut letters = word.chars();
            let first = letters.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(letters).collect::<String>()
        })
        .collect()
}

/// Returns a field's name as serde's `camelCase` writes it.
pub fn camel(field: &str) -> String {
    let mut upper = false;
    let mut camel = String::new();
    for letter in field.trim_start_matches("r#").chars() {
        if letter == '_' {
            upper = true;
        } else {
            camel.push(if upper {
                letter.to_ascii_uppercase()
            } else {
                letter
            });
            upper = false;
        }
    }
    camel
}

/// Splits a name before capitals, and at characters that are no letter or digit.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let letters: Vec<char> = name.chars().collect();
    for (at, &letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| letters.get(at));
        let is_small = |letter: Option<&char>| letter.is_some_and(char::is_ascii_lowercase);
        let begins = letter.is_ascii_uppercase() && (is_small(before) || is_small(letters.get(at + 1)));
        if begins || !letter.is_ascii_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_ascii_alphanumeric()) {
            word.push(letter);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_into_words() {
        for (name, expected) in [
            ("threadId", "thread_id"),
            ("clientID", "client_id"),
            ("supportsANSIStyling", "supports_ansi_styling"),
            ("__restart", "restart"),
            ("type", "r#type"),
            ("linesStartAt1", "lines_start_at1"),
            ("unixTimestampUTC", "unix_timestamp_utc"),
        ] {
            assert_eq!(field(name), expected);
        }
        for (name, expected) in [
            ("function breakpoint", "FunctionBreakpoint"),
            ("startCollapsed", "StartCollapsed"),
            ("SHA256", "SHA256"),
        ] {
            assert_eq!(variant(name), expected);
        }
        assert_eq!(camel("lines_start_at1"), "linesStartAt1");
        assert_eq!(camel("r#type"), "type");
        assert_eq!(camel("client_id"), "clientId");
    }
}
