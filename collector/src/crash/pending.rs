//! Crashes that the probe reported and that no handler has asked for yet.

use super::progress::Progress;
use crate::clock;
use crate::hardware::Frozen;
use crate::permits::Permit;
use crate::probe::CrashSample;
use crate::quota::Quota;
use crate::users::User;
use backtrail_pt::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A crash as the probe reported it.
#[derive(Debug)]
pub struct PendingCrash {
    /// The data of the event.
    pub sample: CrashSample,
    /// The user who owns the process.
    pub user: User,
    /// When the event was read (`CLOCK_MONOTONIC`).
    pub read_at: u64,
    /// The traces of all processors, paused and copied at that time. `None`: the processors are not
    /// traced, or the limit of waiting copies was reached.
    pub frozen: Option<Frozen>,
    /// Counts against the few copies of traces that may wait.
    pub(crate) frozen_permit: Option<Permit>,
}

/// Maximum number of waiting crashes. In a storm, the user with most crashes loses the oldest.
const PENDING_QUOTA: Quota = Quota::quarters(1024);
/// Maximum number of waiting trace copies. Each takes much memory.
pub(crate) const FROZEN_QUOTA: Quota = Quota {
    all: 4,
    ordinary: 3,
    per_user: 2,
};
/// How long after a request an earlier event may still be unread.
const GRACE: Duration = Duration::from_millis(50);
/// How often a waiting thread checks the progress of the probe.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The crashes that no handler has asked for yet.
#[derive(Debug, Default)]
pub struct PendingCrashes {
    waiting: Mutex<PendingIndex>,
    arrived: Condvar,
    /// The progress of events that are not added yet.
    pub progress: Progress,
}

/// Pending crashes by number, in the order of arrival.
#[derive(Debug, Default)]
struct PendingIndex {
    next: u64,
    all: BTreeMap<u64, (Instant, PendingCrash)>,
    of_process: BTreeSet<(u32, u64)>,
    of_user: BTreeMap<User, BTreeSet<u64>>,
    with_traces: BTreeSet<u64>,
}

impl PendingIndex {
    fn add(&mut self, mut crash: PendingCrash) -> Option<PendingCrash> {
        let user = crash.user;
        let counts = self.of_user.iter().map(|(user, own)| (*user, own.len()));
        let evictee = PENDING_QUOTA.evictee(user, counts);
        let oldest = evictee.and_then(|evictee| self.of_user.get(&evictee)?.first().copied());
        let evicted = oldest.and_then(|number| self.remove(number));
        if crash.frozen.is_some() && !self.has_room_for_traces(user) {
            (crash.frozen, crash.frozen_permit) = (None, None);
        }
        let number = self.next;
        self.next += 1;
        if crash.frozen.is_some() {
            self.with_traces.insert(number);
        }
        self.of_process.insert((crash.sample.pid.0, number));
        self.of_user.entry(user).or_default().insert(number);
        self.all.insert(number, (Instant::now(), crash));
        evicted
    }

    /// Returns whether a user may have one more trace copy here. The probe reader, which makes the
    /// copies, divides them by user id only.
    fn has_room_for_traces(&self, user: User) -> bool {
        let owners = self.with_traces.iter().filter_map(|number| self.all.get(number));
        let mut held: BTreeMap<User, usize> = BTreeMap::new();
        owners.for_each(|(_, crash)| *held.entry(crash.user).or_default() += 1);
        let counts = held.iter().map(|(user, count)| (*user, *count));
        FROZEN_QUOTA.evictee(user, counts).is_none()
    }

    fn remove(&mut self, number: u64) -> Option<PendingCrash> {
        let (_, mut crash) = self.all.remove(&number)?;
        self.of_process.remove(&(crash.sample.pid.0, number));
        if let Some(own) = self.of_user.get_mut(&crash.user) {
            own.remove(&number);
            if own.is_empty() {
                self.of_user.remove(&crash.user);
            }
        }
        self.with_traces.remove(&number);
        // Traces that no longer wait free their permit.
        crash.frozen_permit = None;
        Some(crash)
    }

    /// Takes the last crash of a process with this id. Earlier ones may belong to another process.
    fn take(&mut self, pid: Pid) -> Option<PendingCrash> {
        let mut own = self.of_process.range((pid.0, 0)..=(pid.0, u64::MAX));
        let number = own.next_back()?.1;
        self.remove(number)
    }
}

impl PendingCrashes {
    fn lock(&self) -> MutexGuard<'_, PendingIndex> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a crash. Returns the crash that was evicted for it, if the queue is full: the oldest of
    /// the user with most crashes. If the user already has many trace copies here, the new copy is
    /// dropped.
    pub fn add(&self, crash: PendingCrash) -> Option<PendingCrash> {
        let evicted = self.lock().add(crash);
        self.arrived.notify_all();
        evicted
    }

    /// Adds a crash that the probe delivered. `None` records an event without a crash.
    pub fn deliver(&self, crash: Option<PendingCrash>) -> Option<PendingCrash> {
        let evicted = crash.and_then(|crash| self.lock().add(crash));
        self.progress.count_delivered();
        self.arrived.notify_all();
        evicted
    }

    /// Takes the crash of a process that is requested now. See [`Self::take_asked_at`].
    pub fn take(&self, pid: Pid, timeout: Duration) -> Option<PendingCrash> {
        self.take_asked_at(pid, clock::monotonic(), timeout)
    }

    /// Takes the crash of a process that was requested at `asked` (`CLOCK_MONOTONIC`).
    ///
    /// The probe writes the event before the handler can ask for it. So this function waits only
    /// until all events before `asked` are delivered, and at most `patience` after `asked`. The
    /// probe reader knows that it has read them when the ring is empty. It does not check an idle
    /// ring, so after 50 ms all events count as read.
    pub fn take_asked_at(&self, pid: Pid, asked: u64, timeout: Duration) -> Option<PendingCrash> {
        let after = |time: Duration| asked.saturating_add(time.as_nanos().try_into().unwrap_or(u64::MAX));
        // The number of events to wait for, as soon as it is known.
        let mut awaited = None;
        let mut waiting = self.lock();
        loop {
            if let Some(found) = waiting.take(pid) {
                return Some(found);
            }
            let now = clock::monotonic();
            if self.progress.has_read_all_before(asked) || now >= after(GRACE) {
                awaited = awaited.or_else(|| Some(self.progress.read()));
            }
            // `deliver` adds a crash before it counts it, and cannot add one while this thread has
            // the lock.
            let is_delivered = awaited.is_some_and(|awaited| self.progress.delivered() >= awaited);
            if is_delivered || now >= after(timeout) {
                return None;
            }
            let woken = self.arrived.wait_timeout(waiting, POLL_INTERVAL);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes the crashes that no handler will ask for: the process has ended, or `age` has passed.
    pub fn overdue(&self, age: Duration) -> Vec<PendingCrash> {
        /// Longest time between the last query of a handler's job and the end of its process.
        const EXIT_GRACE: Duration = Duration::from_secs(1);
        let looked_at: Vec<(u64, Pid, Duration)> = {
            let waiting = self.lock();
            let all = waiting.all.iter();
            let all = all.map(|(number, (since, crash))| (*number, crash.sample.pid, since.elapsed()));
            all.filter(|(_, _, waited)| *waited >= EXIT_GRACE.min(age))
                .collect()
        };
        let is_gone = |pid: Pid| !std::path::Path::new(&format!("/proc/{pid}")).exists();
        let overdue = |(number, pid, waited): (u64, Pid, Duration)| {
            (waited >= age || (waited >= EXIT_GRACE && is_gone(pid))).then_some(number)
        };
        // This reads /proc, so it runs without the lock.
        let overdue: Vec<u64> = looked_at.into_iter().filter_map(overdue).collect();
        let mut waiting = self.lock();
        overdue
            .into_iter()
            .filter_map(|number| waiting.remove(number))
            .collect()
    }

    /// Returns whether no crash is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::SiginfoDetail;
    use backtrail_bundle::core::{Registers, SigInfo};
    use backtrail_pt::{Avma, Cpu, Tid};

    const STORMER: User = ordinary(1000);
    const SECOND: u64 = 1_000_000_000;

    const fn ordinary(id: u32) -> User {
        User { id, is_system: false }
    }

    fn crash(user: User, pid: u32) -> PendingCrash {
        let sample = CrashSample {
            at: 1,
            at_boot: None,
            cpu: Cpu(0),
            pid: Pid(pid),
            tid: Tid(pid),
            inner_pid: None,
            inner_tid: None,
            pid_namespace: None,
            mount_namespace: None,
            user: Some(user.id),
            effective_user: None,
            cgroup: None,
            started: None,
            comm: String::new(),
            siginfo: SigInfo::new(11, 1, Avma(0)),
            siginfo_detail: SiginfoDetail::All,
            registers: Registers::default(),
            bases_known: false,
            frames: Vec::new(),
            stack_at: Avma(0),
            stack: Vec::new(),
        };
        PendingCrash {
            sample,
            user,
            read_at: u64::from(pid),
            frozen: None,
            frozen_permit: None,
        }
    }

    fn with_traces(user: User, pid: u32) -> PendingCrash {
        let frozen = Some(Frozen {
            cpus: Vec::new(),
            began_at: 1,
            crash_at: None,
        });
        PendingCrash {
            frozen,
            ..crash(user, pid)
        }
    }

    /// Adds crashes of a user. Returns the evicted ones.
    fn add(pending: &PendingCrashes, user: User, pids: std::ops::Range<u32>) -> Vec<(User, u32)> {
        let evicted = pids.filter_map(|pid| pending.add(crash(user, pid)));
        evicted
            .map(|evicted| (evicted.user, evicted.sample.pid.0))
            .collect()
    }

    fn has(pending: &PendingCrashes, pid: u32) -> bool {
        pending.take(Pid(pid), Duration::ZERO).is_some()
    }

    #[test]
    fn storm_of_one_user_loses_no_crash_of_another() {
        let pending = PendingCrashes::default();
        add(&pending, User::ROOT, 1..4);
        add(&pending, ordinary(1001), 4..7);
        let evicted = add(&pending, STORMER, 1000..11_000);
        assert!(
            evicted
                .into_iter()
                .eq((1000..11_000 - PENDING_QUOTA.per_user as u32).map(|pid| (STORMER, pid))),
            "its own oldest go"
        );
        assert!((1..7).all(|pid| has(&pending, pid)));
        assert!(has(&pending, 10_999) && !has(&pending, 1000));
    }

    #[test]
    fn many_users_leave_system_users_the_reserve() {
        let pending = PendingCrashes::default();
        for user in 1000..1010 {
            add(&pending, ordinary(user), 1000 * user..1000 * user + 500);
        }
        assert_eq!(pending.lock().all.len(), PENDING_QUOTA.ordinary);
        assert_eq!(add(&pending, User::ROOT, 1..257), []);
        let evicted = add(&pending, User::ROOT, 300..301);
        assert!(
            evicted.iter().all(|(user, pid)| *user == User::ROOT && *pid == 1),
            "{evicted:?}"
        );
        let waiting = pending.lock();
        assert_eq!(waiting.all.len(), PENDING_QUOTA.all);
        assert_eq!(waiting.of_process.len(), PENDING_QUOTA.all);
        assert_eq!(
            waiting.of_user.values().map(BTreeSet::len).sum::<usize>(),
            PENDING_QUOTA.all
        );
    }

    #[test]
    fn last_crash_of_an_id_is_taken_first() {
        let pending = PendingCrashes::default();
        for (user, read_at) in [(STORMER, 1), (User::ROOT, 2)] {
            pending.add(PendingCrash {
                read_at,
                ..crash(user, 7)
            });
        }
        let taken = |()| pending.take(Pid(7), Duration::ZERO).map(|it| it.read_at);
        assert_eq!([(); 3].map(taken), [Some(2), Some(1), None]);
        assert!(pending.is_empty());
    }

    #[test]
    fn traces_of_one_user_leave_room_for_others() {
        let pending = PendingCrashes::default();
        let users = [
            STORMER,
            STORMER,
            STORMER,
            ordinary(1001),
            ordinary(1002),
            User::ROOT,
        ];
        for (pid, user) in (1..).zip(users) {
            pending.add(with_traces(user, pid));
        }
        let has_traces = |pid| {
            let taken = pending.take(Pid(pid), Duration::ZERO);
            taken.unwrap().frozen.is_some()
        };
        let found: Vec<bool> = (1..7).map(has_traces).collect();
        assert_eq!(found, [true, true, false, true, false, true]);
        pending.add(with_traces(STORMER, 9));
        assert!(has_traces(9), "there is room again");
    }

    #[test]
    fn only_waiting_traces_hold_a_permit() {
        let mut semaphore = crate::permits::UserSemaphore::new(FROZEN_QUOTA, 999);
        let mut taken = |pid| PendingCrash {
            frozen_permit: semaphore.take(Some(STORMER.id)),
            ..with_traces(STORMER, pid)
        };
        let pending = PendingCrashes::default();
        pending.add(taken(1));
        pending.add(taken(2));
        assert!(taken(3).frozen_permit.is_none());
        let one = pending.take(Pid(1), Duration::ZERO).unwrap();
        assert!(one.frozen.is_some() && one.frozen_permit.is_none());
        assert!(taken(3).frozen_permit.is_some());
    }

    /// Takes a crash with a timeout of five seconds. Returns whether it was found, and the time.
    fn take(pending: &PendingCrashes, pid: u32, asked: u64) -> (bool, Duration) {
        let start = Instant::now();
        let found = pending.take_asked_at(Pid(pid), asked, Duration::from_secs(5));
        (found.is_some(), start.elapsed())
    }

    #[test]
    fn missing_event_does_not_delay() {
        const SOON: Duration = Duration::from_secs(2);
        let pending = PendingCrashes::default();
        let (found, took) = take(&pending, 1, clock::monotonic());
        assert!(!found && (GRACE..SOON).contains(&took), "{took:?}");
        // All events before the request are read and delivered.
        let asked = clock::monotonic();
        pending.progress.record_empty(asked);
        let (found, took) = take(&pending, 1, asked);
        assert!(!found && took < GRACE, "{took:?}");
        // The timeout since the request has passed.
        pending.progress.count_read();
        let (found, took) = take(&pending, 1, clock::monotonic() - 6 * SECOND);
        assert!(!found && took < GRACE, "{took:?}");
    }

    #[test]
    fn event_in_flight_is_awaited() {
        let pending = PendingCrashes::default();
        pending.progress.count_read();
        pending.progress.count_read();
        let asked = clock::monotonic();
        pending.progress.record_empty(asked);
        std::thread::scope(|scope| {
            let one = scope.spawn(|| take(&pending, 1, asked));
            let none = scope.spawn(|| take(&pending, 99, asked));
            std::thread::sleep(4 * GRACE);
            pending.deliver(None);
            std::thread::sleep(GRACE);
            assert!(
                !one.is_finished() && !none.is_finished(),
                "one is still on its way"
            );
            pending.deliver(Some(crash(STORMER, 1)));
            let (found, _) = one.join().unwrap();
            assert!(found);
            let (found, took) = none.join().unwrap();
            assert!(!found && took < Duration::from_secs(4), "{took:?}");
        });
    }

    #[test]
    fn crashes_of_ended_processes_are_overdue() {
        let pending = PendingCrashes::default();
        pending.add(crash(User::ROOT, std::process::id()));
        pending.add(crash(User::ROOT, u32::MAX));
        assert!(pending.overdue(Duration::from_secs(100)).is_empty());
        std::thread::sleep(Duration::from_millis(1100));
        let overdue = pending.overdue(Duration::from_secs(100));
        let pids: Vec<u32> = overdue.iter().map(|it| it.sample.pid.0).collect();
        assert_eq!(pids, [u32::MAX]);
        assert_eq!(pending.overdue(Duration::from_millis(1)).len(), 1);
        assert!(pending.is_empty());
    }
}
