//! A hash of a few words. It need not resist attacks, because keys are compared.

/// Returns both halves of the product, combined by XOR.
#[inline]
pub(crate) fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}
