//! What tells a trace from all others, wherever its copies lie.

use super::Session;
use backtrail_bundle::{Bundle, BundlePath};

/// So many bytes of each buffer count: the last ones, which the crash wrote.
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
    /// The same for every copy of this trace, packed or not, and another for any other: 16 hexadecimal digits out of its threads,
    /// the ends of its buffers, its crash, and the registers in its core.
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
