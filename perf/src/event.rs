//! An open event: `perf_event_open(2)` and its ioctls, with what a refusal means.

use crate::Error;
use crate::attr::Attr;
use backtrail_pt::{Cpu, Tid};
use perf_event_open_sys as calls;
use perf_event_open_sys::bindings as sys;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// An open event. Dropped, it is closed, and counts and traces no longer.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
}

/// Whose doings an event is about.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// Of everyone.
    Everyone,
    /// Of a thread.
    Thread(Tid),
    /// Of the processes in a control group, given as its open directory (version 1: of the `perf_event` controller).
    Cgroup(BorrowedFd<'a>),
}

/// What the kernel's refusal to open an event means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `EACCES`, `EPERM`.
    NotAllowed,
    /// `EBUSY`: somebody else uses the PMU.
    Busy,
    /// `ENODEV`, `ENXIO`: the processor is off.
    CpuOff,
    /// `ENOENT`: there is no such PMU or event.
    NoEvent,
    /// `EOPNOTSUPP`: the PMU cannot do this.
    Unsupported,
    /// `ESRCH`: the thread has ended.
    NoThread,
    /// `EMFILE`, `ENFILE`: too many files are open.
    TooManyFiles,
    /// `EINVAL`, `E2BIG`: the kernel does not know a part of the attributes.
    Unknown,
    /// `ENOMEM`.
    NoMemory,
    /// Any other.
    Other,
}

impl Refusal {
    fn of(errno: i32) -> Self {
        match errno {
            libc::EACCES | libc::EPERM => Self::NotAllowed,
            libc::EBUSY => Self::Busy,
            libc::ENODEV | libc::ENXIO => Self::CpuOff,
            libc::ENOENT => Self::NoEvent,
            libc::EOPNOTSUPP => Self::Unsupported,
            libc::ESRCH => Self::NoThread,
            libc::EMFILE | libc::ENFILE => Self::TooManyFiles,
            libc::EINVAL | libc::E2BIG => Self::Unknown,
            libc::ENOMEM => Self::NoMemory,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAllowed => {
                "it is not allowed: run as root, give CAP_PERFMON, or `sysctl kernel.perf_event_paranoid=-1`"
            }
            Self::Busy => "somebody else uses it: end other traces (perf, gdb, a hypervisor) and try again",
            Self::CpuOff => "the processor is off",
            Self::NoEvent => "the kernel has no such event",
            Self::Unsupported => "the processor or this kernel cannot do it",
            Self::NoThread => "the thread has ended",
            Self::TooManyFiles => "too many files are open: raise the limit (`ulimit -n`)",
            Self::Unknown => "this kernel does not know a part of it",
            Self::NoMemory => "there is no memory for it",
            Self::Other => "the kernel refuses",
        })
    }
}

impl Event {
    /// Opens an event, `what` naming it in errors; `cpu` `None`: on any processor, which only an event of a thread may.
    ///
    /// # Errors
    /// [`Error::Open`], with what the refusal means.
    pub fn open(
        what: &str,
        attr: &Attr,
        target: Target<'_>,
        cpu: Option<Cpu>,
        leader: Option<&Self>,
    ) -> Result<Self, Error> {
        let mut attributes = attr.0;
        let (pid, flags) = match target {
            Target::Everyone => (-1, 0),
            Target::Thread(tid) => (tid.0 as i32, 0),
            Target::Cgroup(fd) => (fd.as_raw_fd(), sys::PERF_FLAG_PID_CGROUP),
        };
        let cpu = cpu.map_or(-1, |cpu| cpu.0 as i32);
        let group = leader.map_or(-1, |leader| leader.fd.as_raw_fd());
        // SAFETY: `attributes` lives through the call and says its own size; the call only reads it, and at most
        // writes the size it knows back into it.
        let fd = unsafe {
            calls::perf_event_open(
                &mut attributes,
                pid,
                cpu,
                group,
                (flags | sys::PERF_FLAG_FD_CLOEXEC).into(),
            )
        };
        if fd < 0 {
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(Error::Open {
                what: what.to_owned(),
                refusal: Refusal::of(errno),
                errno,
            });
        }
        // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Starts it, children that inherited it too.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enable(&self) -> Result<(), Error> {
        // SAFETY: the descriptor is that of an event, and the call takes a number.
        self.check("enabling an event", unsafe {
            calls::ioctls::ENABLE(self.raw(), 0)
        })
    }

    /// Stops it, children that inherited it too. When this returns, what it wrote is visible.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn disable(&self) -> Result<(), Error> {
        // SAFETY: the descriptor is that of an event, and the call takes a number.
        self.check("disabling an event", unsafe {
            calls::ioctls::DISABLE(self.raw(), 0)
        })
    }

    /// Sets its count to 0, and has the kernel write the parameters of its clock anew to its ring's first page
    /// (`_perf_event_reset`, `perf_event_update_userpage`): it does so by itself only when the ring is mapped.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn reset(&self) -> Result<(), Error> {
        // SAFETY: the descriptor is that of an event, and the call takes a number.
        self.check("resetting an event", unsafe {
            calls::ioctls::RESET(self.raw(), 0)
        })
    }

    /// Sets how many occurrences (nanoseconds, of a timer) make one overflow.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_period(&self, period: u64) -> Result<(), Error> {
        // The bindings take the argument as a number; the kernel takes it as the place of one.
        let place = std::ptr::from_ref(&period) as u64;
        // SAFETY: the call reads the number at the place, which lives through it.
        let answer = unsafe { calls::ioctls::PERIOD(self.raw(), place) };
        self.check("setting the period of an event", answer)
    }

    /// Has its records written to the ring of `other`.
    ///
    /// # Errors
    /// When the two are of different processors or clocks.
    pub fn set_output(&self, other: &Self) -> Result<(), Error> {
        // SAFETY: both descriptors are those of events; the call takes a number.
        let answer = unsafe { calls::ioctls::SET_OUTPUT(self.raw(), other.raw()) };
        self.check("sharing the ring of an event", answer)
    }

    /// Sets a filter: of a tracepoint on its fields, of an AUX event on addresses.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn set_filter(&self, filter: &str) -> Result<(), Error> {
        let what = || format!("setting the filter {filter:?}");
        let Ok(text) = CString::new(filter) else {
            return Err(Error::Setting(format!("{}: it has a NUL in it", what())));
        };
        // SAFETY: the text ends with a NUL and lives through the call, which only reads it.
        let answer = unsafe { calls::ioctls::SET_FILTER(self.raw(), text.as_ptr().cast_mut()) };
        self.check(&what(), answer)
    }

    /// The id that its records end with.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn id(&self) -> Result<u64, Error> {
        let mut id = 0u64;
        // SAFETY: the call writes a number to the pointer, which is one.
        let answer = unsafe { calls::ioctls::ID(self.raw(), &mut id) };
        self.check("asking the id of an event", answer)?;
        Ok(id)
    }

    /// How often it occurred (nanoseconds, of a timer).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn count(&self) -> Result<u64, Error> {
        // `PERF_FORMAT_ID`: the count, then the id.
        let mut words = [0u64; 2];
        let size = size_of_val(&words);
        // SAFETY: the call writes at most `size` bytes to `words`, which has as many.
        let read = unsafe { libc::read(self.raw(), words.as_mut_ptr().cast(), size) };
        self.check("reading the count of an event", if read < 0 { -1 } else { 0 })?;
        Ok(words[0])
    }

    fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn check(&self, call: &str, answer: i32) -> Result<(), Error> {
        if answer >= 0 {
            return Ok(());
        }
        Err(Error::Call {
            call: call.to_owned(),
            errno: io::Error::last_os_error().raw_os_error().unwrap_or(0),
            hint: "",
        })
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
