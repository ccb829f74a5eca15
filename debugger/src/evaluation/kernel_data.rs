//! Memory of a process that the kernel changes at any time: the data of its clock.

use crate::replay::MemoryRange;
use crate::session::{Process, Session};
use backtrail_decoder::Version;
use backtrail_pt::Avma;

/// The type of the entry of the auxiliary vector with the address of the vdso
/// (`linux/auxvec.h`).
const AT_SYSINFO_EHDR: u64 = 33;
/// The most pages with data of the vdso, which are mapped below it (`arch/x86/entry/vdso/vma.c`).
const PAGES: u64 = 6;
const PAGE: u64 = 4096;
const ELF: [u8; 4] = *b"\x7fELF";

/// Returns the memory with the data of the vdso. `None`: the process has not used the vdso, as far
/// as the bundle shows.
pub(crate) fn range(session: &Session, process: &Process) -> Option<MemoryRange> {
    let vdso = by_core(session).or_else(|| by_code(session, process))?;
    Some(MemoryRange {
        address: vdso.checked_sub(PAGES * PAGE)?,
        size: PAGES * PAGE,
    })
}

fn by_core(session: &Session) -> Option<u64> {
    let auxv = &session.core()?.contents().auxv;
    let (_, vdso) = auxv.iter().find(|(kind, _)| *kind == AT_SYSINFO_EHDR)?;
    Some(*vdso)
}

/// Returns the address of the vdso by its code: the only one without a file that begins with the
/// header of an ELF file.
fn by_code(session: &Session, process: &Process) -> Option<u64> {
    let mut processes = session.bundle()?.manifest().processes.iter();
    let recorded = processes.find(|recorded| recorded.pid == process.pid)?;
    let mut starts = recorded.images.iter().map(|image| image.start);
    let has_header = |start: &Avma| {
        let mut header = [0; 4];
        process.read(Version::default(), *start, &mut header) == header.len() && header == ELF
    };
    starts.find(has_header).map(|start| start.0)
}
