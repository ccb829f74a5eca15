//! What would have become of the core without us: it goes to the handler that stood in `core_pattern`, or into the
//! file that it named.

use super::Taken;
use crate::error::{Error, Result};
use crate::pattern::{Specifiers, expand};
use nix::fcntl::OFlag;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::process::{Command, Stdio};

/// Passes the core on, what was taken of it first.
pub(super) fn pass_on(previous: &str, crash: &Specifiers, taken: Taken) -> Result<()> {
    let words = expand(previous, crash);
    let Some((first, rest)) = words.split_first().filter(|(first, _)| !first.is_empty()) else {
        return Ok(());
    };
    if previous.starts_with('|') {
        return run(first, rest, taken);
    }
    if previous.starts_with('@') {
        // A socket of somebody else: only the kernel can connect there and say who it is.
        return Ok(());
    }
    // The kernel writes no file at a limit of 0, nor of a process that is not to be dumped.
    if crash.limit == 0 || crash.dumpable != 1 {
        return Ok(());
    }
    write_file(first, crash, taken)
}

/// The core as the kernel sends it.
fn core(taken: Taken) -> io::Result<impl Read> {
    let first: Box<dyn Read> = match taken.file {
        Some(mut file) => {
            file.seek(SeekFrom::Start(0))?;
            Box::new(file.take(taken.bytes))
        }
        None => Box::new(io::empty()),
    };
    Ok(first.chain(io::stdin().lock()))
}

fn run(program: &str, arguments: &[String], taken: Taken) -> Result<()> {
    let run = || -> io::Result<()> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            match io::copy(&mut core(taken)?, &mut input) {
                // It has seen enough.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
                _ => {}
            }
        }
        child.wait().map(drop)
    };
    run().map_err(Error::file("pass the core on to", program.as_ref()))
}

/// Writes a core file as the kernel would: as the process's user, where the process sees its working or root
/// directory, through no link, into nobody else's file.
fn write_file(name: &str, crash: &Specifiers, taken: Taken) -> Result<()> {
    let write = || -> io::Result<()> {
        let mut name = name.to_owned();
        let uses_pid = std::fs::read_to_string("/proc/sys/kernel/core_uses_pid").unwrap_or_default();
        if uses_pid.trim() == "1" && !name.ends_with(&format!(".{}", crash.inner_pid)) {
            name = format!("{name}.{}", crash.inner_pid);
        }
        let place = if name.starts_with('/') { "root" } else { "cwd" };
        let path = format!("/proc/{}/{place}/{name}", crash.pid);
        // Looked up as root, since the process may be in a place that only it may enter.
        let directory = std::path::Path::new(&path).parent().map(File::open).transpose()?;
        let (Some(directory), Some(file)) = (directory, std::path::Path::new(&path).file_name()) else {
            return Ok(());
        };
        setfsgid(Gid::from_raw(crash.gid));
        setfsuid(Uid::from_raw(crash.uid));
        let inside = format!(
            "/proc/self/fd/{}/{}",
            std::os::fd::AsRawFd::as_raw_fd(&directory),
            file.to_string_lossy()
        );
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(inside)?;
        let found = file.metadata()?;
        if !found.is_file() || found.nlink() != 1 || found.uid() != crash.uid {
            return Ok(());
        }
        file.set_len(0)?;
        copy_sparse(core(taken)?.take(crash.limit), file)
    };
    write().map_err(Error::file("write the core file", name.as_ref()))
}

/// Copies, and leaves holes for pages of zeros.
fn copy_sparse(mut from: impl Read, mut to: File) -> io::Result<()> {
    const PAGE: usize = 4096;
    let mut buffer = vec![0; 64 * PAGE];
    let mut len = 0;
    loop {
        let mut filled = 0;
        while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
            match from.read(room)? {
                0 => break,
                got => filled += got,
            }
        }
        if filled == 0 {
            return to.set_len(len);
        }
        for page in buffer.get(..filled).unwrap_or_default().chunks(PAGE) {
            if page.iter().all(|byte| *byte == 0) {
                to.seek_relative(page.len() as i64)?;
            } else {
                to.write_all(page)?;
            }
            len += page.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_copy_is_a_copy() {
        let mut bytes = vec![0; 4096 * 70];
        bytes[4096 * 3 + 5] = 7;
        bytes.extend([1, 2, 3]);
        bytes.extend([0; 5000]);
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("core");
        copy_sparse(&bytes[..], File::create(&path).unwrap()).unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes);
    }
}
