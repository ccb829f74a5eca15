//! Handles system calls that change the code of a translated process.

use super::Session;
use super::signals::maps_code;
use super::translated::{TranslatedThread, translated_thread};
use crate::error::Result;
use crate::options::Engine;
use crate::ptrace::RawTid;
use crate::shared_ranges::SharedRanges;
use crate::thread::{FollowMode, Thread};
use backtrail_bundle::core::Registers;
use backtrail_process::maps;

impl Session<'_> {
    /// Updates the address space after a successful system call that the recorder made for the
    /// program.
    pub(super) fn after_mapping_call(
        &mut self,
        tid: RawTid,
        number: u64,
        before: &Registers,
        now: &Registers,
    ) -> Result<()> {
        self.note_shared_memory(tid, number, before, now.rax);
        let page_up = |len: u64| len.saturating_add(crate::PAGE - 1) & !(crate::PAGE - 1);
        let range = |start: u64, len: u64| start..start.saturating_add(page_up(len));
        let changed: Vec<std::ops::Range<u64>> = match number as libc::c_long {
            libc::SYS_mmap => vec![range(now.rax, before.rsi)],
            libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
                vec![range(before.rdi, before.rsi)]
            }
            libc::SYS_mremap => vec![range(before.rdi, before.rsi), range(now.rax, before.rdx)],
            libc::SYS_shmdt | libc::SYS_remap_file_pages | libc::SYS_shmat => vec![range(0, u64::MAX)],
            _ => return Ok(()),
        };
        let mapped = changed.last().map(|range| range.start);
        let unmapped = changed.last().cloned();
        let unmapped = unmapped.filter(|_| number as libc::c_long == libc::SYS_munmap);
        let Some(TranslatedThread { pid, translated, .. }) =
            translated_thread(&mut self.threads, &self.encoders, tid)
        else {
            return Ok(());
        };
        let maps = maps_code(&Registers {
            orig_rax: number,
            rdx: before.rdx,
            ..*now
        });
        // Even if no translated code is affected, the list of mappings is outdated.
        translated.space.borrow_mut().remapped();
        let touches = maps
            || changed
                .iter()
                .any(|range| translated.space.borrow().has_code_in(range.clone()));
        if touches && self.shares_cache(tid) {
            self.unshare(tid, now)?;
        }
        if let Some(TranslatedThread { translated, .. }) =
            translated_thread(&mut self.threads, &self.encoders, tid)
        {
            if touches {
                changed
                    .into_iter()
                    .for_each(|range| translated.space.borrow_mut().code_changed(range));
            }
            translated.protect_new_aliases(now)?;
        }
        if let Some(unmapped) = unmapped {
            self.copy_unmapped(pid, &unmapped);
        }
        if maps {
            self.update_image(pid, mapped);
        }
        Ok(())
    }

    /// Returns the shared memory of a process that has none. It is not known if no values are
    /// recorded, or by single steps.
    pub(super) fn without_shared_memory(&self) -> SharedRanges {
        match self.settings.values.is_some() && self.settings.engine == Engine::Translate {
            true => SharedRanges::none(),
            false => SharedRanges::default(),
        }
    }

    /// Records the shared memory that a process has when one of its threads begins.
    pub(super) fn note_shared_mappings(&mut self, pid: RawTid) {
        if self.settings.values.is_none() {
            return;
        }
        let added = self.added(pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.shared_memory.add_mappings(&maps::maps(pid), &added);
        }
    }

    /// Records the memory that a system call has shared, in all processes with the memory of the
    /// thread.
    fn note_shared_memory(&mut self, tid: RawTid, number: u64, before: &Registers, result: u64) {
        if self.settings.values.is_none() {
            return;
        }
        let memory_of = |thread: &Thread| match &thread.mode {
            FollowMode::Translated(translated) => Some(translated.memory),
            _ => None,
        };
        let Some(memory) = self.threads.get(&tid).and_then(memory_of) else {
            return;
        };
        for thread in self.threads.values() {
            if memory_of(thread) == Some(memory)
                && let Some(process) = self.processes.get_mut(&thread.pid)
            {
                let shared = &mut process.shared_memory;
                shared.add_call(thread.pid, number, before, result);
            }
        }
    }

    /// Records that a process runs unseen, and may share any memory.
    pub(super) fn forget_shared_memory(&mut self, pid: RawTid) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.shared_memory = SharedRanges::default();
        }
    }
}
