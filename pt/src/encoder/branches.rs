//! TNT, TIP and compressed returns, which are by far the most frequent packets.
//!
//! A caller with many consecutive branches uses [`Branches`], whose small state stays in registers.

use super::returns::ReturnStack;
use crate::packet::{IpPayload, Tnt};
use crate::wire::{extended, ip_bytes, opcode};
use crate::{Avma, LastIp};

/// The maximum size of one event: two TNT and one TIP.
const MAX_EVENT_SIZE: usize = 8 + 8 + 9;

/// A writer for branches, until [`Branches::is_full`].
#[derive(Debug)]
pub struct Branches<'a> {
    out: &'a mut [u8],
    /// The offset of the next byte.
    pub(super) end: usize,
    /// From this offset on, an event may not fit, or a PSB is due.
    full: usize,
    pub(super) state: BranchState,
}

/// The state that branch packets depend on.
#[derive(Debug)]
pub(super) struct BranchState {
    pub(super) last_ip: LastIp,
    /// Pending outcomes, the oldest in the highest bit.
    pub(super) pending: u64,
    /// The number of pending outcomes, at most 47.
    pub(super) pending_len: u8,
    pub(super) long_tnt: bool,
    /// The return stack, with RET compression.
    pub(super) returns: Option<ReturnStack>,
}

impl BranchState {
    pub(super) fn new(compress_returns: bool, long_tnt: bool) -> Self {
        Self {
            last_ip: LastIp::default(),
            pending: 0,
            pending_len: 0,
            long_tnt,
            returns: compress_returns.then(ReturnStack::default),
        }
    }

    /// Moves the state out.
    pub(super) fn take(&mut self) -> Self {
        Self {
            returns: self.returns.take(),
            ..*self
        }
    }
}

impl<'a> Branches<'a> {
    /// Builds a writer at offset `end` of `out`, which has [`Branches::room`] for `until` bytes.
    #[inline]
    pub(super) fn new(out: &'a mut [u8], end: usize, until: usize, state: BranchState) -> Self {
        let full = until.min(out.len().saturating_sub(MAX_EVENT_SIZE - 1));
        Self {
            out,
            end,
            full,
            state,
        }
    }

    /// Returns the buffer size for writing up to `len` bytes.
    #[inline]
    pub(super) fn room(len: usize) -> usize {
        len + MAX_EVENT_SIZE
    }

    /// Returns whether a PSB is due, so that no more may be written.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.end >= self.full
    }

    /// Adds the outcomes of `count` conditional branches (at most 47): the low bits of `outcomes`,
    /// the oldest highest. All other bits are zero.
    #[inline]
    pub fn conditionals(&mut self, outcomes: u64, count: u8) {
        if self.state.pending_len + count <= Tnt::MAX_LEN {
            self.state.pending = self.state.pending << count | outcomes;
            self.state.pending_len += count;
            return;
        }
        // Full packets are written now, and less than one packet stays pending.
        let group = if self.state.long_tnt {
            Tnt::MAX_LEN
        } else {
            Tnt::MAX_SHORT_LEN
        };
        let room = (group - self.state.pending_len % group) % group;
        let (now, later) = (count.min(room), count.saturating_sub(room));
        let (packets, len) = tnts(
            self.state.pending << now | outcomes >> later,
            self.state.pending_len + now,
            self.state.long_tnt,
        );
        self.put(packets, len);
        self.state.pending = outcomes & !(u64::MAX << later);
        self.state.pending_len = later;
    }

    /// Adds the outcomes of `count` conditional branches (at most 48), as [`Self::conditionals`]
    /// does. Without long TNT this code is branch-free, for unpredictable counts.
    #[inline]
    pub fn many_conditionals(&mut self, outcomes: u64, count: u8) {
        const GROUP: u8 = Tnt::MAX_SHORT_LEN;
        if self.state.long_tnt || self.state.pending_len >= GROUP {
            let later = count / 2;
            self.conditionals(outcomes >> later, count - later);
            self.conditionals(outcomes & !(u64::MAX << later), later);
            return;
        }
        // At most 53 outcomes, of which 5 are pending.
        let outcomes = self.state.pending << count | outcomes;
        let len = self.state.pending_len + count;
        let (full, rest) = (len / GROUP, len % GROUP);
        let groups = outcomes >> rest << (48 - full * GROUP);
        self.put(in_groups(groups), usize::from(full));
        self.state.pending = outcomes & !(u64::MAX << rest);
        self.state.pending_len = rest;
    }

    /// Adds a near call with return address `next`. An indirect call is followed by
    /// [`Self::indirect`].
    #[inline]
    pub fn call(&mut self, next: Avma) {
        if let Some(returns) = &mut self.state.returns {
            returns.push(next);
        }
    }

    /// Adds an indirect jump or call to `target`.
    #[inline]
    pub fn indirect(&mut self, target: Avma) {
        self.flush();
        self.ip_packet(opcode::TIP, target);
    }

    /// Adds a near return to `target` if it matches a call. Otherwise returns `false`, and the
    /// caller uses [`Self::indirect`].
    #[must_use]
    #[inline]
    pub fn compressed_return(&mut self, target: Avma) -> bool {
        let returns = self.state.returns.as_mut();
        let matches = returns.is_some_and(|returns| returns.matches(target));
        if matches {
            self.conditionals(1, 1);
        }
        matches
    }

    /// Writes the pending outcomes.
    #[inline]
    pub(super) fn flush(&mut self) {
        let (outcomes, len) = (self.state.pending, self.state.pending_len);
        let (packets, len) = if !self.state.long_tnt && len <= 2 * Tnt::MAX_SHORT_LEN {
            two_tnts(outcomes, len)
        } else {
            tnts(outcomes, len, self.state.long_tnt)
        };
        self.put(packets, len);
        (self.state.pending, self.state.pending_len) = (0, 0);
    }

    /// Writes an IP packet in its shortest form, as [`LastIp::encode`] does.
    #[inline]
    pub(super) fn ip_packet(&mut self, opcode: u8, ip: Avma) {
        match self.state.last_ip.encode_user(ip) {
            // 2, 4 or 6 bytes follow.
            Some(form) => {
                let head = u64::from(form << 5 | opcode);
                self.put(head | ip.0 << 8, 1 + 2 * usize::from(form));
            }
            None => {
                let payload = self.state.last_ip.encode(ip);
                self.put_far_ip(opcode, payload);
            }
        }
    }

    #[cold]
    fn put_far_ip(&mut self, opcode: u8, payload: IpPayload) {
        let (form, bytes, len) = ip_bytes(payload);
        self.put(u64::from(form << 5 | opcode), 1);
        self.put(u64::from_le_bytes(bytes), len);
    }

    /// Appends the `len` low bytes of a word, at most 8.
    #[inline]
    fn put(&mut self, word: u64, len: usize) {
        if let Some(place) = self.out.get_mut(self.end..self.end + 8) {
            place.copy_from_slice(&word.to_le_bytes());
            self.end += len;
        }
    }
}

/// Returns the packets for some outcomes, the first in the lowest byte, and their length.
#[inline(never)]
fn tnts(outcomes: u64, len: u8, long: bool) -> (u64, usize) {
    if !long || len <= Tnt::MAX_SHORT_LEN {
        return short_tnts(outcomes, len);
    }
    let head = u64::from(opcode::EXTENDED) | u64::from(extended::TNT_LONG) << 8;
    (head | (outcomes | 1 << len) << 16, 8)
}

/// Returns what [`short_tnts`] returns, for at most 12 outcomes.
#[inline]
fn two_tnts(outcomes: u64, len: u8) -> (u64, usize) {
    let second = len.saturating_sub(Tnt::MAX_SHORT_LEN);
    let first = len - second;
    let packet = |outcomes: u64, len: u8| (outcomes & !(u64::MAX << len) | 1 << len) << 1;
    let packets = packet(outcomes >> second, first) | packet(outcomes, second) << 8;
    (packets, usize::from(first != 0) + usize::from(second != 0))
}

/// Returns the packets for `len` outcomes (at most 48, the oldest highest), the first in the lowest
/// byte, and their number. Branch-free, because the length is unpredictable.
#[inline]
fn short_tnts(outcomes: u64, len: u8) -> (u64, usize) {
    const GROUP: u32 = Tnt::MAX_SHORT_LEN as u32;
    let len = u32::from(len);
    let (full, rest) = (len / GROUP, len % GROUP);
    let packets = in_groups(outcomes << (8 * GROUP).saturating_sub(len));
    let last = ((outcomes & !(u64::MAX << rest)) | 1 << rest) << 1;
    let some = u32::from(rest != 0);
    let above = |value: u64| value.checked_shl(8 * full).unwrap_or(0);
    let bytes = packets & !above(u64::MAX) | above(last * u64::from(some));
    (bytes, (full + some) as usize)
}

/// Returns the eight packets for 48 outcomes, the oldest highest, with the first packet in the
/// lowest byte.
#[inline]
fn in_groups(outcomes: u64) -> u64 {
    let groups = (outcomes & 0xffff_ff00_0000) << 8 | outcomes & 0xff_ffff;
    let groups = (groups & 0x00ff_f000_00ff_f000) << 4 | groups & 0x0fff_0000_0fff;
    let groups = (groups & 0x0fc0_0fc0_0fc0_0fc0) << 2 | groups & 0x003f_003f_003f_003f;
    (groups << 1 | 0x8080_8080_8080_8080).swap_bytes()
}
