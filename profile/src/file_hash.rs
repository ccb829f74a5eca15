//! The ids of files without a build id.

use backtrail_pt::BuildId;
use sha2::{Digest, Sha256};
use std::io::{Read, Result, Seek, SeekFrom};

/// The bytes at the start and at the end of a file that count.
const PART: u64 = 4096;

/// Returns the id of a file without a build id. It is made of a hash of the first and the last 4096
/// bytes and of the length, OpenTelemetry's `process.executable.build_id.htlhash`.
///
/// Two files with equal ends and equal lengths have the same id.
///
/// # Errors
/// Fails if the file cannot be read.
///
/// # Example
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let mut file = std::io::Cursor::new(b"a static program");
/// let id = backtrail_profile::file_hash_id(&mut file)?;
/// assert!(id.file_hash().is_some());
/// # Ok(())
/// # }
/// ```
pub fn file_hash_id(file: &mut (impl Read + Seek)) -> Result<BuildId> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut digest = Sha256::new();
    for start in [0, length.saturating_sub(PART)] {
        file.seek(SeekFrom::Start(start))?;
        let mut part = Vec::new();
        file.take(PART).read_to_end(&mut part)?;
        digest.update(&part);
    }
    digest.update(length.to_be_bytes());
    let digest: [u8; 32] = digest.finalize().into();
    let (hash, _) = digest.split_at(16);
    Ok(BuildId::of_file_hash(hash.try_into().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn text(bytes: &[u8]) -> String {
        let id = file_hash_id(&mut Cursor::new(bytes)).unwrap();
        let hash = id.file_hash().unwrap();
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// `(head -c 4096 FILE; tail -c 4096 FILE; printf …) | sha256sum` prints the same digits.
    #[test]
    fn id_is_the_truncated_hash_of_both_ends_and_the_length() {
        let long: Vec<u8> = (0..10_000_u32).map(|number| (number % 251) as u8).collect();
        assert_eq!(text(&long), "29e3194e821b97b5565d43a5156ad97a");
        assert_eq!(text(b"abc"), "a7e79e8a85da69bad5c3fea209342ac9");
        assert_eq!(text(b""), "af5570f5a1810b7af78caf4bc70a660f");
        let mut other = long.clone();
        other[5000] ^= 1;
        assert_eq!(text(&other), text(&long));
        other.push(0);
        assert_ne!(text(&other), text(&long));
    }
}
