//! A perf event with an AUX buffer, by system calls alone, independent of our own library.
#![allow(unsafe_code)]

use perf_event_open_sys as calls;
use perf_event_open_sys::bindings as sys;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
/// The number of pages of the ring for records.
const RECORD_PAGES: usize = 8;

/// The event.
pub struct Raw {
    fd: OwnedFd,
    records: Mapping,
    aux: Mapping,
}

/// How the AUX buffer is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Overwritten repeatedly.
    Snapshot,
    /// Never overwritten: unread data is kept.
    Full,
}

/// Memory shared with the kernel.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

/// Returns the type number of the PMU.
pub fn pmu_type() -> Result<u32, String> {
    let text = fs::read_to_string("/sys/bus/event_source/devices/intel_pt/type")
        .map_err(|error| format!("no PMU intel_pt: {error}"))?;
    text.trim()
        .parse()
        .map_err(|error| format!("its type is {text}: {error}"))
}

impl Raw {
    /// Opens the event on `processor`, disabled, with an AUX buffer of `size` bytes.
    pub fn open(processor: i32, config: u64, mode: Mode, size: usize) -> io::Result<Self> {
        let fd = open(-1, processor, config)?;
        let records = Mapping::new(&fd, (1 + RECORD_PAGES) * PAGE, 0, true)?;
        let page = records.start.as_ptr().cast::<sys::perf_event_mmap_page>();
        // SAFETY: the mapping begins with this page, and the kernel reads these two fields only at
        // the next mapping.
        unsafe {
            (*page).aux_offset = records.length as u64;
            (*page).aux_size = size as u64;
        }
        let aux = Mapping::new(&fd, size, records.length as i64, mode == Mode::Full)?;
        Ok(Self { fd, records, aux })
    }

    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: this call passes no pointer.
        checked(unsafe { calls::ioctls::ENABLE(self.fd.as_raw_fd(), 0) })
    }

    pub fn disable(&self) -> io::Result<()> {
        // SAFETY: this call passes no pointer.
        checked(unsafe { calls::ioctls::DISABLE(self.fd.as_raw_fd(), 0) })
    }

    /// Returns the kernel's position of the next byte.
    pub fn aux_head(&self) -> u64 {
        // SAFETY: the field is in the mapping, aligned, and written by the kernel.
        let head = unsafe { AtomicU64::from_ptr(&raw mut (*self.page()).aux_head) };
        head.load(Ordering::Acquire)
    }

    /// Returns the whole AUX buffer; the event is disabled.
    pub fn aux(&self) -> Vec<u8> {
        // SAFETY: the mapping has this length, and the kernel does not write while the event is
        // disabled.
        unsafe { slice::from_raw_parts(self.aux.start.as_ptr(), self.aux.length) }.to_vec()
    }

    /// Returns whether user space may compute times, and whether from zero.
    pub fn time_known(&self) -> (bool, bool) {
        // SAFETY: the mapping begins with this page.
        let known = unsafe { (*self.page()).__bindgen_anon_1.__bindgen_anon_1 };
        (known.cap_user_time() != 0, known.cap_user_time_zero() != 0)
    }

    /// Returns the unread records, as (type, body); the ring was never full.
    pub fn records(&self) -> Vec<(u32, Vec<u8>)> {
        // SAFETY: the field is in the mapping, aligned, and written by the kernel.
        let head = unsafe { AtomicU64::from_ptr(&raw mut (*self.page()).data_head) }.load(Ordering::Acquire);
        // SAFETY: the ring follows the page, and has the requested length.
        let ring =
            unsafe { slice::from_raw_parts(self.records.start.as_ptr().add(PAGE), RECORD_PAGES * PAGE) };
        let mut bytes = &ring[..ring.len().min(head as usize)];
        let mut records = Vec::new();
        while let Some((header, _)) = bytes.split_first_chunk::<8>() {
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let length = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            let Some(body) = bytes.get(8..length) else { break };
            records.push((kind, body.to_vec()));
            bytes = &bytes[length..];
        }
        records
    }

    fn page(&self) -> *mut sys::perf_event_mmap_page {
        self.records.start.as_ptr().cast()
    }
}

/// Opens an event of the stand-in without buffers.
pub fn open(process: i32, processor: i32, config: u64) -> io::Result<OwnedFd> {
    let mut attributes = sys::perf_event_attr {
        type_: pmu_type().map_err(io::Error::other)?,
        size: size_of::<sys::perf_event_attr>() as u32,
        config,
        ..Default::default()
    };
    attributes.set_disabled(1);
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    // SAFETY: the attributes live during the call, and contain their size.
    let fd = unsafe {
        calls::perf_event_open(
            &mut attributes,
            process,
            processor,
            -1,
            sys::PERF_FLAG_FD_CLOEXEC.into(),
        )
    };
    checked(fd)?;
    // SAFETY: the kernel just gave it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Mapping {
    fn new(fd: &OwnedFd, length: usize, offset: i64, writable: bool) -> io::Result<Self> {
        let rights = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping at an address that the kernel chooses; it replaces no other.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                rights,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Self { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference to it remains.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

fn checked(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
