//! Reads the context that a held process published for OpenTelemetry, inside the sandbox.

use super::memory::ProcessMemory;
use super::open::OpenProcess;
use backtrail_bundle::context::PublishedContext;
use backtrail_bundle::core::CoreContents;
use backtrail_process::beneath::FileId;
use backtrail_process::maps::Map;
use backtrail_process::thread_context::ContextReader;

/// Reads the contexts of a process and of the threads of its core. `None`: there are none.
///
/// Files of remote file systems are not read, because they may not answer while the process waits.
pub(super) fn read(process: &OpenProcess, contents: &CoreContents) -> Option<PublishedContext> {
    let mut memory = ProcessMemory::of(process)?;
    let mut open = |map: &Map| {
        let id = FileId {
            device: map.device,
            inode: map.inode,
        };
        let file = process.files.get(&id).filter(|file| !file.is_remote)?;
        file.file.as_ref().ok()?.try_clone().ok()
    };
    let reader = ContextReader::of_process(&process.maps, &mut memory, &mut open)?;
    let threads = contents.threads.iter();
    reader.read(
        threads.map(|thread| (thread.tid, thread.registers.fs_base)),
        &mut memory,
    )
}
