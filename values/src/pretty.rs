//! Values with a line for each member, as GDB writes them after `set print pretty on`.

use super::formatted::{FormattedMember, FormattedValue};

impl FormattedValue {
    /// Its text with a line for each member of a record; as it is, where it has none.
    pub fn pretty_text(&self) -> String {
        self.at_depth(0)
    }

    fn at_depth(&self, depth: usize) -> String {
        let is_base = |member: &FormattedMember| member.name.starts_with('<');
        if !self.text.starts_with('{') || self.members.is_empty() || self.members.iter().any(is_base) {
            return self.text.clone();
        }
        match self.members.iter().any(|member| member.name.starts_with('[')) {
            true => self.elements(depth),
            false => self.record(depth),
        }
    }

    fn record(&self, depth: usize) -> String {
        let inner = "  ".repeat(depth + 1);
        let line = |member: &FormattedMember| {
            let value = member.value.at_depth(depth + 1);
            match member.name.is_empty() {
                true => format!("{inner}{value}"),
                false => format!("{inner}{} = {value}", member.name),
            }
        };
        let lines: Vec<String> = self.members.iter().map(line).collect();
        format!("{{\n{}\n{}}}", lines.join(",\n"), "  ".repeat(depth))
    }

    fn elements(&self, depth: usize) -> String {
        if self
            .members
            .iter()
            .all(|element| element.value.members.is_empty())
        {
            return self.text.clone();
        }
        let mut parts = Vec::new();
        for element in &self.members {
            let value = element.value.at_depth(depth + 1);
            if element.repeats > 10 {
                parts.push(format!("{value} <repeats {} times>", element.repeats));
            } else {
                parts.extend((0..element.repeats).map(|_| value.clone()));
            }
        }
        let more = if self.text.ends_with("...}") { "..." } else { "" };
        format!("{{{}{more}}}", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(text: &str) -> FormattedValue {
        FormattedValue {
            text: text.to_owned(),
            ..FormattedValue::default()
        }
    }

    fn of(text: &str, members: Vec<FormattedMember>) -> FormattedValue {
        FormattedValue {
            members,
            ..scalar(text)
        }
    }

    #[test]
    fn each_member_has_its_line() {
        let point = |x: &str| of("{x = …}", vec![FormattedMember::new("x", scalar(x))]);
        let points = vec![
            FormattedMember::new("[0]", point("1")),
            FormattedMember::new("[1]", point("2")),
        ];
        let value = of(
            "{…}",
            vec![
                FormattedMember::new("name", scalar("\"a\"")),
                FormattedMember::new("at", of("{{…}}", points)),
                FormattedMember::new("", point("3")),
            ],
        );
        let expected = "{\n  name = \"a\",\n  at = {{\n      x = 1\n    }, {\n      x = 2\n    }},\n  {\n    x = 3\n  }\n}";
        assert_eq!(value.pretty_text(), expected);
        assert_eq!(scalar("7").pretty_text(), "7");
    }
}
