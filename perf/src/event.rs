//! Open events: `perf_event_open(2)` and its ioctls, with explanations of errors.

use crate::Error;
use crate::attr::Attr;
pub use crate::refusal::Refusal;
use backtrail_pt::{Cpu, Tid};
use perf_event_open_sys as calls;
use perf_event_open_sys::bindings as sys;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// An open event. Dropping it closes it, which ends counting and tracing.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
}

/// The threads that an event observes.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// All threads.
    Everyone,
    /// One thread.
    Thread(Tid),
    /// The processes in a control group, given as its open directory (version 1: of the
    /// `perf_event` controller).
    Cgroup(BorrowedFd<'a>),
}

impl Event {
    /// Opens an event, which `what` names in errors. Only the event of a thread may have no `cpu`,
    /// which means any processor.
    ///
    /// # Errors
    /// [`Error::Open`], with the meaning of the error.
    pub fn open(
        what: &str,
        attr: &Attr,
        target: Target<'_>,
        cpu: Option<Cpu>,
        leader: Option<&Self>,
    ) -> Result<Self, Error> {
        let mut attributes = attr.raw;
        let (pid, flags) = match target {
            Target::Everyone => (-1, 0),
            Target::Thread(tid) => (tid.0 as i32, 0),
            Target::Cgroup(fd) => (fd.as_raw_fd(), sys::PERF_FLAG_PID_CGROUP),
        };
        let cpu = cpu.map_or(-1, |cpu| cpu.0 as i32);
        let group = leader.map_or(-1, |leader| leader.fd.as_raw_fd());
        // SAFETY: `attributes` lives through the call and contains its own size. The call reads it,
        // and may write the supported size to it.
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
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Enables the event, including inherited events of children.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn enable(&self) -> Result<(), Error> {
        // SAFETY: this is the descriptor of an event, and the call takes a number.
        self.check("enabling an event", unsafe {
            calls::ioctls::ENABLE(self.raw(), 0)
        })
    }

    /// Disables the event, including inherited events of children. Everything that it wrote is
    /// visible on return.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn disable(&self) -> Result<(), Error> {
        // SAFETY: this is the descriptor of an event, and the call takes a number.
        self.check("disabling an event", unsafe {
            calls::ioctls::DISABLE(self.raw(), 0)
        })
    }

    /// Resets the count, and makes the kernel update the clock parameters in the first page of the
    /// ring (`_perf_event_reset`, `perf_event_update_userpage`). Otherwise it writes them only when
    /// the ring is mapped.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn reset(&self) -> Result<(), Error> {
        // SAFETY: this is the descriptor of an event, and the call takes a number.
        self.check("resetting an event", unsafe {
            calls::ioctls::RESET(self.raw(), 0)
        })
    }

    /// Sets the number of occurrences per overflow (for a timer, nanoseconds).
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn set_period(&self, period: u64) -> Result<(), Error> {
        // The bindings declare the argument as a number, but the kernel takes a pointer.
        let place = std::ptr::from_ref(&period) as u64;
        // SAFETY: the call reads the number at the pointer, which lives through the call.
        let answer = unsafe { calls::ioctls::PERIOD(self.raw(), place) };
        self.check("setting the period of an event", answer)
    }

    /// Redirects the records to the ring of `other`.
    ///
    /// # Errors
    /// Fails if the two have different processors or clocks.
    pub fn set_output(&self, other: &Self) -> Result<(), Error> {
        // SAFETY: both descriptors are those of events, and the call takes a number.
        let answer = unsafe { calls::ioctls::SET_OUTPUT(self.raw(), other.raw()) };
        self.check("redirecting the output of an event", answer)
    }

    /// Sets a filter: on the fields of a tracepoint, or on the addresses of an AUX event.
    ///
    /// # Errors
    /// Fails if the kernel rejects it.
    pub fn set_filter(&self, filter: &str) -> Result<(), Error> {
        let what = || format!("setting the filter {filter:?}");
        let Ok(text) = CString::new(filter) else {
            return Err(Error::Setting(format!("{}: it has a NUL in it", what())));
        };
        // SAFETY: the text ends with a NUL and lives through the call, which only reads it.
        let answer = unsafe { calls::ioctls::SET_FILTER(self.raw(), text.as_ptr().cast_mut()) };
        self.check(&what(), answer)
    }

    /// Calls an eBPF program at each overflow. If it returns 0, there is no sample.
    ///
    /// # Errors
    /// Fails if the event has a program, or the program does not fit it.
    pub fn set_program(&self, program: BorrowedFd<'_>) -> Result<(), Error> {
        let number = program.as_raw_fd().cast_unsigned();
        // SAFETY: both descriptors are open, and the call takes the second one as a number.
        let answer = unsafe { calls::ioctls::SET_BPF(self.raw(), number) };
        self.check("attaching an eBPF program to an event", answer)
    }

    /// Returns the id at the end of its records.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn id(&self) -> Result<u64, Error> {
        let mut id = 0u64;
        // SAFETY: the call writes a number through the pointer.
        let answer = unsafe { calls::ioctls::ID(self.raw(), &mut id) };
        self.check("reading the id of an event", answer)?;
        Ok(id)
    }

    /// Returns the number of occurrences (for a timer, nanoseconds).
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn count(&self) -> Result<u64, Error> {
        // `PERF_FORMAT_ID`: the count, then the id.
        let mut words = [0u64; 2];
        let size = size_of_val(&words);
        // SAFETY: the call writes at most `size` bytes to `words`, which is that large.
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
