//! Handles system calls that change the code of a translated process.

use super::Session;
use super::signals::maps_code;
use super::translated::{TranslatedThread, translated_thread};
use crate::error::Result;
use crate::ptrace::RawTid;
use backtrail_bundle::core::Registers;

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
}
