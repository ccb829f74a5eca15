//! The last part of a trace.

use backtrail_pt::parser::find_psb;

/// A trace from some PSB on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceTail<'a> {
    pub bytes: &'a [u8],
    /// The offset of its start in the trace.
    pub offset: usize,
}

impl<'a> TraceTail<'a> {
    /// Returns the last `bytes` of a trace, from the first PSB in them on. If they have none, the
    /// tail is longer. `None`: all of it.
    pub fn new(trace: &'a [u8], bytes: Option<u64>) -> Self {
        let all = trace.len();
        let mut wanted = bytes.map_or(all, |bytes| usize::try_from(bytes).unwrap_or(all).max(1));
        while wanted < all {
            if let Some(offset) = find_psb(trace, all - wanted) {
                let bytes = trace.get(offset..).unwrap_or(&[]);
                return Self { bytes, offset };
            }
            wanted = wanted.saturating_mul(2);
        }
        Self {
            bytes: trace,
            offset: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TraceTail;

    #[test]
    fn a_tail_begins_with_a_psb() {
        let psb = [2, 0x82].repeat(8);
        let trace = [&*psb, &[4; 100], &*psb, &[4; 100]].concat();
        let begins = |bytes| TraceTail::new(&trace, bytes).offset;
        assert_eq!((begins(None), begins(Some(1000)), begins(Some(232))), (0, 0, 0));
        assert_eq!((begins(Some(231)), begins(Some(116))), (116, 116));
        // These bytes have no PSB.
        assert_eq!((begins(Some(99)), begins(Some(0))), (116, 116));
        assert_eq!(TraceTail::new(&[], Some(0)).bytes, &[0; 0]);
    }
}
