//! Sums of weights by column.

/// Adds weights to a sum. Sums saturate.
pub(crate) fn add<const N: usize>(sum: &mut [i64; N], weights: [i64; N]) {
    for (sum, weight) in sum.iter_mut().zip(weights) {
        *sum = sum.saturating_add(weight);
    }
}
