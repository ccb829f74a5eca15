//! The identity of a trace, which all of its copies share.

use super::Session;
use backtrail_bundle::{Bundle, BundlePath};

/// The number of bytes at the end of each buffer that are hashed. The crash wrote them.
const LAST: usize = 1 << 16;

/// FNV-1a, 64 bits.
struct Digest(u64);

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn add_number(&mut self, number: u64) {
        self.add(&number.to_le_bytes());
    }

    /// A buffer of a trace: its size and its last bytes.
    fn add_buffer(&mut self, bundle: &Bundle, path: &BundlePath) {
        if let Ok(bytes) = bundle.bytes(path) {
            let last = bytes.len().saturating_sub(LAST);
            self.add_number(bytes.len() as u64);
            self.add(bytes.get(last..).unwrap_or_default());
        }
    }
}

impl Session {
    /// Returns 16 hexadecimal digits that are the same for every copy of this trace, packed or not.
    ///
    /// They are a hash of the threads, the ends of the buffers, the crash, and the registers in the
    /// core.
    #[must_use]
    pub fn id(&self) -> String {
        let mut digest = Digest(0xcbf2_9ce4_8422_2325);
        for thread in self.threads() {
            digest.add_number(u64::from(thread.tid.0));
            if let Some(registers) = self.end_registers(thread.tid) {
                digest.add_number(registers.pc().0);
            }
        }
        if let Some(crash) = &self.crash {
            digest.add_number(crash.pc.0);
            digest.add_number(crash.signal.unsigned_abs().into());
        }
        if let Some(bundle) = &self.bundle {
            let manifest = bundle.manifest();
            digest.add_number(manifest.meta.created_at.unwrap_or(0));
            let of_threads = manifest.processes.iter().flat_map(|process| &process.threads);
            let of_threads = of_threads.filter_map(|thread| thread.trace.as_ref());
            for path in of_threads.chain(manifest.cpus.iter().map(|cpu| &cpu.trace)) {
                digest.add_buffer(bundle, path);
            }
        }
        format!("{:016x}", digest.0)
    }
}
