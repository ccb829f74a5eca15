//! Why a decode cannot go on.

use std::fmt;

/// What a trace, or its fit to the code, lacks. The kinds are those that libipt tells apart, so that the
/// engines compare (its `pt_error_code`, without those that say "used wrongly").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Error {
    /// The trace is at its end.
    End,
    /// No packet starts so.
    UnknownPacket,
    /// A packet holds what none may hold.
    BadPacket,
    /// A packet stands where it may not.
    BadContext,
    /// The code asks for another packet than the trace has next.
    BadQuery,
    /// There are no code bytes.
    NoCode,
    /// The code bytes are no instruction.
    BadInstruction,
    /// The trace has not told which code it is, of 64, 32 or 16 bits.
    NoMode,
    /// An address is needed, and the packet does not tell it.
    NoIp,
    /// A return is compressed as "not taken".
    BadReturn,
    /// A return is compressed, and no call is known that it returns from.
    NoCall,
    /// A PSB+ says another state than the flow is in.
    BadStatus,
    /// Instructions are due and tracing is off.
    NotEnabled,
    /// More events wait for a packet than may.
    TooManyEvents,
    /// More outcomes wait for branches than may.
    TooManyOutcomes,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::End => "the trace ends",
            Self::UnknownPacket => "unknown packet",
            Self::BadPacket => "bad packet",
            Self::BadContext => "packet where it may not be",
            Self::BadQuery => "trace does not fit the code",
            Self::NoCode => "no code bytes",
            Self::BadInstruction => "no instruction",
            Self::NoMode => "code of unknown mode",
            Self::NoIp => "address not told",
            Self::BadReturn => "bad compressed return",
            Self::NoCall => "compressed return without a call",
            Self::BadStatus => "PSB+ contradicts the flow",
            Self::NotEnabled => "tracing is off",
            Self::TooManyEvents => "too many events for a packet",
            Self::TooManyOutcomes => "too many outcomes before a target",
        })
    }
}
