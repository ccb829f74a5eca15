//! The archive that a kernel unpacks into memory as its first file system: cpio, format `newc`.
//!
//! Source: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.

use std::collections::BTreeSet;

/// Kinds of files in the field `c_mode` (`stat(2)`).
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const LINK: u32 = 0o120_000;

/// An archive being written.
pub struct Archive {
    bytes: Vec<u8>,
    inodes: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    pub fn new() -> Self {
        Self {
            bytes: Vec::new(),
            inodes: 0,
            folders: BTreeSet::new(),
        }
    }

    /// A folder, and those that it is in; paths have no slash at the beginning.
    pub fn folder(&mut self, path: &str) {
        if path.is_empty() || !self.folders.insert(path.to_owned()) {
            return;
        }
        self.above(path);
        self.entry(path, FOLDER | 0o755, (0, 0), &[]);
    }

    /// A file that everyone may read and run.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.above(path);
        self.entry(path, FILE | 0o755, (0, 0), content);
    }

    /// Adds a file that is readable by everyone and not executable.
    pub fn text(&mut self, path: &str, content: &[u8]) {
        self.above(path);
        self.entry(path, FILE | 0o644, (0, 0), content);
    }

    /// A symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.above(path);
        self.entry(path, LINK | 0o777, (0, 0), target.as_bytes());
    }

    /// Adds a character device. The first process writes to `dev/console` before anything is
    /// mounted.
    pub fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.above(path);
        self.entry(path, CHARACTER_DEVICE | 0o600, (major, minor), &[]);
    }

    /// The archive's bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn above(&mut self, path: &str) {
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.inodes += 1;
        let name = path.len() as u32 + 1;
        // Inode, mode, owner, group, links, time, size, file's device (2), device (2), name, sum.
        let size = content.len() as u32;
        let fields = [
            self.inodes,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            device.0,
            device.1,
            name,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_precede_their_contents_and_occur_once() {
        let mut archive = Archive::new();
        archive.file("a/b/one", b"1");
        archive.file("a/b/two", b"22");
        archive.device("dev/console", 5, 1);
        archive.link("lib", "a/b");
        archive.text("note", b"333");
        let bytes = archive.finish();
        assert_eq!(
            names(&bytes),
            [
                "a",
                "a/b",
                "a/b/one",
                "a/b/two",
                "dev",
                "dev/console",
                "lib",
                "note",
                "TRAILER!!!"
            ]
        );
        assert_eq!(bytes.len() % 4, 0);
    }

    /// Reads the archive as the kernel does: by the sizes in its headers.
    fn names(bytes: &[u8]) -> Vec<String> {
        let mut names = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |index: usize| {
                let from = at + 6 + index * 8;
                let text = std::str::from_utf8(&bytes[from..from + 8]).unwrap();
                usize::from_str_radix(text, 16).unwrap()
            };
            let (size, name) = (field(6), field(11));
            let begin = at + 110;
            names.push(String::from_utf8(bytes[begin..begin + name - 1].to_vec()).unwrap());
            at = (begin + name).next_multiple_of(4) + size.next_multiple_of(4);
        }
        names
    }
}
