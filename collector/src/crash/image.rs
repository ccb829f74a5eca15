//! What a kept process is, as a bundle's manifest has it: its threads and its code.

use backtrail_bundle::core::CoreContents;
use backtrail_bundle::manifest::{Process, Thread};
use backtrail_bundle::{BundlePath, Error, Writer};
use backtrail_process::RawTid;
use backtrail_process::code_image::CodeImage;
use backtrail_process::status;
use backtrail_pt::{Pid, Tid};
use std::collections::HashMap;

/// The process with its modules, `witness` being a thread of it that has not ended; they are copied into the bundle; what cannot be is added to `missing`.
pub(super) fn process(
    pid: Pid,
    witness: RawTid,
    threads: &[Tid],
    writer: &Writer,
    missing: &mut Vec<String>,
) -> Result<Process, Error> {
    let raw = pid.0 as RawTid;
    let mut image = CodeImage::default();
    image.update(witness);
    if image.modules.is_empty() {
        missing.push("the process's binaries could not be read".to_owned());
    }
    missing.append(&mut image.notes);
    let mut saved = image.save(writer, pid.0, BundlePath::new)?;
    missing.append(&mut saved.missing);
    Ok(Process {
        pid,
        threads: threads
            .iter()
            .map(|tid| Thread {
                tid: *tid,
                name: status::thread_name(raw, tid.0 as RawTid),
                trace: None,
            })
            .collect(),
        modules: saved.modules,
        images: saved.images,
        versions: None,
    })
}

/// Gives the process and its threads the ids that they have outside of their pid namespace: a core has those of
/// inside.
pub(super) fn use_outer_ids(contents: &mut CoreContents, pid: Pid) {
    let outer: HashMap<u32, u32> = status::threads(pid.0 as RawTid)
        .into_iter()
        .filter_map(|tid| Some((status::innermost_id(tid)?, tid as u32)))
        .collect();
    contents.process.pid = pid.0;
    for thread in &mut contents.threads {
        if let Some(outer) = outer.get(&thread.tid.0) {
            thread.tid = Tid(*outer);
        }
    }
}
