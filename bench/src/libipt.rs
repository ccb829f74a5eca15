//! The fastest use of libipt: code in an image section cache, and only counting.

use crate::Failure;
use crate::code::{self, CodeRange};
use backtrail_decoder::Config;
use backtrail_oracle as oracle;
use libipt_sys as sys;
use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::time::Instant;
use tempfile::TempDir;

/// The limit of mapped code, more than any measured process has.
const CACHE_LIMIT: u64 = 4 << 30;

/// The results of decoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Instructions.
    pub instructions: u64,
    /// The number of calls that returned instructions.
    pub blocks: u64,
    /// The number of errors. Each ended the flow until the next PSB.
    pub errors: u64,
    /// The decoder's final offset in the trace.
    pub offset: u64,
}

/// An image section cache with all code of a process.
pub struct Cache {
    raw: NonNull<sys::pt_image_section_cache>,
    sections: Vec<c_int>,
    _folder: TempDir,
}

impl Cache {
    /// Writes the code to files, and adds them to the cache.
    pub fn new(ranges: &[CodeRange]) -> Result<Self, Failure> {
        let (folder, files) =
            code::write(ranges).map_err(|error| format!("cannot write code to files: {error}"))?;
        // SAFETY: a null name is allowed.
        let raw = NonNull::new(unsafe { sys::pt_iscache_alloc(ptr::null()) }).ok_or("no memory")?;
        let mut cache = Self {
            raw,
            sections: Vec::new(),
            _folder: folder,
        };
        // SAFETY: the cache is valid.
        checked(unsafe { sys::pt_iscache_set_limit(cache.raw.as_ptr(), CACHE_LIMIT) })?;
        for (range, path) in ranges.iter().zip(&files) {
            cache.add(path, range)?;
        }
        Ok(cache)
    }

    fn add(&mut self, path: &Path, range: &CodeRange) -> Result<(), Failure> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        let size = range.bytes.len() as u64;
        // SAFETY: the cache and the string are valid; the string is copied.
        let section =
            unsafe { sys::pt_iscache_add_file(self.raw.as_ptr(), path.as_ptr(), 0, size, range.start) };
        self.sections.push(checked(section)?);
        Ok(())
    }

    /// Adds all sections to a decoder's image.
    fn fill(&self, image: *mut sys::pt_image) -> Result<(), Failure> {
        for &section in &self.sections {
            // SAFETY: image and cache are valid; no address space means all.
            checked(unsafe { sys::pt_image_add_cached(image, self.raw.as_ptr(), section, ptr::null()) })?;
        }
        Ok(())
    }

    /// Decodes by `pt_insn` until the end or the given time.
    pub fn insn(&self, trace: &[u8], config: &Config, until: Option<Instant>) -> Result<Count, Failure> {
        let mut decoder = Insn::new(trace, config)?;
        // SAFETY: the decoder is valid.
        self.fill(unsafe { sys::pt_insn_get_image(decoder.raw.as_ptr()) })?;
        Ok(count(&mut decoder, trace.len(), until))
    }

    /// Decodes by `pt_blk`.
    pub fn blk(&self, trace: &[u8], config: &Config) -> Result<Count, Failure> {
        let mut decoder = Blk::new(trace, config)?;
        // SAFETY: the decoder is valid.
        self.fill(unsafe { sys::pt_blk_get_image(decoder.raw.as_ptr()) })?;
        Ok(count(&mut decoder, trace.len(), None))
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // SAFETY: the cache is valid and not used again; images keep what they use of it.
        unsafe { sys::pt_iscache_free(self.raw.as_ptr()) }
    }
}

/// The common operations of libipt's decoders. They return a status, or a negative error.
trait Decoder {
    fn sync_forward(&mut self) -> c_int;
    fn event(&mut self) -> c_int;
    /// Returns the number of decoded instructions, and the status.
    fn next(&mut self) -> (u16, c_int);
    fn offset(&self) -> u64;
}

/// The number of calls between two checks of the time.
const LOOK_EVERY: u64 = 1 << 16;

/// Decodes a trace of `len` bytes as libipt's manual describes.
fn count<D: Decoder>(decoder: &mut D, len: usize, until: Option<Instant>) -> Count {
    let len = len as u64;
    let mut count = Count::default();
    let pending = sys::pt_status_flag_pts_event_pending as c_int;
    let end_of_trace = -(sys::pt_error_code_pte_eos as c_int);
    loop {
        let mut status = decoder.sync_forward();
        if status == end_of_trace {
            count.offset = count.offset.max(decoder.offset());
            return count;
        }
        while status >= 0 {
            while status >= 0 && status & pending != 0 {
                status = decoder.event();
            }
            if status < 0 {
                break;
            }
            let (instructions, next) = decoder.next();
            status = next;
            count.instructions += u64::from(instructions);
            count.blocks += u64::from(instructions != 0);
            if count.blocks.is_multiple_of(LOOK_EVERY) && until.is_some_and(|until| Instant::now() >= until) {
                count.offset = decoder.offset();
                return count;
            }
        }
        // At the very end, `pt_blk` reports a missing branch (`pte_bad_query`), not the end of the
        // trace.
        count.errors += u64::from(status != end_of_trace && decoder.offset() < len);
    }
}

/// `struct pt_insn_decoder`.
struct Insn<'a> {
    raw: NonNull<sys::pt_insn_decoder>,
    out: sys::pt_insn,
    event: sys::pt_event,
    _trace: &'a [u8],
}

impl<'a> Insn<'a> {
    fn new(trace: &'a [u8], config: &Config) -> Result<Self, Failure> {
        let config = configuration(trace, config)?;
        // SAFETY: the configuration is complete, and its trace lives as long as the decoder.
        let raw = unsafe { sys::pt_insn_alloc_decoder(&raw const config) };
        Ok(Self {
            raw: NonNull::new(raw).ok_or("libipt refuses the configuration")?,
            // SAFETY: a C struct of numbers: all zeros is a value of it.
            out: unsafe { std::mem::zeroed() },
            // SAFETY: as above.
            event: unsafe { std::mem::zeroed() },
            _trace: trace,
        })
    }
}

impl Decoder for Insn<'_> {
    fn sync_forward(&mut self) -> c_int {
        // SAFETY: the decoder is valid.
        unsafe { sys::pt_insn_sync_forward(self.raw.as_ptr()) }
    }

    fn event(&mut self) -> c_int {
        // SAFETY: both pointers are valid, and the size is the struct's.
        unsafe { sys::pt_insn_event(self.raw.as_ptr(), &raw mut self.event, size_of::<sys::pt_event>()) }
    }

    fn next(&mut self) -> (u16, c_int) {
        self.out.iclass = sys::pt_insn_class_ptic_error;
        // SAFETY: both pointers are valid, and the size is the struct's.
        let status =
            unsafe { sys::pt_insn_next(self.raw.as_ptr(), &raw mut self.out, size_of::<sys::pt_insn>()) };
        (
            u16::from(self.out.iclass != sys::pt_insn_class_ptic_error),
            status,
        )
    }

    fn offset(&self) -> u64 {
        let mut offset = 0;
        // SAFETY: both pointers are valid; without a position, the offset stays 0.
        let _ = unsafe { sys::pt_insn_get_offset(self.raw.as_ptr(), &raw mut offset) };
        offset
    }
}

impl Drop for Insn<'_> {
    fn drop(&mut self) {
        // SAFETY: the decoder is valid and not used again.
        unsafe { sys::pt_insn_free_decoder(self.raw.as_ptr()) }
    }
}

/// `struct pt_block_decoder`.
struct Blk<'a> {
    raw: NonNull<sys::pt_block_decoder>,
    out: sys::pt_block,
    event: sys::pt_event,
    _trace: &'a [u8],
}

impl<'a> Blk<'a> {
    fn new(trace: &'a [u8], config: &Config) -> Result<Self, Failure> {
        let config = configuration(trace, config)?;
        // SAFETY: the configuration is complete, and its trace lives as long as the decoder.
        let raw = unsafe { sys::pt_blk_alloc_decoder(&raw const config) };
        Ok(Self {
            raw: NonNull::new(raw).ok_or("libipt refuses the configuration")?,
            // SAFETY: a C struct of numbers: all zeros is a value of it.
            out: unsafe { std::mem::zeroed() },
            // SAFETY: as above.
            event: unsafe { std::mem::zeroed() },
            _trace: trace,
        })
    }
}

impl Decoder for Blk<'_> {
    fn sync_forward(&mut self) -> c_int {
        // SAFETY: the decoder is valid.
        unsafe { sys::pt_blk_sync_forward(self.raw.as_ptr()) }
    }

    fn event(&mut self) -> c_int {
        // SAFETY: both pointers are valid, and the size is the struct's.
        unsafe { sys::pt_blk_event(self.raw.as_ptr(), &raw mut self.event, size_of::<sys::pt_event>()) }
    }

    fn next(&mut self) -> (u16, c_int) {
        self.out.ninsn = 0;
        // SAFETY: both pointers are valid, and the size is the struct's.
        let status =
            unsafe { sys::pt_blk_next(self.raw.as_ptr(), &raw mut self.out, size_of::<sys::pt_block>()) };
        (self.out.ninsn, status)
    }

    fn offset(&self) -> u64 {
        let mut offset = 0;
        // SAFETY: both pointers are valid; without a position, the offset stays 0.
        let _ = unsafe { sys::pt_blk_get_offset(self.raw.as_ptr(), &raw mut offset) };
        offset
    }
}

impl Drop for Blk<'_> {
    fn drop(&mut self) {
        // SAFETY: the decoder is valid and not used again.
        unsafe { sys::pt_blk_free_decoder(self.raw.as_ptr()) }
    }
}

/// Returns the configuration that our own libipt engine uses, without flags, which is the fastest.
fn configuration(trace: &[u8], config: &Config) -> Result<sys::pt_config, Failure> {
    oracle::configuration(trace, config)
        .ok_or_else(|| "libipt does not support this configuration".to_owned())
}

fn checked(status: c_int) -> Result<c_int, Failure> {
    if status >= 0 {
        return Ok(status);
    }
    // SAFETY: the function accepts any code, and returns a static C string or null.
    let text = unsafe { sys::pt_errstr(status.unsigned_abs() as sys::pt_error_code) };
    if text.is_null() {
        return Err(format!("libipt error {status}"));
    }
    // SAFETY: not null, so a static C string.
    Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
