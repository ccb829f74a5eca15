//! Sends several files to a hub, one after the other.

use crate::exit::Failure;

/// The status of a refused input.
const REFUSED: u8 = 3;

/// Sends each item. A refused one is reported and does not stop the others.
///
/// # Errors
/// Fails with `summary` if items were refused. Other failures end the work, because the next item
/// would meet them, too. So does the refusal of the only item.
pub fn send_each<T>(
    items: &[T],
    summary: &str,
    mut send: impl FnMut(&T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut is_refused = false;
    for item in items {
        match send(item) {
            Ok(()) => {}
            Err(failure) if items.len() == 1 || failure.status() != REFUSED => return Err(failure),
            Err(failure) => {
                failure.report();
                is_refused = true;
            }
        }
    }
    match is_refused {
        false => Ok(()),
        true => Err(Failure::of(summary, true)),
    }
}
