//! Tests that failed beside others, once more and alone.
//!
//! Test programs share the processors, and some tests watch the system. A test that fails only
//! beside others is flaky: it is named in the result, but does not fail the run.

use super::programs::{self, Ended, TestProgram};
use crate::Failure;

/// More failed tests than this are not repeated: they have a common cause.
const MOST: usize = 4;

/// The result of repeating.
#[derive(Debug, Default)]
pub struct Repeated {
    /// The tests that failed beside others and passed alone, with their program.
    pub flaky: Vec<String>,
}

/// Repeats the failed tests of `ended`. A program whose failed tests all pass alone has passed.
///
/// Nothing is repeated if more than [`MOST`] tests failed, or if a program did not name its own.
pub fn repeat(
    ended: &mut [Ended],
    programs: &[TestProgram],
    variables: &[(String, String)],
) -> Result<Repeated, Failure> {
    let mut repeated = Repeated::default();
    let failed: usize = ended.iter().map(|program| program.failed.len()).sum();
    if failed > MOST {
        return Ok(repeated);
    }
    for one in ended.iter_mut().filter(|one| !one.passed) {
        let program = programs.iter().find(|program| program.name == one.name);
        let Some(program) = program.filter(|_| !one.failed.is_empty()) else {
            continue;
        };
        let mut passes = true;
        for test in &one.failed {
            let arguments = ["--include-ignored", "--exact", test];
            let alone = programs::run(vec![program.clone()], &[], &arguments, variables)?;
            let passed = alone.iter().all(|again| again.passed);
            passes &= passed;
            if passed {
                repeated.flaky.push(format!("{} {test}", one.name));
            }
        }
        one.passed = passes;
    }
    Ok(repeated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn ended(program: &TestProgram, failed: &[&str]) -> Vec<Ended> {
        vec![Ended {
            name: program.name.clone(),
            passed: false,
            failed: failed.iter().map(|&test| test.to_owned()).collect(),
            time: std::time::Duration::ZERO,
        }]
    }

    #[test]
    fn test_that_passes_alone_is_named_and_does_not_fail_the_run() {
        let good = TestProgram::of_file("x/good", Path::new("/bin/true"));
        let mut one = ended(&good, &["a::b"]);
        let repeated = repeat(&mut one, &[good], &[]).unwrap();
        assert_eq!(repeated.flaky, ["x/good a::b"]);
        assert!(one[0].passed);
    }

    #[test]
    fn test_that_fails_again_fails_the_run() {
        let bad = TestProgram::of_file("x/bad", Path::new("/bin/false"));
        let mut one = ended(&bad, &["a::b"]);
        assert!(repeat(&mut one, &[bad], &[]).unwrap().flaky.is_empty());
        assert!(!one[0].passed);
    }

    #[test]
    fn programs_without_a_list_and_many_failures_are_not_repeated() {
        let good = TestProgram::of_file("x/good", Path::new("/bin/true"));
        for failed in [&[][..], &["a"; MOST + 1]] {
            let mut one = ended(&good, failed);
            let repeated = repeat(&mut one, std::slice::from_ref(&good), &[]).unwrap();
            assert!(repeated.flaky.is_empty() && !one[0].passed);
        }
    }
}
