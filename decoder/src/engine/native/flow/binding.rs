//! Determines which events are due at an address or with an instruction (SDM volume 3, "Packet
//! Binding").

use super::FlowDecoder;
use crate::engine::native::code::{BasicBlock, Exit};
use crate::engine::native::error::Error;
use crate::engine::native::event::{EventKind, TraceEvent, TraceItem};
use crate::{AddressFilter, FilterKind, Resync};
use backtrail_pt::Cofi;
use backtrail_pt::instruction::Role;

/// The kinds of events that an instruction has had. It has at most one of each.
#[derive(Default)]
pub(super) struct SeenKinds {
    paging: bool,
    vmcs: bool,
    ptwrite: bool,
    iret: bool,
    vm_entry: bool,
    user_iret: bool,
}

/// An instruction that events may bind to.
#[derive(Clone, Copy)]
pub(super) struct RetiredInstruction {
    pub pc: u64,
    pub len: u8,
    pub cofi: Cofi,
}

impl FlowDecoder<'_, '_> {
    /// Fetches the next event, if all outcomes before it are used. Returns whether there is one.
    /// Errors of the trace are returned here too.
    #[inline]
    pub(super) fn fetch_event(&mut self) -> Result<bool, Error> {
        if self.pending.is_some() {
            return Ok(true);
        }
        if self.outcomes_len != 0 {
            return Ok(false);
        }
        match &self.ahead {
            Ok(TraceItem::Tnt(_) | TraceItem::Tip(_)) | Err(Error::End) => Ok(false),
            Err(error) => Err(*error),
            Ok(TraceItem::Event(_)) => {
                self.pending_offset = self.ahead_offset;
                if let Ok(TraceItem::Event(event)) = self.take_ahead() {
                    self.pending = Some(event);
                }
                Ok(true)
            }
        }
    }

    /// Returns whether an event is due before the instruction at the current address.
    pub(super) fn is_due_before(&mut self) -> Result<bool, Error> {
        if !self.fetch_event()? {
            return Ok(false);
        }
        let (here, enabled) = (self.ip, self.enabled);
        let Some(event) = &mut self.pending else {
            return Ok(false);
        };
        let other_address = event.ip.is_some_and(|ip| ip != here);
        Ok(match event.kind {
            EventKind::Enabled { .. }
            | EventKind::Overflow { .. }
            | EventKind::Stop
            | EventKind::AtOnce
            | EventKind::Ignore => true,
            EventKind::Disabled => {
                // Straight code or an outcome leaves the filter's range.
                event.status || event.ip == Some(here) && self.config.resync == Resync::NextAddress
            }
            EventKind::AsyncDisabled { at } if at != here => false,
            EventKind::AsyncDisabled { .. } => {
                if self.errata.skd022 && self.cache.code.role(here, self.memory) == Role::EntersVm {
                    // Erratum SKD022: the instruction ran and disabled tracing itself.
                    event.kind = EventKind::Disabled;
                    return Ok(false);
                }
                true
            }
            EventKind::AsyncBranch { from } => from == here,
            EventKind::Tsx { .. } | EventKind::AsyncPaging | EventKind::AsyncVmcs => !other_address,
            EventKind::ExecMode(_)
            | EventKind::Exstop
            | EventKind::Mwait
            | EventKind::Interrupt
            | EventKind::Smi
            | EventKind::Init
            | EventKind::VmExit(_)
            | EventKind::Shutdown
            | EventKind::UserInterrupt => !(enabled && other_address),
            EventKind::Trigger { instructions } => {
                !enabled || !other_address && self.since_address >= u32::from(instructions)
            }
            // They bind to an instruction while tracing is enabled.
            EventKind::Paging
            | EventKind::Vmcs
            | EventKind::Ptwrite { .. }
            | EventKind::Iret
            | EventKind::VmEntry
            | EventKind::UserIret => !enabled,
        })
    }

    /// Returns whether the pending event is due with an instruction that has run.
    pub(super) fn is_due_at(&self, at: RetiredInstruction, seen: &mut SeenKinds) -> bool {
        let Some(event) = &self.pending else {
            return false;
        };
        let role = || self.cache.code.role(at.pc, self.memory);
        let far = at.cofi == Cofi::FarTransfer;
        // The event's address, if it has one, is the instruction's.
        let here = |wanted: Role| match event.ip {
            Some(ip) => ip == at.pc,
            None => role() == wanted,
        };
        let (seen, due) = match event.kind {
            EventKind::Disabled if event.status => return false,
            EventKind::Disabled => return self.leaves(event, at),
            EventKind::Paging => (
                &mut seen.paging,
                far || matches!(role(), Role::WritesCr3 | Role::EntersVm),
            ),
            EventKind::Vmcs => (
                &mut seen.vmcs,
                far || matches!(role(), Role::LoadsVmcs | Role::EntersVm),
            ),
            EventKind::Ptwrite { .. } => (&mut seen.ptwrite, here(Role::Ptwrite)),
            EventKind::Iret => (&mut seen.iret, here(Role::ReturnsFromInterrupt)),
            EventKind::VmEntry => (&mut seen.vm_entry, here(Role::EntersVm)),
            EventKind::UserIret => (&mut seen.user_iret, here(Role::ReturnsFromUserInterrupt)),
            _ => return false,
        };
        due && !std::mem::replace(seen, true)
    }

    /// Returns whether tracing was disabled by this instruction.
    fn leaves(&self, event: &TraceEvent, at: RetiredInstruction) -> bool {
        match (event.ip, at.cofi) {
            (None, Cofi::FarTransfer) => true,
            // Erratum SKL014: a direct branch out of the filter's range has no target in its
            // packet.
            (None, Cofi::Jump { target } | Cofi::Call { target })
                if self.errata.skl014 && !self.config.filters.is_empty() =>
            {
                !traced(&self.config.filters, target.0)
            }
            // A conditional branch out of the filter's range has neither outcome nor target.
            (None, Cofi::Conditional { target }) if !traced(&self.config.filters, target.0) => true,
            // The branch needs a packet, and there is none before the TIP.PGD.
            (None, Cofi::Conditional { .. } | Cofi::IndirectCall | Cofi::IndirectJump | Cofi::Return) => {
                self.config.resync == Resync::NextAddress
            }
            (None, _) => self.cache.code.role(at.pc, self.memory) == Role::WritesCr3,
            (Some(_), Cofi::Sequential) => false,
            (Some(ip), Cofi::Jump { target } | Cofi::Call { target }) => target.0 == ip,
            (Some(_), _) => true,
        }
    }

    /// Returns whether the pending event shows that another instruction than this one ran. This one
    /// would have an outcome or a target, or would lead to another address.
    pub(super) fn is_other_instruction(&self, block: &BasicBlock, at: RetiredInstruction) -> bool {
        let filters = &self.config.filters;
        let leaves = |event: &&TraceEvent| event.kind == EventKind::Disabled && !event.status;
        let Some(event) = self.pending.as_ref().filter(leaves) else {
            return false;
        };
        match (event.ip, at.cofi) {
            _ if self.config.resync == Resync::NextPsb => false,
            (None, Cofi::IndirectCall | Cofi::IndirectJump) => true,
            (None, Cofi::Conditional { target }) => traced(filters, target.0) && traced(filters, block.end),
            // A compressed return out of the filter's range has neither outcome nor target.
            (None, Cofi::Return) => self.return_address().is_none_or(|to| traced(filters, to)),
            (Some(ip), Cofi::Conditional { target }) => ip != target.0 && ip != block.end,
            _ => false,
        }
    }

    /// Returns whether the pending event counts instructions to its place. The counted instructions
    /// run even in a circle.
    pub(super) fn counts_to_trigger(&self) -> bool {
        matches!(
            self.pending,
            Some(TraceEvent {
                kind: EventKind::Trigger { instructions: 1.. },
                ..
            })
        )
    }

    /// Returns the return address of the innermost call, if it is known.
    fn return_address(&self) -> Option<u64> {
        let call = self.returns.innermost()?;
        Some(self.cache.code.blocks.get(call.index())?.end)
    }

    /// Erratum BDM64: the packet of a branch right before an aborted transaction may be wrong. If
    /// the code does not reach the abort's address, the branch went there.
    pub(super) fn bdm64(&mut self) -> Result<(), Error> {
        /// The most instructions to search.
        const MAX_STEPS: u32 = 0x100;
        if !self.fetch_event()? {
            return Ok(());
        }
        let Some(TraceEvent {
            kind: EventKind::Tsx { aborted: true },
            ip: Some(abort),
            ..
        }) = self.pending
        else {
            return Ok(());
        };
        let (mut at, mut steps) = (self.ip, 0);
        let reached = loop {
            let Ok(block) = self.block_at(at) else {
                break false;
            };
            let inside = (0..block.count)
                .filter_map(|within| self.cache.code.instruction(&block, within))
                .position(|(pc, _)| pc == abort);
            if let Some(within) = inside {
                break steps + within as u32 <= MAX_STEPS;
            }
            steps += block.count;
            at = match block.exit {
                Exit::FallThrough => block.end,
                Exit::Jump { target } | Exit::Call { target } => target,
                _ => break false,
            };
            if steps > MAX_STEPS {
                break false;
            }
        };
        if !reached {
            self.ip = abort;
        }
        Ok(())
    }

    /// Returns a copy of the block at an address.
    pub(super) fn block_at(&mut self, at: u64) -> Result<BasicBlock, Error> {
        let id = self.find_block(at)?;
        self.cache
            .code
            .blocks
            .get(id.index())
            .copied()
            .ok_or(Error::NoCode)
    }
}

/// Returns whether an address is traced under these filters.
fn traced(filters: &[AddressFilter], address: u64) -> bool {
    let inside = |filter: &&AddressFilter| (filter.range.start.0..filter.range.end.0).contains(&address);
    let of = |kind: FilterKind| filters.iter().filter(move |filter| filter.kind == kind);
    if of(FilterKind::Stop).any(|filter| inside(&filter)) {
        return false;
    }
    of(FilterKind::Filter).next().is_none() || of(FilterKind::Filter).any(|filter| inside(&filter))
}
