//! The memory that an event writes to: the ring buffer of its records, and the AUX area of its
//! trace.
//!
//! Source: `perf_event_open(2)`, "MMAP layout"; `include/uapi/linux/perf_event.h`, `struct
//! perf_event_mmap_page`; `kernel/events/ring_buffer.c` and `arch/x86/events/intel/pt.c` in the
//! kernel.

use crate::mapping::Mapping;
use crate::record::RawRecord;
use crate::{Error, Event};
use backtrail_pt::TscConversion;
use perf_event_open_sys::bindings::perf_event_mmap_page;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

const PAGE: usize = 4096;
/// `struct perf_event_header`.
const HEADER: usize = 8;
/// The number of attempts to read the clock parameters while the kernel changes them.
const MAX_ATTEMPTS: usize = 1000;

/// The ring buffer of an event's records.
#[derive(Debug)]
pub struct Ring {
    page: Page,
    size: usize,
}

/// The first page of an event's mapping, which owns the whole mapping.
#[derive(Clone, Debug)]
struct Page(Arc<Mapping>);

/// The AUX area of an event in overwrite mode: the kernel wraps around and never waits for the
/// reader.
#[derive(Debug)]
pub struct AuxArea {
    page: Page,
    mapping: Mapping,
}

/// A copy of an AUX area.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuxCopy {
    /// The range of the trace in the buffer, oldest byte first.
    pub range: Range<usize>,
    /// Whether the area was full, so that older data was overwritten. Otherwise this is everything
    /// that was ever written.
    pub wrapped: bool,
}

impl Ring {
    /// Maps the ring buffer of an event, with `pages` of 4 KiB, a power of two. The kernel does not
    /// overwrite unread records: it drops and counts records without room.
    ///
    /// # Errors
    /// Fails if `pages` is not a power of two, or memory is insufficient.
    pub fn map(event: &Event, pages: usize) -> Result<Self, Error> {
        let len = pages
            .checked_add(1)
            .and_then(|pages| pages.checked_mul(PAGE))
            .filter(|_| pages.is_power_of_two())
            .ok_or_else(|| Error::Setting(format!("a ring of {pages} pages is not a power of two")))?;
        let mapping = Mapping::of_event(event.as_fd(), 0, len, true)?;
        Ok(Self {
            page: Page(Arc::new(mapping)),
            size: pages * PAGE,
        })
    }

    /// Maps the AUX area of the event of this ring for overwriting, so read-only. `size` in bytes
    /// must be a power of two of pages.
    ///
    /// # Errors
    /// Fails if `size` is not a power of two of pages, memory is insufficient, or the event has no
    /// AUX area.
    pub fn map_aux(&self, event: &Event, size: usize) -> Result<AuxArea, Error> {
        if !size.is_power_of_two() || size < PAGE {
            let problem = format!("an AUX area of {size} bytes is not a power of two of 4096-byte pages");
            return Err(Error::Setting(problem));
        }
        let offset = self.page.0.len() as u64;
        self.page
            .word(offset_of!(perf_event_mmap_page, aux_offset))
            .store(offset, Ordering::Relaxed);
        self.page
            .word(offset_of!(perf_event_mmap_page, aux_size))
            .store(size as u64, Ordering::Relaxed);
        let mapping = Mapping::of_event(event.as_fd(), offset, size, false)?;
        let page = self.page.clone();
        Ok(AuxArea { page, mapping })
    }

    /// Appends the unread records in the order of writing, and frees their room. Returns their
    /// number of bytes.
    ///
    /// # Errors
    /// Fails if the positions from the kernel are invalid. Then nothing is appended, and the ring
    /// counts as read.
    pub fn take(&mut self, records: &mut Vec<u8>) -> Result<usize, Error> {
        let tail_word = self.page.word(offset_of!(perf_event_mmap_page, data_tail));
        let tail = tail_word.load(Ordering::Relaxed);
        // "User-space reading the @data_head value should issue an smp_rmb(), after reading this
        // value."
        let head = self
            .page
            .word(offset_of!(perf_event_mmap_page, data_head))
            .load(Ordering::Acquire);
        let taken = copy_ring(tail, head, self.size, records, |from, to| {
            self.page.0.copy(PAGE + from, to)
        });
        // "... it should issue an smp_mb() before writing @data_tail": all reads must be complete.
        fence(Ordering::SeqCst);
        tail_word.store(head, Ordering::Release);
        taken
    }

    /// Returns the number of unread bytes.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let head = self
            .page
            .word(offset_of!(perf_event_mmap_page, data_head))
            .load(Ordering::Relaxed);
        let tail = self
            .page
            .word(offset_of!(perf_event_mmap_page, data_tail))
            .load(Ordering::Relaxed);
        head.wrapping_sub(tail)
    }

    /// Returns the conversion from TSC to perf's clock, or `None` if the kernel's clock is not the
    /// TSC.
    #[must_use]
    pub fn tsc_conversion(&self) -> Option<TscConversion> {
        /// Bit `cap_user_time_zero` of `capabilities`.
        const CAP_USER_TIME_ZERO: u64 = 1 << 4;
        let lock = self.page.half(offset_of!(perf_event_mmap_page, lock));
        for _ in 0..MAX_ATTEMPTS {
            let before = lock.load(Ordering::Acquire);
            let capabilities = self
                .page
                .word(offset_of!(perf_event_mmap_page, __bindgen_anon_1))
                .load(Ordering::Relaxed);
            let shift = self
                .page
                .quarter(offset_of!(perf_event_mmap_page, time_shift))
                .load(Ordering::Relaxed);
            let mult = self
                .page
                .half(offset_of!(perf_event_mmap_page, time_mult))
                .load(Ordering::Relaxed);
            let zero = self
                .page
                .word(offset_of!(perf_event_mmap_page, time_zero))
                .load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if before & 1 == 0 && lock.load(Ordering::Relaxed) == before {
                return TscConversion::new(shift, mult, zero)
                    .filter(|_| capabilities & CAP_USER_TIME_ZERO != 0);
            }
        }
        None
    }
}

impl Page {
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset + 8 <= PAGE);
        // SAFETY: the offset is that of an aligned 8-byte field of the first page. The page is
        // mapped for reading and writing as long as `self` lives. Every integer is valid.
        unsafe { &*self.0.start().add(offset).cast::<AtomicU64>() }
    }

    fn half(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset.is_multiple_of(4) && offset + 4 <= PAGE);
        // SAFETY: as in `word`, of 4 bytes.
        unsafe { &*self.0.start().add(offset).cast::<AtomicU32>() }
    }

    fn quarter(&self, offset: usize) -> &AtomicU16 {
        debug_assert!(offset.is_multiple_of(2) && offset + 2 <= PAGE);
        // SAFETY: as in `word`, of 2 bytes.
        unsafe { &*self.0.start().add(offset).cast::<AtomicU16>() }
    }
}

impl AuxArea {
    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.mapping.len()
    }

    /// Returns the end position of the last AUX data. In overwrite mode some drivers report it
    /// modulo the size of the area.
    fn head(&self) -> u64 {
        self.page
            .word(offset_of!(perf_event_mmap_page, aux_head))
            .load(Ordering::Acquire)
    }

    /// Copies the content of the area to the start of `buffer`, which must be at least as large.
    /// The event must be disabled; otherwise the kernel continues writing and the end is unknown.
    ///
    /// The amount ever written follows from the bytes, because the kernel provides a zeroed area.
    /// `intel_pt` only reports the position (`pt_event_stop`: the position as head, and the whole
    /// area as size). The bytes after the position are either zero, never written, or the oldest
    /// trace. Zeros are `PAD` packets, so dropping those before the first other byte loses nothing.
    ///
    /// # Errors
    /// Fails if `buffer` is too small.
    pub fn copy(&self, buffer: &mut [u8]) -> Result<AuxCopy, Error> {
        let size = self.size();
        let len = buffer.len();
        linearize(self.head(), size, buffer, |from, to| self.mapping.copy(from, to)).ok_or_else(|| {
            Error::Setting(format!(
                "a buffer of {len} bytes is smaller than the AUX area of {size} bytes"
            ))
        })
    }
}

/// Appends the bytes from `tail` to `head`, both total counts, of a ring of `size` bytes (a power
/// of two) that `copy` reads.
fn copy_ring(
    tail: u64,
    head: u64,
    size: usize,
    records: &mut Vec<u8>,
    mut copy: impl FnMut(usize, &mut [u8]) -> Option<()>,
) -> Result<usize, Error> {
    let wrong = |problem: &str| Error::Invalid {
        what: "ring of records",
        offset: tail,
        problem: problem.to_owned(),
    };
    let len = usize::try_from(head.wrapping_sub(tail))
        .ok()
        .filter(|len| *len <= size)
        .ok_or_else(|| wrong("it has more unread bytes than its size"))?;
    let from = (tail % size as u64) as usize;
    let first = len.min(size - from);
    let start = records.len();
    records.resize(start + len, 0);
    let done = records
        .get_mut(start..)
        .and_then(|new| new.split_at_mut_checked(first))
        .and_then(|(before, after)| {
            copy(from, before)?;
            copy(0, after)
        });
    match done {
        Some(()) => Ok(len),
        None => {
            records.truncate(start);
            Err(wrong("it is smaller than its header says"))
        }
    }
}

/// Puts the bytes of an overwritten area of `size` bytes in order of age: from `head` to the end,
/// then from the start to `head`.
fn linearize(
    head: u64,
    size: usize,
    buffer: &mut [u8],
    mut copy: impl FnMut(usize, &mut [u8]) -> Option<()>,
) -> Option<AuxCopy> {
    let place = (head % size as u64) as usize;
    let (old, new) = buffer.get_mut(..size)?.split_at_mut(size - place);
    copy(place, old)?;
    copy(0, new)?;
    let written = old.iter().position(|byte| *byte != 0);
    // A driver with a free-running head may have filled the area with zeros only, which is no trace
    // either.
    let start = written.unwrap_or(old.len());
    Some(AuxCopy {
        range: start..size,
        wrapped: written.is_some(),
    })
}

/// Returns the records in bytes from [`Ring::take`]. Ends with an error at an invalid record,
/// because the next record cannot be found.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<RawRecord<'_>, Error>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let offset = (bytes.len() - rest.len()) as u64;
        let record = split_record(rest, offset);
        rest = record.as_ref().map_or(&[][..], |(_, after)| after);
        Some(record.map(|(record, _)| record))
    })
}

fn split_record(bytes: &[u8], offset: u64) -> Result<(RawRecord<'_>, &[u8]), Error> {
    const WHAT: &str = "record of a ring";
    let truncated = || Error::Truncated { what: WHAT, offset };
    let (header, _) = bytes.split_first_chunk::<HEADER>().ok_or_else(truncated)?;
    let [a, b, c, d, e, f, g, h] = *header;
    let size = usize::from(u16::from_le_bytes([g, h]));
    if size < HEADER {
        return Err(Error::Invalid {
            what: WHAT,
            offset,
            problem: format!("it has {size} bytes"),
        });
    }
    let (record, rest) = bytes.split_at_checked(size).ok_or_else(truncated)?;
    let raw = RawRecord {
        kind: u32::from_le_bytes([a, b, c, d]),
        misc: u16::from_le_bytes([e, f]),
        body: record.get(HEADER..).unwrap_or_default(),
        offset,
    };
    Ok((raw, rest))
}

#[cfg(test)]
mod tests;
