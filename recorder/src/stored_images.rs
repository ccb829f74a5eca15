//! The files of code without an ELF file. Processes with the same code share one: all have the same
//! vdso.

use crate::error::Result;
use crate::unique_names::UniqueNames;
use backtrail_bundle::{BundlePath, Writer};
use backtrail_pt::{Avma, Pid};
use std::collections::HashMap;

/// Larger code is not kept in memory for a comparison.
const MAX_SHARED: usize = 1 << 20;

/// The paths of code in the bundle.
#[derive(Debug, Default)]
pub(crate) struct StoredImages(HashMap<Vec<u8>, BundlePath>);

impl StoredImages {
    /// Returns the path of a file with this code, and writes it if there is none.
    pub(crate) fn store(
        &mut self,
        writer: &Writer,
        names: &mut UniqueNames,
        pid: Pid,
        start: Avma,
        code: Vec<u8>,
    ) -> Result<BundlePath> {
        if let Some(path) = self.0.get(&code) {
            return Ok(path.clone());
        }
        let path = names.take(&format!("images/{pid}-{start:x}.bin"))?;
        writer.add_bytes(&path, &code)?;
        if code.len() <= MAX_SHARED {
            self.0.insert(code, path.clone());
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_bundle::Overwrite;

    #[test]
    fn equal_code_is_stored_once() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(&folder.path().join("t.bundle"), Overwrite::Never).unwrap();
        let (mut images, mut names) = (StoredImages::default(), UniqueNames::default());
        let mut store = |pid, code: &[u8]| {
            let start = Avma(0x1000);
            let path = images.store(&writer, &mut names, Pid(pid), start, code.to_vec());
            path.unwrap().as_str().to_owned()
        };
        assert_eq!(store(1, &[0xc3]), "images/1-1000.bin");
        assert_eq!(store(2, &[0xc3]), "images/1-1000.bin");
        assert_eq!(store(2, &[0xcc]), "images/2-1000.bin");
        assert_eq!(store(2, &[0xcd]), "images/2-1000.bin.2");
    }
}
