//! Versions of crates with known weaknesses.
//!
//! The RustSec database is not available offline, so the list next to this file is manual. It has
//! advisories for crates that the project uses or is likely to use.

use super::crates::Package;

/// Lines of: advisory, crate, first fixed version, and the first weak one if older ones are sound.
const LIST: &str = include_str!("advisories.txt");

/// Returns the coverage of the list.
pub fn coverage() -> String {
    let date = LIST.lines().find_map(|line| line.strip_prefix("# Date: "));
    format!(
        "held to {} advisories kept by hand on {}: newer ones, and those of other crates, are not covered",
        entries(LIST).count(),
        date.unwrap_or("an unknown day")
    )
}

fn entries(list: &str) -> impl Iterator<Item = (&str, &str, &str, Option<&str>)> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?, words.next()?, words.next()))
    })
}

/// The packages that an advisory is about.
pub fn check(packages: &[Package]) -> Vec<String> {
    check_by(LIST, packages)
}

fn check_by(list: &str, packages: &[Package]) -> Vec<String> {
    let mut problems = Vec::new();
    for (advisory, name, mended, first) in entries(list) {
        for package in packages.iter().filter(|package| package.name == name) {
            let version = numbers(&package.version);
            let is_older = first.is_some_and(|first| version < numbers(first));
            if version < numbers(mended) && !is_older {
                problems.push(format!(
                    "{name} {} has the weakness {advisory}, mended in {mended}",
                    package.version
                ));
            }
        }
    }
    problems
}

/// The numbers of a version; what follows them, such as `-alpha`, does not count.
fn numbers(version: &str) -> Vec<u64> {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    release
        .split('.')
        .map(|number| number.parse().unwrap_or(0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vulnerable_version_is_a_problem_and_a_fixed_one_is_not() {
        let list = "# Date: 1 May 2026\nRUSTSEC-2000-0001 tar 0.4.36\n";
        let found = check_by(
            list,
            &[
                Package::sample("tar", "0.4.9", "MIT"),
                Package::sample("other", "0.1.0", "MIT"),
            ],
        );
        assert_eq!(
            found,
            ["tar 0.4.9 has the weakness RUSTSEC-2000-0001, mended in 0.4.36"]
        );
        for version in ["0.4.36", "0.4.40", "1.0.0"] {
            assert!(
                check_by(list, &[Package::sample("tar", version, "MIT")]).is_empty(),
                "{version}"
            );
        }
    }

    #[test]
    fn every_line_of_the_list_is_complete() {
        let lines = LIST
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        for line in lines {
            assert!((3..=4).contains(&line.split_whitespace().count()), "{line}");
            let (advisory, _, mended, _) = entries(line).next().unwrap();
            assert!(advisory.starts_with("RUSTSEC-20"), "{line}");
            assert!(
                mended.split('.').all(|number| number.parse::<u64>().is_ok()),
                "{line}"
            );
        }
        assert!(entries(LIST).count() > 10);
    }

    #[test]
    fn version_before_the_weakness_is_sound() {
        let list = "RUSTSEC-0 a 0.15.1 0.15.0";
        let count = |version: &str| check_by(list, &[Package::sample("a", version, "MIT")]).len();
        assert_eq!((count("0.14.5"), count("0.15.0"), count("0.15.1")), (0, 1, 0));
    }
}
