//! A check of the extension's package: it has the binary, which can be executed.
//!
//! The package is a ZIP file. Its central directory lists the files (PKWARE's APPNOTE, 4.3.12).

use crate::Failure;

/// The paths of the binary and of the licenses of what is linked into it.
const REQUIRED: [(&str, u32); 2] = [
    ("extension/bin/backtrail", 0o111),
    ("extension/bin/THIRD-PARTY.txt", 0),
];
/// The start of each entry of the central directory.
const SIGNATURE: [u8; 4] = *b"PK\x01\x02";
/// The size of an entry without its name, extra field and comment.
const ENTRY: usize = 46;

/// Fails if a required file is missing, or lacks permissions.
pub fn check(package: &[u8]) -> Result<(), Failure> {
    let files = files(package);
    for (path, mode) in REQUIRED {
        match files.iter().find(|(name, _)| name == path) {
            None => return Err(format!("the extension has no {path}")),
            Some((_, found)) if found & mode != mode => {
                return Err(format!("{path} of the extension cannot be executed"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Returns the names and Unix permissions in the central directory.
fn files(package: &[u8]) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    let half = |at: usize| Some(u16::from_le_bytes(package.get(at..at + 2)?.try_into().ok()?));
    let starts = (0..package.len()).filter(|&at| package[at..].starts_with(&SIGNATURE));
    for at in starts {
        let (Some(length), Some(mode)) = (half(at + 28), half(at + 40)) else {
            continue;
        };
        let name = package.get(at + ENTRY..at + ENTRY + usize::from(length));
        if let Some(name) = name.and_then(|name| std::str::from_utf8(name).ok()) {
            found.push((name.to_owned(), mode.into()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, mode: u16) -> Vec<u8> {
        let mut entry = vec![0; ENTRY];
        entry[..4].copy_from_slice(&SIGNATURE);
        entry[28..30].copy_from_slice(&(name.len() as u16).to_le_bytes());
        entry[40..42].copy_from_slice(&mode.to_le_bytes());
        entry.extend(name.bytes());
        entry
    }

    #[test]
    fn missing_or_inexecutable_binary_is_found() {
        let [(binary, _), (notices, _)] = REQUIRED;
        let good = [entry(binary, 0o100_755), entry(notices, 0o100_644)].concat();
        assert_eq!(check(&good), Ok(()));
        let bad = [entry(binary, 0o100_644), entry(notices, 0o100_644)].concat();
        assert!(check(&bad).unwrap_err().contains("executed"));
        assert!(
            check(&entry(binary, 0o100_755))
                .unwrap_err()
                .contains("THIRD-PARTY")
        );
        assert!(check(b"").is_err());
    }
}
