//! Masks for output that differs between any two runs of a program.

/// A part of the output that is not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// Numbers, with their decimal points: times, rates, process ids.
    Numbers,
    /// Lines that contain this.
    Lines(&'static str),
}

impl Mask {
    /// Returns the output without the masked parts.
    #[must_use]
    pub fn apply(self, text: &str) -> String {
        match self {
            Self::Numbers => {
                let mut masked = String::new();
                for character in text.chars() {
                    match character {
                        '0'..='9' if masked.ends_with('#') => {}
                        '0'..='9' => masked.push('#'),
                        '.' if masked.ends_with('#') => {}
                        _ => masked.push(character),
                    }
                }
                masked
            }
            Self::Lines(with) => text
                .split_inclusive('\n')
                .filter(|line| !line.contains(with))
                .collect(),
        }
    }

    /// Describes the mask, for the documentation.
    #[must_use]
    pub fn about(self) -> String {
        match self {
            Self::Numbers => "numbers".to_owned(),
            Self::Lines(with) => format!("lines with “{}”", with.trim()),
        }
    }
}

/// Returns `output` under every mask. Output that is not UTF-8 needs an empty list of masks.
pub(super) fn masked(masks: &[Mask], output: &[u8]) -> Vec<u8> {
    if masks.is_empty() {
        return output.to_vec();
    }
    masks
        .iter()
        .fold(String::from_utf8_lossy(output).into_owned(), |text, mask| {
            mask.apply(&text)
        })
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lines_are_masked_and_nothing_else() {
        assert_eq!(
            Mask::Numbers.apply("took 12.5 s, 3 left: v1"),
            "took # s, # left: v#"
        );
        assert_eq!(Mask::Lines("pid").apply("a\nmy pid is 1\nb"), "a\nb");
        assert_eq!(masked(&[], b"\xff1"), b"\xff1");
    }
}
