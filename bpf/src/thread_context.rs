//! The value of the map `tls_slots`, as declared in `thread_context.h`.

/// The kinds of slots ([`TlsSlotRow::kind`]).
pub mod tls_kind {
    /// At an offset from the thread pointer.
    pub const STATIC: u32 = 1;
    /// In the block of a module, in glibc.
    pub const GLIBC: u32 = 2;
    /// In the block of a module, in musl.
    pub const MUSL: u32 = 3;
}

/// Where each thread of a process has the variable with its request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsSlotRow {
    /// The offset from the thread pointer, or in the block.
    pub offset: i64,
    /// The first generation of vectors of blocks with the block, in glibc.
    pub generation: u64,
    /// One of the constants of [`tls_kind`].
    pub kind: u32,
    /// The module.
    pub module: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_match_c_header() {
        let header = include_str!("thread_context.h");
        for line in [
            format!("TLS_STATIC = {},", tls_kind::STATIC),
            format!("TLS_GLIBC = {},", tls_kind::GLIBC),
            format!("TLS_MUSL = {},", tls_kind::MUSL),
        ] {
            assert!(header.contains(&line), "{line}");
        }
    }
}
