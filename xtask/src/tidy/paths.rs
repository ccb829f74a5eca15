//! No file names a place of one machine.

use super::{Problem, Source};

/// Beginnings of paths that mean something on one machine only.
const PLACES: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/fa", "rm/"),
    concat!("/ro", "ot/"),
    concat!("/tmp/tar", "get"),
];

/// Finds them in any text file.
pub fn check(source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in source.lines() {
        for place in PLACES.iter().filter(|place| line.contains(**place)) {
            problems.push(Problem::new(
                source,
                number,
                format!("a path of one machine: {place}"),
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_this_machine_is_found() {
        let text = format!("see {}shared and {}x\n", PLACES[0], PLACES[2]);
        assert_eq!(check(&Source::sample("README.md", &text)).len(), 2);
        assert_eq!(
            check(&Source::sample("README.md", "network/x, frameworks, /usr/lib\n")),
            []
        );
    }
}
