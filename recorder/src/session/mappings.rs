//! What system calls do to the code of a translated process.

use super::Session;
use super::signals::maps_code;
use super::translated::{Followed, followed};
use crate::error::Result;
use crate::ptrace::RawTid;
use backtrail_bundle::core::Registers;

impl Session<'_> {
    /// What a system call that we made has changed.
    pub(super) fn after_call(
        &mut self,
        tid: RawTid,
        number: u64,
        before: &Registers,
        now: &Registers,
    ) -> Result<()> {
        let failed = (now.rax as i64) < 0 && now.rax as i64 >= -4095;
        if failed {
            return Ok(());
        }
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
        let Some(Followed { pid, translated, .. }) = followed(&mut self.threads, &self.scribe, tid) else {
            return Ok(());
        };
        let maps = maps_code(&Registers {
            orig_rax: number,
            rdx: before.rdx,
            ..*now
        });
        // Where nothing was read, only what is mapped is another.
        translated.space.borrow_mut().remapped();
        let touches = maps
            || changed
                .iter()
                .any(|range| translated.space.borrow().touches(range.clone()));
        if touches && self.shares_cache(tid) {
            self.split(tid, now)?;
        }
        if let Some(Followed { translated, .. }) = followed(&mut self.threads, &self.scribe, tid) {
            if touches {
                changed
                    .into_iter()
                    .for_each(|range| translated.space.borrow_mut().changed(range));
            }
            translated.close_ways(now)?;
        }
        if maps {
            self.update_image(pid);
        }
        Ok(())
    }
}
