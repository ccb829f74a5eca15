//! The smallest trace that still shows a difference.

use crate::engines::units::Unit;
use std::time::{Duration, Instant};

/// Deletes units while `differs` is true, for a limited time, and returns the rest.
pub fn minimise(units: &[Unit], patience: Duration, differs: impl Fn(&[Unit]) -> bool) -> Vec<Unit> {
    let end = Instant::now() + patience;
    let mut units = units.to_vec();
    let mut size = units.len().div_ceil(2).max(1);
    while Instant::now() < end {
        let before = units.len();
        let mut at = 0;
        while at < units.len() && Instant::now() < end {
            let mut fewer = units.clone();
            fewer.drain(at..(at + size).min(units.len()));
            if differs(&fewer) {
                units = fewer;
            } else {
                at += size;
            }
        }
        if size > 1 {
            size = size.div_ceil(2);
        } else if units.len() == before {
            break;
        }
    }
    units
}

#[test]
fn reduction_keeps_what_matters() {
    use backtrail_pt::Packet;
    let units: Vec<Unit> = (0..100).map(|ratio| Unit::of(Packet::Cbr(ratio))).collect();
    let both = |units: &[Unit]| {
        let has = |ratio| units.contains(&Unit::of(Packet::Cbr(ratio)));
        has(13) && has(77)
    };
    let left = minimise(&units, Duration::from_secs(10), both);
    assert_eq!(left, [Unit::of(Packet::Cbr(13)), Unit::of(Packet::Cbr(77))]);
}
