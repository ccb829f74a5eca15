//! The colors of heat maps.

use maud::{Markup, html};
use std::fmt::Write as _;

/// The number of colors. A color is a part of the weight from which the last one begins.
const LEVELS: usize = 8;

/// The colors of the cells of a map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HeatColors {
    /// The weight from which the last color begins.
    pub(super) top: f64,
}

impl HeatColors {
    /// Returns the colors for weights. Few cells have more than the weight of the last color, so
    /// that one outlier does not make all others pale.
    pub(super) fn new(weights: impl Iterator<Item = f64>) -> Self {
        let mut weights: Vec<f64> = weights.filter(|weight| *weight > 0.0).collect();
        weights.sort_by(f64::total_cmp);
        let at = (weights.len() * 99).div_ceil(100).saturating_sub(1);
        Self {
            top: weights.get(at).copied().unwrap_or(1.0),
        }
    }

    /// Returns the color of a weight, from 1. `None`: it has no color.
    fn level(self, weight: f64) -> Option<usize> {
        let level = || ((weight / self.top * LEVELS as f64).ceil() as usize).clamp(1, LEVELS);
        (weight > 0.0).then(level)
    }

    /// Draws the cells, an outline for each color. A cell has a column, a place from the top, and a
    /// weight.
    pub(super) fn draw(self, cells: impl Iterator<Item = (usize, usize, f64)>) -> Markup {
        let mut paths = vec![String::new(); LEVELS];
        for (x, y, weight) in cells {
            let level = self.level(weight).and_then(|level| level.checked_sub(1));
            if let Some(path) = level.and_then(|level| paths.get_mut(level)) {
                let _ = write!(path, "M{x} {y}h1v1h-1z");
            }
        }
        html! {
            @for (level, path) in (1..).zip(&paths).filter(|(_, path)| !path.is_empty()) {
                path class={ "level l" (level) } d=(path) {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_does_not_decide_the_colors() {
        let weights = (0..200).map(|cell| if cell == 7 { 1_000_000.0 } else { 10.0 });
        let colors = HeatColors::new(weights);
        assert_eq!(colors.top, 10.0);
        assert_eq!(
            [10.0, 1_000_000.0, 1.0, 0.0, -5.0].map(|weight| colors.level(weight)),
            [Some(LEVELS), Some(LEVELS), Some(1), None, None]
        );
    }

    #[test]
    fn map_without_weights_has_no_cells() {
        let colors = HeatColors::new([0.0, -1.0].into_iter());
        let drawn = colors.draw([(0, 0, 0.0), (0, 1, -1.0)].into_iter());
        assert_eq!(drawn.into_string(), "");
    }
}
