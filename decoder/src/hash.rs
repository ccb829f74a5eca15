//! Hashes of a few words, of which no attack is feared: what they find is compared.

/// Both halves of a product, one over the other.
#[inline]
pub(crate) fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}
