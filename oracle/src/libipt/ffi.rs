//! A safe interface to the C functions of libipt that the engine uses. It has all `unsafe` of the
//! crate.

use backtrail_decoder::{Config, FilterKind, Memory, Stamp};
use backtrail_pt::cpu::Vendor;
use backtrail_pt::instruction::Mode;
use backtrail_pt::{Avma, Cofi, Tsc};
use libipt_sys as sys;
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// `struct pt_insn_decoder`, over bytes and memory that live for `'a`.
pub(super) struct InsnDecoder<'a> {
    raw: NonNull<sys::pt_insn_decoder>,
    borrowed: PhantomData<(&'a [u8], &'a dyn Memory)>,
}

/// A positive `pt_status_flag` set.
#[derive(Clone, Copy)]
pub(super) struct Status(c_int);

impl Status {
    /// Returns whether the trace has no further packet.
    pub fn is_end(self) -> bool {
        self.0 & sys::pt_status_flag_pts_eos as c_int != 0
    }

    /// Returns whether an event must be fetched before the next instruction.
    pub fn event_pending(self) -> bool {
        self.0 & sys::pt_status_flag_pts_event_pending as c_int != 0
    }
}

/// A `pt_error_code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PtError(sys::pt_error_code);

impl PtError {
    /// Returns whether the trace ends.
    pub fn is_end(self) -> bool {
        self.0 == sys::pt_error_code_pte_eos
    }

    /// Returns whether there is no memory at the address.
    pub fn is_no_map(self) -> bool {
        self.0 == sys::pt_error_code_pte_nomap
    }

    fn of(status: c_int) -> Result<Status, Self> {
        if status < 0 {
            Err(Self(status.unsigned_abs() as sys::pt_error_code))
        } else {
            Ok(Status(status))
        }
    }
}

impl fmt::Display for PtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: accepts any code; returns a static C string or null.
        let text = unsafe { sys::pt_errstr(self.0) };
        if text.is_null() {
            return write!(f, "libipt error {}", self.0);
        }
        // SAFETY: not null, so a static C string.
        f.write_str(&unsafe { CStr::from_ptr(text) }.to_string_lossy())
    }
}

/// The result of one `pt_insn_next`.
pub(super) struct InsnStep {
    /// `None`: it failed before it had an address.
    pub instruction: Option<PtInsn>,
    pub result: Result<Status, PtError>,
}

/// `struct pt_insn`.
#[derive(Clone, Copy)]
pub(super) struct PtInsn(sys::pt_insn);

impl PtInsn {
    /// Returns whether it was decoded and executed, even if an error followed.
    pub fn is_complete(&self) -> bool {
        self.0.iclass != sys::pt_insn_class_ptic_error
    }

    pub fn pc(&self) -> Avma {
        Avma(self.0.ip)
    }

    pub fn len(&self) -> u8 {
        self.0.size
    }

    /// Returns the instruction's bytes, padded with zeros.
    pub fn bytes(&self) -> [u8; 15] {
        self.0.raw
    }

    /// Returns the execution mode; `None`: not reported.
    pub fn mode(&self) -> Option<Mode> {
        match self.0.mode {
            sys::pt_exec_mode_ptem_64bit => Some(Mode::Bits64),
            sys::pt_exec_mode_ptem_32bit => Some(Mode::Bits32),
            sys::pt_exec_mode_ptem_16bit => Some(Mode::Bits16),
            _ => None,
        }
    }

    /// Returns the control-flow class as far as libipt's class determines it. That class does not
    /// distinguish direct from indirect branches, and has no targets: all count as indirect.
    pub fn coarse(&self) -> Cofi {
        match self.0.iclass {
            sys::pt_insn_class_ptic_call => Cofi::IndirectCall,
            sys::pt_insn_class_ptic_return => Cofi::Return,
            sys::pt_insn_class_ptic_jump
            | sys::pt_insn_class_ptic_cond_jump
            | sys::pt_insn_class_ptic_indirect => Cofi::IndirectJump,
            sys::pt_insn_class_ptic_far_call
            | sys::pt_insn_class_ptic_far_return
            | sys::pt_insn_class_ptic_far_jump => Cofi::FarTransfer,
            _ => Cofi::Sequential,
        }
    }
}

/// `struct pt_event`, as far as the engine uses it.
pub(super) struct RawEvent {
    pub kind: RawEventKind,
    pub stamp: Option<Stamp>,
}

/// `enum pt_event_type` with the payloads that the engine uses.
pub(super) enum RawEventKind {
    Enabled {
        at: u64,
        status: bool,
    },
    Disabled {
        to: Option<u64>,
    },
    AsyncDisabled {
        at: u64,
        to: Option<u64>,
    },
    AsyncBranch {
        from: u64,
    },
    Overflow,
    Ptwrite {
        value: u64,
    },
    /// Any other type, of this version of libipt or a later one.
    Other,
}

impl<'a> InsnDecoder<'a> {
    /// Returns a decoder of packets from `trace` and code from `memory`.
    pub fn new(trace: &'a [u8], memory: &'a &'a dyn Memory, config: &Config) -> Result<Self, PtError> {
        let mut config = configuration(trace, config)?;
        // SAFETY: every member of the union is plain bits, and `insn` is the one this decoder
        // reads.
        unsafe { config.flags.variant.insn.set_enable_tick_events(1) };
        // SAFETY: the configuration is complete; its buffer lives for 'a, and the decoder only
        // reads it.
        let raw = NonNull::new(unsafe { sys::pt_insn_alloc_decoder(&raw const config) })
            .ok_or(PtError(sys::pt_error_code_pte_bad_config))?;
        let decoder = Self {
            raw,
            borrowed: PhantomData,
        };
        // SAFETY: the decoder is valid; its default image lives as long as it does.
        let image = unsafe { sys::pt_insn_get_image(decoder.raw.as_ptr()) };
        let context = std::ptr::from_ref(memory).cast_mut().cast::<c_void>();
        // SAFETY: the context has the type that `read_memory` expects, and outlives the decoder.
        PtError::of(unsafe { sys::pt_image_set_callback(image, Some(read_memory), context) })?;
        Ok(decoder)
    }

    /// Moves to the next PSB.
    pub fn sync_forward(&mut self) -> Result<Status, PtError> {
        // SAFETY: the decoder is valid.
        PtError::of(unsafe { sys::pt_insn_sync_forward(self.raw.as_ptr()) })
    }

    /// Returns the offset of the last PSB.
    pub fn sync_offset(&self) -> Option<u64> {
        let mut offset = 0;
        // SAFETY: both pointers are valid.
        let status = unsafe { sys::pt_insn_get_sync_offset(self.raw.as_ptr(), &raw mut offset) };
        PtError::of(status).is_ok().then_some(offset)
    }

    /// Returns the read position in the trace.
    pub fn offset(&self) -> Option<u64> {
        let mut offset = 0;
        // SAFETY: both pointers are valid.
        let status = unsafe { sys::pt_insn_get_offset(self.raw.as_ptr(), &raw mut offset) };
        PtError::of(status).is_ok().then_some(offset)
    }

    /// Fetches a pending event. An error returned with it concerns what follows.
    pub fn event(&mut self) -> (Option<RawEvent>, Result<Status, PtError>) {
        // SAFETY: a C struct of numbers: all zeros is a valid value.
        let mut event: sys::pt_event = unsafe { std::mem::zeroed() };
        // No event has this type, so it shows whether one was filled in.
        event.type_ = sys::pt_event_type::MAX;
        // SAFETY: both pointers are valid, and the size is the struct's.
        let status =
            unsafe { sys::pt_insn_event(self.raw.as_ptr(), &raw mut event, size_of::<sys::pt_event>()) };
        let filled = event.type_ != sys::pt_event_type::MAX;
        (filled.then(|| raw_event(&event)), PtError::of(status))
    }

    /// Decodes the next instruction.
    pub fn next(&mut self) -> InsnStep {
        // SAFETY: a C struct of numbers: all zeros is a valid value.
        let mut instruction: sys::pt_insn = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid, and the size is the struct's.
        let status =
            unsafe { sys::pt_insn_next(self.raw.as_ptr(), &raw mut instruction, size_of::<sys::pt_insn>()) };
        // libipt fills in the address before anything else can fail, except for an unknown mode.
        let filled = instruction.ip != 0 || instruction.size != 0 || PtInsn(instruction).mode().is_some();
        InsnStep {
            instruction: filled.then_some(PtInsn(instruction)),
            result: PtError::of(status),
        }
    }
}

impl Drop for InsnDecoder<'_> {
    fn drop(&mut self) {
        // SAFETY: the decoder is valid and not used again.
        unsafe { sys::pt_insn_free_decoder(self.raw.as_ptr()) }
    }
}

/// Returns libipt's configuration for a trace, without flags.
pub(super) fn configuration(trace: &[u8], config: &Config) -> Result<sys::pt_config, PtError> {
    let bad = PtError(sys::pt_error_code_pte_bad_config);
    // SAFETY: a C struct of numbers, pointers and an optional function: all zeros is a valid value,
    // the same that libipt's `pt_config_init` makes.
    let mut raw: sys::pt_config = unsafe { std::mem::zeroed() };
    raw.size = size_of::<sys::pt_config>();
    let bytes = trace.as_ptr_range();
    (raw.begin, raw.end) = (bytes.start.cast_mut(), bytes.end.cast_mut());
    if let Some(cpu) = config.cpu.filter(|cpu| cpu.vendor == Vendor::Intel) {
        raw.cpu.vendor = sys::pt_cpu_vendor_pcv_intel;
        (raw.cpu.family, raw.cpu.model, raw.cpu.stepping) = (cpu.family, cpu.model, cpu.stepping);
        // SAFETY: both pointers are valid. An unknown CPU has no errata.
        let _ = unsafe { sys::pt_cpu_errata(&raw mut raw.errata, &raw const raw.cpu) };
    }
    raw.mtc_freq = config.timing.mtc_freq;
    raw.nom_freq = config.timing.nom_freq;
    raw.cpuid_0x15_eax = config.timing.cpuid_15h_eax;
    raw.cpuid_0x15_ebx = config.timing.cpuid_15h_ebx;
    let filter = &mut raw.addr_filter;
    if config.filters.len() > Config::MAX_FILTERS {
        return Err(bad);
    }
    let bounds = [
        (&mut filter.addr0_a, &mut filter.addr0_b),
        (&mut filter.addr1_a, &mut filter.addr1_b),
        (&mut filter.addr2_a, &mut filter.addr2_b),
        (&mut filter.addr3_a, &mut filter.addr3_b),
    ];
    let mut kinds: u64 = 0;
    for (at, ((first, last), wanted)) in bounds.into_iter().zip(&config.filters).enumerate() {
        (*first, *last) = (
            wanted.range.start.0,
            wanted.range.end.0.checked_sub(1).ok_or(bad)?,
        );
        let kind = match wanted.kind {
            FilterKind::Filter => 1,
            FilterKind::Stop => 2,
        };
        kinds |= kind << (4 * at);
    }
    filter.config.addr_cfg = kinds;
    Ok(raw)
}

/// libipt's `read_memory_callback_t`: returns the number of bytes read, or a negative error code.
unsafe extern "C" fn read_memory(
    buffer: *mut u8,
    size: usize,
    _asid: *const sys::pt_asid,
    ip: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `InsnDecoder::new` stored a pointer to a `&dyn Memory`, which outlives the decoder.
    let memory = unsafe { &*context.cast_const().cast::<&dyn Memory>() };
    // SAFETY: libipt passes a buffer of that size, which nothing else uses. It is zeroed first,
    // because C does not guarantee that it is initialized.
    let out = unsafe {
        buffer.write_bytes(0, size);
        std::slice::from_raw_parts_mut(buffer, size)
    };
    match memory.read(Avma(ip), out) {
        0 => -(sys::pt_error_code_pte_nomap as c_int),
        read => c_int::try_from(read).unwrap_or(c_int::MAX),
    }
}

fn raw_event(event: &sys::pt_event) -> RawEvent {
    // A PSB+ repeats the state; only the address matters.
    let status = event.status_update() != 0;
    let to = |ip: u64| (event.ip_suppressed() == 0).then_some(ip);
    let variant = &event.variant;
    let kind = match event.type_ {
        sys::pt_event_type_ptev_enabled => RawEventKind::Enabled {
            // SAFETY: the type determines which member is set; all are plain numbers.
            at: unsafe { variant.enabled.ip },
            status,
        },
        _ if status => RawEventKind::Other,
        sys::pt_event_type_ptev_disabled => RawEventKind::Disabled {
            // SAFETY: as above.
            to: to(unsafe { variant.disabled.ip }),
        },
        sys::pt_event_type_ptev_async_disabled => {
            // SAFETY: as above.
            let payload = unsafe { variant.async_disabled };
            RawEventKind::AsyncDisabled {
                at: payload.at,
                to: to(payload.ip),
            }
        }
        sys::pt_event_type_ptev_async_branch => {
            // SAFETY: as above.
            let payload = unsafe { variant.async_branch };
            RawEventKind::AsyncBranch { from: payload.from }
        }
        sys::pt_event_type_ptev_overflow => RawEventKind::Overflow,
        sys::pt_event_type_ptev_ptwrite => RawEventKind::Ptwrite {
            // SAFETY: as above.
            value: unsafe { variant.ptwrite.payload },
        },
        _ => RawEventKind::Other,
    };
    let stamp = (event.has_tsc() != 0).then_some(Stamp {
        tsc: Tsc(event.tsc),
        lost_mtc: event.lost_mtc,
        lost_cyc: event.lost_cyc,
    });
    RawEvent { kind, stamp }
}
