//! Packets: the bytes of a trace, read in three ways.
//!
//! [`cursor`] reads all packets, one by one, and finds the PSB to start at. [`branches`] reads only
//! branch packets, faster; it continues from a cursor and hands back to it. [`psb_splitter`] finds
//! the PSBs at which a trace is split into segments.

mod branches;
mod cursor;
mod psb_splitter;

pub(super) use branches::{BranchPacket, BranchPackets, IpBytes};
pub(super) use cursor::PacketCursor;
pub(crate) use psb_splitter::PsbSplitter;
