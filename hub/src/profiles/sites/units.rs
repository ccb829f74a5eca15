//! The units of a build on this hub and on other sites.

use super::answer::{SiteAnswer, SiteProblem};
use super::ask::{Question, ask, pairs, read_json, with_whole_micros};
use super::scope::SiteScope;
use crate::error::Result;
use crate::hub::Hub;
use crate::profiles::build_units::{self, BuildUnits};
use crate::profiles::selection::Selection;
use std::sync::Arc;

/// The most units of a site.
const MAX_UNITS: usize = 100_000;

/// The units of a site. This hub has no name.
pub type SiteUnits = (String, BuildUnits);

/// Returns the units of a build of this hub and of its sites, and the parts of the sites.
///
/// # Errors
/// Fails if a named site is unknown, or the query of this hub fails. The failure of a site is a
/// missing part.
pub async fn units(
    hub: &Arc<Hub>,
    selection: &Selection,
    intervals: u64,
) -> Result<(Vec<SiteUnits>, Vec<SiteAnswer>)> {
    if selection.sites == SiteScope::Own {
        let own = build_units::units(hub, selection, intervals).await?;
        return Ok((vec![(String::new(), own)], Vec::new()));
    }
    let selection = &with_whole_micros(selection);
    let path = format!(
        "/api/v1/profiles/units?intervals={intervals}&{}",
        pairs(selection)
    );
    let (own, asked) = tokio::join!(
        build_units::units(hub, selection, intervals),
        ask(hub, &selection.sites, Question::Get(path))
    );
    let (mut parts, mut answers) = (vec![(String::new(), own?)], Vec::new());
    for (name, body) in asked? {
        let part = body.and_then(|body| match body {
            None => Ok(BuildUnits::default()),
            Some(body) => checked(read_json(&body)?),
        });
        match part {
            Ok(part) => {
                answers.push(SiteAnswer::complete(&name));
                parts.push((name, part));
            }
            Err(problem) => answers.push(SiteAnswer::missing(&name, problem)),
        }
    }
    Ok((parts, answers))
}

/// Checks the units of a site.
fn checked(mut part: BuildUnits) -> std::result::Result<BuildUnits, SiteProblem> {
    let functions = part.functions.len();
    let is_right = |(function, weight): &(u32, f64)| {
        (*function as usize) < functions && weight.is_finite() && *weight >= 0.0
    };
    if part.units.len() > MAX_UNITS || !part.units.iter().flat_map(|unit| &unit.weights).all(is_right) {
        return Err(SiteProblem::failed(
            "its answer has wrong weights; update its hub",
        ));
    }
    part.notes.truncate(20);
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::build_units::{Unit, UnitFunction};

    #[test]
    fn wrong_weights_of_a_site_are_refused() {
        let part = |weights: &[(u32, f64)]| BuildUnits {
            functions: vec![UnitFunction::default()],
            units: vec![Unit {
                weights: weights.to_vec(),
                ..Unit::default()
            }],
            notes: vec![String::new(); 50],
        };
        assert_eq!(checked(part(&[(0, 1.5)])).unwrap().notes.len(), 20);
        for wrong in [(1, 1.0), (0, -1.0), (0, f64::NAN), (u32::MAX, 1.0)] {
            assert!(checked(part(&[(0, 1.0), wrong])).is_err(), "{wrong:?}");
        }
    }
}
