//! Starts the program to record. The child waits until it is traced, then executes the program.
#![allow(unsafe_code)]

use crate::descriptors::{self, Limit};
use crate::error::{Error, Result};
use crate::ptrace::{self, RawTid};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;

/// `personality(2)`: disables address space layout randomization.
const ADDR_NO_RANDOMIZE: libc::c_ulong = 0x004_0000;

/// A traced child process that has not executed the program yet.
pub(crate) struct Spawned {
    pub(crate) pid: RawTid,
    program: PathBuf,
    /// Receives the error number if `execvp` fails; a successful exec closes it.
    failure: File,
}

impl Spawned {
    /// Returns the reason that the child exited without `exec`.
    pub(crate) fn failure(mut self) -> Error {
        let mut code = [0; 4];
        let source = match self.failure.read_exact(&mut code) {
            Ok(()) => io::Error::from_raw_os_error(i32::from_ne_bytes(code)),
            Err(_) => io::Error::other("it was killed before it started"),
        };
        Error::Spawn {
            program: self.program,
            source,
        }
    }
}

/// Forks and seizes the child with `options`. The child then sets its descriptor limit and executes
/// `command`. The first event to expect is `PTRACE_EVENT_EXEC`.
pub(crate) fn spawn(
    command: &[OsString],
    randomize: bool,
    limit: Option<Limit>,
    options: libc::c_int,
) -> Result<Spawned> {
    let program = PathBuf::from(command.first().ok_or(Error::NoCommand)?);
    let spawn_error = |source| Error::Spawn {
        program: program.clone(),
        source,
    };
    let arguments: Vec<CString> = command
        .iter()
        .map(|word| CString::new(word.as_bytes()))
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| spawn_error(io::Error::from(io::ErrorKind::InvalidInput)))?;
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|word| word.as_ptr()).collect();
    pointers.push(ptr::null());
    let (go_reader, go_writer) = pipe().map_err(spawn_error)?;
    let (failure_reader, failure_writer) = pipe().map_err(spawn_error)?;
    // SAFETY: between fork and exec the child calls only async-signal-safe functions (execvp is one
    // in glibc and musl), and uses only memory prepared above.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: as above; `pointers` ends with a null pointer.
        unsafe {
            become_program(
                &pointers,
                [go_reader.as_raw_fd(), go_writer.as_raw_fd()],
                failure_writer.as_raw_fd(),
                randomize,
                limit.as_ref(),
            )
        };
    }
    if pid < 0 {
        return Err(spawn_error(io::Error::last_os_error()));
    }
    drop((go_reader, failure_writer));
    if let Err(error) = ptrace::seize(pid, options) {
        ptrace::kill(pid);
        // SAFETY: no status pointer is passed.
        unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        return Err(error);
    }
    // If the child has already ended, the next wait reports it.
    let _ = File::from(go_writer).write_all(&[1]);
    Ok(Spawned {
        pid,
        program,
        failure: File::from(failure_reader),
    })
}

/// Runs in the child: waits for the tracer, then executes the program.
///
/// # Safety
/// Must be called in the child of a fork. `arguments` are C strings, followed by a null pointer.
unsafe fn become_program(
    arguments: &[*const libc::c_char],
    go: [i32; 2],
    failure: i32,
    randomize: bool,
    limit: Option<&Limit>,
) -> ! {
    // SAFETY: system calls on local variables.
    unsafe {
        let [go, go_writer] = go;
        // The read also returns when the recorder ends, because only the recorder holds the other
        // end.
        libc::close(go_writer);
        let mut byte = 0u8;
        if libc::read(go, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(127);
        }
        if !randomize {
            let old = libc::personality(0xffff_ffff);
            if old >= 0 {
                libc::personality(old as libc::c_ulong | ADDR_NO_RANDOMIZE);
            }
        }
        if let Some(limit) = limit {
            descriptors::set_limit(limit);
        }
        // The Rust runtime ignores SIGPIPE. The program starts with the default action.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if let Some(first) = arguments.first() {
            libc::execvp(*first, arguments.as_ptr());
        }
        let code = *libc::__errno_location();
        libc::write(failure, (&raw const code).cast(), 4);
        libc::_exit(127)
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors, which this process owns.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}
