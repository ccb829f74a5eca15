//! Decodes recorded streams with libipt, as the oracle of instructions and times.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

use backtrail_bundle::{Bundle, CodeSection};
use backtrail_pt::{Avma, Pid, Tid};
use backtrail_recorder::Outcome;
use libipt_sys as sys;
use std::ffi::c_void;
use std::mem::{size_of, zeroed};

/// The result of decoding a stream with libipt.
#[derive(Debug, Default)]
pub struct Decoded {
    /// Instruction pointers, in order.
    pub instructions: Vec<Avma>,
    /// Error codes (`pt_error_code`), each with the number of instructions before it.
    pub errors: Vec<(usize, i32)>,
    /// Overflows.
    pub overflows: usize,
    /// The TSC at each instruction, as far as earlier packets determine it.
    pub times: Vec<u64>,
    /// MTC and CYC packets that libipt could not use.
    pub lost: (u32, u32),
}

/// Decodes the trace of a thread with the code in the bundle.
pub fn decode(bundle: &Bundle, pid: Pid, tid: Tid) -> Decoded {
    let process = bundle
        .manifest()
        .processes
        .iter()
        .find(|process| process.pid == pid)
        .expect("process");
    let thread = process
        .threads
        .iter()
        .find(|thread| thread.tid == tid)
        .expect("thread");
    let mut trace = bundle
        .bytes(thread.trace.as_ref().expect("trace"))
        .unwrap()
        .to_vec();
    let sections = bundle.code(pid).unwrap();
    let timing = bundle.manifest().timing;
    // SAFETY: the configuration points to `trace`, the image's callback to `sections`; both outlive
    // the decoder.
    unsafe {
        let mut config: sys::pt_config = zeroed();
        config.size = size_of::<sys::pt_config>();
        config.begin = trace.as_mut_ptr();
        config.end = trace.as_mut_ptr().add(trace.len());
        config.mtc_freq = timing.mtc_freq;
        config.nom_freq = timing.nom_freq;
        config.cpuid_0x15_eax = timing.cpuid_15h_eax;
        config.cpuid_0x15_ebx = timing.cpuid_15h_ebx;
        let decoder = sys::pt_insn_alloc_decoder(&raw const config);
        assert!(!decoder.is_null());
        let image = sys::pt_image_alloc(std::ptr::null());
        sys::pt_image_set_callback(image, Some(read), (&raw const sections).cast_mut().cast());
        sys::pt_insn_set_image(decoder, image);
        let decoded = run(decoder);
        sys::pt_insn_free_decoder(decoder);
        sys::pt_image_free(image);
        decoded
    }
}

/// Reads code. Later sections take precedence over earlier ones.
// SAFETY: only libipt calls this, with its own buffer and the context that was registered.
unsafe extern "C" fn read(
    buffer: *mut u8,
    size: usize,
    _asid: *const sys::pt_asid,
    ip: u64,
    context: *mut c_void,
) -> i32 {
    // SAFETY: libipt passes its buffer of `size` bytes and the registered context.
    let (buffer, sections) = unsafe {
        (
            std::slice::from_raw_parts_mut(buffer, size),
            &*context.cast::<Vec<CodeSection>>(),
        )
    };
    let mut len = 0;
    for byte in &mut *buffer {
        let at = ip + len;
        let found = sections
            .iter()
            .rev()
            .find_map(|section| section.bytes.get(at.checked_sub(section.start.0)? as usize));
        let Some(code) = found else { break };
        *byte = *code;
        len += 1;
    }
    if len == 0 {
        -(sys::pt_error_code_pte_nomap as i32)
    } else {
        len as i32
    }
}

/// # Safety
/// `decoder` is a live instruction flow decoder.
unsafe fn run(decoder: *mut sys::pt_insn_decoder) -> Decoded {
    const EOS: i32 = -(sys::pt_error_code_pte_eos as i32);
    let mut out = Decoded::default();
    // SAFETY: all structures are local and passed with their sizes.
    unsafe {
        loop {
            let mut status = sys::pt_insn_sync_forward(decoder);
            if status == EOS {
                return out;
            }
            while status >= 0 {
                if status & sys::pt_status_flag_pts_event_pending as i32 != 0 {
                    let mut event: sys::pt_event = zeroed();
                    status = sys::pt_insn_event(decoder, &raw mut event, size_of::<sys::pt_event>());
                    if event.type_ == sys::pt_event_type_ptev_overflow {
                        out.overflows += 1;
                    }
                    continue;
                }
                let mut insn: sys::pt_insn = zeroed();
                status = sys::pt_insn_next(decoder, &raw mut insn, size_of::<sys::pt_insn>());
                if insn.iclass != sys::pt_insn_class_ptic_error || status >= 0 {
                    out.instructions.push(Avma(insn.ip));
                    let mut time = 0;
                    sys::pt_insn_time(decoder, &raw mut time, &raw mut out.lost.0, &raw mut out.lost.1);
                    out.times.push(time);
                }
            }
            if status != EOS {
                out.errors.push((out.instructions.len(), status));
            }
        }
    }
}

/// Checks that every thread's stream decodes to the stepped instructions; with a ring, to the last
/// ones.
pub fn check(outcome: &Outcome) -> Bundle {
    let bundle = Bundle::open(outcome.bundle.as_ref().unwrap()).unwrap();
    assert!(outcome.instructions.is_some_and(|count| count > 0));
    for golden in &outcome.golden {
        let decoded = decode(&bundle, golden.pid, golden.tid);
        let place = format!(
            "thread {} of {} instructions",
            golden.tid,
            golden.instructions.len()
        );
        assert_eq!(decoded.errors, [], "{place}");
        let kept = if outcome.dropped == 0 {
            0
        } else {
            golden
                .instructions
                .len()
                .saturating_sub(decoded.instructions.len())
        };
        same(&decoded.instructions, &golden.instructions[kept..], &place);
        assert_eq!(decoded.overflows, 0, "{place}");
        assert_eq!(decoded.lost, (0, 0), "{place}");
        assert!(decoded.times.is_sorted(), "{place}: time runs backward");
    }
    bundle
}

fn same(decoded: &[Avma], golden: &[Avma], place: &str) {
    let differs = decoded
        .iter()
        .zip(golden)
        .position(|(decoded, golden)| decoded != golden);
    if let Some(at) = differs {
        let around = at.saturating_sub(3)..(at + 3).min(decoded.len()).min(golden.len());
        panic!(
            "{place}: at {at}, decoded {:x?}, stepped {:x?}",
            &decoded[around.clone()],
            &golden[around]
        );
    }
    let last = |list: &[Avma]| list[list.len().saturating_sub(8)..].to_vec();
    assert_eq!(
        decoded.len(),
        golden.len(),
        "{place}: the last decoded {:x?}, stepped {:x?}",
        last(decoded),
        last(golden)
    );
}
