//! `backtrail doctor --self-test`: checks whether Intel PT here does all that the collector needs.

use crate::exit::Failure;
use crate::output::Output;
use backtrail_collector::Error;
use backtrail_collector::hardware::{self, Check, HardwareOptions, TraceCapabilities};
use serde::Serialize;
use std::io::Write;

/// Traces briefly with the hardware source, and prints the results.
pub(super) fn run(json: bool) -> Result<(), Failure> {
    let tested = hardware::self_test(&HardwareOptions::default());
    let mut output = Output::new();
    let (checks, abilities) = match &tested {
        Ok(tested) => (tested.checks.as_slice(), abilities(&tested.capabilities)),
        Err(_) => (&[][..], Vec::new()),
    };
    let verdict = verdict(tested.as_ref().map(|_| checks));
    if json {
        output.json(
            "backtrail-self-test/1",
            &SelfTestReport::new(checks, &abilities, &verdict),
        )?;
    } else {
        for check in checks {
            let sign = if check.passed { "ok    " } else { "FAILED" };
            writeln!(output, "{sign}  {}: {}", check.name, check.seen)?;
        }
        for ability in &abilities {
            let sign = if ability.has { "yes   " } else { "no    " };
            writeln!(output, "{sign}  {}: {}", ability.name, ability.said)?;
        }
    }
    output.finish()?;
    verdict.map_err(Failure::failed)
}

/// Returns the error if the test did not pass.
fn verdict(checks: Result<&[Check], &Error>) -> Result<(), String> {
    let checks = checks.map_err(Error::to_string)?;
    let failed: Vec<&str> = checks
        .iter()
        .filter(|check| !check.passed)
        .map(|check| check.name)
        .collect();
    match failed.as_slice() {
        [] if checks.is_empty() => Err("nothing was tested".to_owned()),
        [] => Ok(()),
        _ => Err(format!(
            "{} of {} checks failed: {}",
            failed.len(),
            checks.len(),
            failed.join(", ")
        )),
    }
}

/// The self-test as JSON.
#[derive(Serialize)]
struct SelfTestReport<'a> {
    passed: bool,
    problem: Option<&'a str>,
    checks: Vec<CheckRow<'a>>,
    abilities: &'a [Ability],
}

#[derive(Serialize)]
struct CheckRow<'a> {
    name: &'a str,
    passed: bool,
    seen: &'a str,
}

#[derive(Serialize)]
struct Ability {
    name: &'static str,
    has: bool,
    said: String,
}

impl<'a> SelfTestReport<'a> {
    fn new(checks: &'a [Check], abilities: &'a [Ability], verdict: &'a Result<(), String>) -> Self {
        let row = |check: &'a Check| CheckRow {
            name: check.name,
            passed: check.passed,
            seen: &check.seen,
        };
        Self {
            passed: verdict.is_ok(),
            problem: verdict.as_ref().err().map(String::as_str),
            checks: checks.iter().map(row).collect(),
            abilities,
        }
    }
}

fn abilities(found: &TraceCapabilities) -> Vec<Ability> {
    let ability = |name, has, said: &str| Ability {
        name,
        has,
        said: said.to_owned(),
    };
    let plain = |has: bool| if has { "supported" } else { "not supported" };
    let pause = found.pause_in_kernel.as_ref();
    let filters = found.address_filters;
    vec![
        ability(
            "pause in the kernel",
            pause.is_ok(),
            pause.err().map_or("supported", String::as_str),
        ),
        ability("address filters", filters != 0, &format!("{filters} ranges")),
        ability("CYC packets and PSB periods", found.psb_cyc, plain(found.psb_cyc)),
        ability("MTC packets", found.mtc, plain(found.mtc)),
        ability(
            "locked buffers",
            found.buffers_locked,
            plain(found.buffers_locked),
        ),
        ability("build ids of mappings", found.build_ids, plain(found.build_ids)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn self_test_passes_only_if_every_check_does() {
        let check = |name, passed| Check {
            name,
            passed,
            seen: String::new(),
        };
        assert_eq!(verdict(Ok(&[check("a", true)])), Ok(()));
        let failed = verdict(Ok(&[check("a", true), check("b", false)])).unwrap_err();
        assert_eq!(failed, "1 of 2 checks failed: b");
        assert!(verdict(Ok(&[])).is_err());
        let error = Error::NoPt { why: "x".to_owned() };
        assert!(
            verdict(Err(&error))
                .unwrap_err()
                .contains("Intel PT is not available")
        );
    }
}
