//! Operations on files that differ between operating systems.
//!
//! Linux and macOS share [`unix`]. The functions of `windows` have the same names and results.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::FileIdentity;
#[cfg(unix)]
pub(crate) use unix::{
    identity, is_own, lock_directory, make_private, next_data, open_lock, read_at, sync_directory, sync_file,
    write_all_at,
};
#[cfg(windows)]
pub use windows::FileIdentity;
#[cfg(windows)]
pub(crate) use windows::{
    identity, is_own, lock_directory, make_private, next_data, open_lock, read_at, sync_directory, sync_file,
    write_all_at,
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn identity_follows_the_file_and_its_contents() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a"), "one").unwrap();
        fs::write(at("b"), "one").unwrap();
        let first = identity(&at("a")).unwrap();
        assert_eq!(first, identity(&at("a")).unwrap());
        assert_eq!(first, identity(&directory.path().join(".").join("a")).unwrap());
        assert_ne!(first, identity(&at("b")).unwrap());
        fs::write(at("a"), "longer").unwrap();
        assert_ne!(first, identity(&at("a")).unwrap());
        assert!(identity(&at("none")).is_err());
    }
}
