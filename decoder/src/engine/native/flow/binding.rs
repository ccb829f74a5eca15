//! Which events are due at a place: at an address, or with an instruction (SDM volume 3, "Packet Binding").

use super::Flow;
use crate::engine::native::code::{Block, Exit};
use crate::engine::native::error::Error;
use crate::engine::native::event::{Event, Item, Kind};
use crate::{AddressFilter, FilterKind};
use backtrail_pt::Cofi;
use backtrail_pt::instruction::Role;

/// The kinds of events that an instruction has had; it has one of each at most.
#[derive(Default)]
pub(super) struct Had {
    paging: bool,
    vmcs: bool,
    ptwrite: bool,
    iret: bool,
    vm_entry: bool,
    user_iret: bool,
}

/// An instruction that events may bind to.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub pc: u64,
    pub len: u8,
    pub cofi: Cofi,
}

impl Flow<'_, '_> {
    /// Takes the next event out of the trace, when all outcomes before it are used. Says whether there is
    /// one; an error of the trace shows here too.
    #[inline]
    pub(super) fn fetch_event(&mut self) -> Result<bool, Error> {
        if self.pending.is_some() {
            return Ok(true);
        }
        if self.outcomes_len != 0 {
            return Ok(false);
        }
        match &self.ahead {
            Ok(Item::Tnt(_) | Item::Tip(_)) | Err(Error::End) => Ok(false),
            Err(error) => Err(*error),
            Ok(Item::Event(_)) => {
                let next = self.events.next();
                if let Ok(Item::Event(event)) = std::mem::replace(&mut self.ahead, next) {
                    self.pending = Some(event);
                }
                Ok(true)
            }
        }
    }

    /// An event is due before the instruction at the current address.
    pub(super) fn due_here(&mut self) -> Result<bool, Error> {
        if !self.fetch_event()? {
            return Ok(false);
        }
        let (here, enabled) = (self.ip, self.enabled);
        let Some(event) = &mut self.pending else {
            return Ok(false);
        };
        let elsewhere = event.ip.is_some_and(|ip| ip != here);
        Ok(match event.kind {
            Kind::Enabled { .. } | Kind::Overflow { .. } | Kind::Stop | Kind::AtOnce | Kind::Ignore => true,
            Kind::Disabled => event.status,
            Kind::AsyncDisabled { at } if at != here => false,
            Kind::AsyncDisabled { .. } => {
                if self.errata.skd022 && self.learnt.code.role(here, self.memory) == Role::EntersVm {
                    // Erratum SKD022: the instruction ran, and left by itself.
                    event.kind = Kind::Disabled;
                    return Ok(false);
                }
                true
            }
            Kind::AsyncBranch { from } => from == here,
            Kind::Tsx { .. } | Kind::AsyncPaging | Kind::AsyncVmcs => !elsewhere,
            Kind::ExecMode(_)
            | Kind::Exstop
            | Kind::Mwait
            | Kind::Interrupt
            | Kind::Smi
            | Kind::Init
            | Kind::VmExit(_)
            | Kind::Shutdown
            | Kind::UserInterrupt => !(enabled && elsewhere),
            // They are of an instruction, when there is one.
            Kind::Paging
            | Kind::Vmcs
            | Kind::Ptwrite { .. }
            | Kind::Iret
            | Kind::VmEntry
            | Kind::UserIret => !enabled,
        })
    }

    /// The event that is pending is due with an instruction, which has run.
    pub(super) fn due_with(&self, at: At, had: &mut Had) -> bool {
        let Some(event) = &self.pending else {
            return false;
        };
        let role = || self.learnt.code.role(at.pc, self.memory);
        let far = at.cofi == Cofi::FarTransfer;
        // The event's address is the instruction's, where it is told.
        let here = |wanted: Role| match event.ip {
            Some(ip) => ip == at.pc,
            None => role() == wanted,
        };
        let (had, due) = match event.kind {
            Kind::Disabled if event.status => return false,
            Kind::Disabled => return self.leaves(event, at),
            Kind::Paging => (
                &mut had.paging,
                far || matches!(role(), Role::WritesCr3 | Role::EntersVm),
            ),
            Kind::Vmcs => (
                &mut had.vmcs,
                far || matches!(role(), Role::LoadsVmcs | Role::EntersVm),
            ),
            Kind::Ptwrite { .. } => (&mut had.ptwrite, here(Role::Ptwrite)),
            Kind::Iret => (&mut had.iret, here(Role::ReturnsFromInterrupt)),
            Kind::VmEntry => (&mut had.vm_entry, here(Role::EntersVm)),
            Kind::UserIret => (&mut had.user_iret, here(Role::ReturnsFromUserInterrupt)),
            _ => return false,
        };
        due && !std::mem::replace(had, true)
    }

    /// Tracing went off with this instruction.
    fn leaves(&self, event: &Event, at: At) -> bool {
        match (event.ip, at.cofi) {
            (None, Cofi::FarTransfer) => true,
            // Erratum SKL014: a direct branch out of the filter's range does not tell its target.
            (None, Cofi::Jump { target } | Cofi::Call { target })
                if self.errata.skl014 && !self.config.filters.is_empty() =>
            {
                !traced(&self.config.filters, target.0)
            }
            // A conditional branch out of the filter's range tells neither outcome nor target.
            (None, Cofi::Conditional { target }) if !self.config.filters.is_empty() => {
                !traced(&self.config.filters, target.0)
            }
            (None, _) => self.learnt.code.role(at.pc, self.memory) == Role::WritesCr3,
            (Some(_), Cofi::Sequential) => false,
            (Some(ip), Cofi::Jump { target } | Cofi::Call { target }) => target.0 == ip,
            (Some(_), _) => true,
        }
    }

    /// Erratum BDM64: the packet of a branch right before an aborted transaction may be wrong. Where the
    /// abort's address cannot be reached, the branch went there.
    pub(super) fn bdm64(&mut self) -> Result<(), Error> {
        /// So many instructions are looked at.
        const MAX_STEPS: u32 = 0x100;
        if !self.fetch_event()? {
            return Ok(());
        }
        let Some(Event {
            kind: Kind::Tsx { aborted: true },
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
                .filter_map(|within| self.learnt.code.instruction(&block, within))
                .position(|(pc, _)| pc == abort);
            if let Some(within) = inside {
                break steps + within as u32 <= MAX_STEPS;
            }
            steps += block.count;
            at = match block.exit {
                Exit::Through => block.end,
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

    /// The block at an address, without its number.
    pub(super) fn block_at(&mut self, at: u64) -> Result<Block, Error> {
        let id = self.find(at)?;
        self.learnt
            .code
            .blocks
            .get(id as usize)
            .copied()
            .ok_or(Error::NoCode)
    }
}

/// An address is traced under these filters.
fn traced(filters: &[AddressFilter], address: u64) -> bool {
    let inside = |filter: &&AddressFilter| (filter.range.start.0..filter.range.end.0).contains(&address);
    let of = |kind: FilterKind| filters.iter().filter(move |filter| filter.kind == kind);
    if of(FilterKind::Stop).any(|filter| inside(&filter)) {
        return false;
    }
    of(FilterKind::Filter).next().is_none() || of(FilterKind::Filter).any(|filter| inside(&filter))
}
