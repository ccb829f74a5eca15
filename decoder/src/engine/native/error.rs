//! The errors of the native engine.

use std::fmt;

/// An error in a trace, or a mismatch of trace and code. The kinds are those of libipt's
/// `pt_error_code`, without its usage errors, so that engines compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Error {
    /// The trace ends.
    End,
    /// No packet starts with these bytes.
    UnknownPacket,
    /// A packet has an invalid payload.
    BadPacket,
    /// A packet is not allowed here.
    BadContext,
    /// The code requires another packet than the next one.
    BadQuery,
    /// There are no code bytes at this address.
    NoCode,
    /// The code bytes are no valid instruction.
    BadInstruction,
    /// The trace has not reported the execution mode (64, 32 or 16 bits).
    NoMode,
    /// The packet has no address, but one is required.
    NoIp,
    /// A compressed return has the outcome "not taken".
    BadReturn,
    /// A compressed return has no matching call on the return stack.
    NoCall,
    /// A PSB+ contradicts the current state.
    BadStatus,
    /// Instructions are due, but tracing is disabled.
    NotEnabled,
    /// Too many events wait for a packet.
    TooManyEvents,
    /// Too many outcomes wait for branches.
    TooManyOutcomes,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::End => "the trace ends",
            Self::UnknownPacket => "unknown packet",
            Self::BadPacket => "invalid packet",
            Self::BadContext => "unexpected packet",
            Self::BadQuery => "trace does not match the code",
            Self::NoCode => "no code bytes",
            Self::BadInstruction => "invalid instruction",
            Self::NoMode => "unknown execution mode",
            Self::NoIp => "packet without address",
            Self::BadReturn => "compressed return not taken",
            Self::NoCall => "compressed return without a call",
            Self::BadStatus => "PSB+ contradicts the flow",
            Self::NotEnabled => "tracing is disabled",
            Self::TooManyEvents => "too many events for a packet",
            Self::TooManyOutcomes => "too many outcomes before a target",
        })
    }
}
