//! Crashes that the probe has seen, until the handler asks about them.

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

/// A crash as the probe saw it.
#[derive(Debug)]
pub struct PendingCrash {
    /// What the kernel told.
    pub sample: CrashSample,
    /// The user that answers for the process.
    pub user: User,
    /// When it was read (`CLOCK_MONOTONIC`).
    pub read_at: u64,
    /// The processors' traces, paused and copied then; `None`: they are not traced, or had just
    /// been copied.
    pub frozen: Option<Frozen>,
    /// Among the few copies that may wait.
    pub(crate) frozen_permit: Option<Permit>,
}

/// How many wait at most. In a storm the oldest of the user with most go.
const PENDING_QUOTA: Quota = Quota::quarters(1024);
/// Copies of all traces that wait to be written, at most: they take memory.
pub(crate) const FROZEN_QUOTA: Quota = Quota {
    all: 4,
    ordinary: 3,
    per_user: 2,
};
/// How long after a request the event may still be read that came before it.
const GRACE: Duration = Duration::from_millis(50);
/// How often one who waits looks how far the events have come.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The crashes that nobody has asked about yet.
#[derive(Debug, Default)]
pub struct PendingCrashes {
    waiting: Mutex<PendingIndex>,
    arrived: Condvar,
    /// How far those have come that are not here yet.
    pub progress: Progress,
}

/// PendingCrashes by number, in the order in which they came.
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

    /// Whether a user may have one more copy of traces here. The watch, which makes them, shares
    /// them out by user id alone.
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
        // Traces that do not wait any more leave their place to others.
        crash.frozen_permit = None;
        Some(crash)
    }

    /// The last crash of a process with this id: the id may have been another one's before.
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

    /// Adds one; one that had to go for it is given back. It is the oldest of the user who has
    /// most, where there is no room. Of a user who has many traces here, the new ones are dropped.
    pub fn add(&self, crash: PendingCrash) -> Option<PendingCrash> {
        let evicted = self.lock().add(crash);
        self.arrived.notify_all();
        evicted
    }

    /// Adds one that the probe's events brought, or records that one of them brought none.
    pub fn deliver(&self, crash: Option<PendingCrash>) -> Option<PendingCrash> {
        let evicted = crash.and_then(|crash| self.lock().add(crash));
        self.progress.count_delivered();
        self.arrived.notify_all();
        evicted
    }

    /// Takes the crash of a process that is asked about now. See [`Self::take_asked_at`].
    pub fn take(&self, pid: Pid, patience: Duration) -> Option<PendingCrash> {
        self.take_asked_at(pid, clock::monotonic(), patience)
    }

    /// Takes the crash of a process that was asked about at `asked` (`CLOCK_MONOTONIC`).
    ///
    /// Its event was there before anybody could ask. So this waits only until all events that came
    /// before are delivered, and no longer than until `patience` has passed since `asked`. Whether
    /// they are read shows when the probe has none left, which is not looked at while nothing
    /// happens: after a grace of 50 ms they count as read.
    pub fn take_asked_at(&self, pid: Pid, asked: u64, patience: Duration) -> Option<PendingCrash> {
        let after = |time: Duration| asked.saturating_add(time.as_nanos().try_into().unwrap_or(u64::MAX));
        // So many events are to be waited for, once that is known.
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
            // Who delivers has added before he counts, and cannot add now.
            let is_delivered = awaited.is_some_and(|awaited| self.progress.delivered() >= awaited);
            if is_delivered || now >= after(patience) {
                return None;
            }
            let woken = self.arrived.wait_timeout(waiting, POLL_INTERVAL);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes those of processes that nobody will ask about any more: they are gone, or `age` has
    /// passed.
    pub fn overdue(&self, age: Duration) -> Vec<PendingCrash> {
        /// Between the last look of a handler's job and the end of its process.
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
        // Without the lock: this reads /proc.
        let overdue: Vec<u64> = looked_at.into_iter().filter_map(overdue).collect();
        let mut waiting = self.lock();
        overdue
            .into_iter()
            .filter_map(|number| waiting.remove(number))
            .collect()
    }

    /// Whether there is none.
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

    /// Adds crashes of a user; gives whose had to go.
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
    fn only_waiting_traces_take_a_place() {
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

    /// Takes with five seconds of patience; gives what was found, and how long it took.
    fn take(pending: &PendingCrashes, pid: u32, asked: u64) -> (bool, Duration) {
        let start = Instant::now();
        let found = pending.take_asked_at(Pid(pid), asked, Duration::from_secs(5));
        (found.is_some(), start.elapsed())
    }

    #[test]
    fn event_that_never_comes_is_not_waited_for() {
        const SOON: Duration = Duration::from_secs(2);
        let pending = PendingCrashes::default();
        let (found, took) = take(&pending, 1, clock::monotonic());
        assert!(!found && (GRACE..SOON).contains(&took), "{took:?}");
        // All that came before the request is read and delivered.
        let asked = clock::monotonic();
        pending.progress.record_empty(asked);
        let (found, took) = take(&pending, 1, asked);
        assert!(!found && took < GRACE, "{took:?}");
        // The patience has passed since the request.
        pending.progress.count_read();
        let (found, took) = take(&pending, 1, clock::monotonic() - 6 * SECOND);
        assert!(!found && took < GRACE, "{took:?}");
    }

    #[test]
    fn event_on_its_way_is_waited_for() {
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
            let (found, took) = one.join().unwrap();
            assert!(found && took >= 5 * GRACE, "{took:?}");
            let (found, took) = none.join().unwrap();
            assert!(!found && took < Duration::from_secs(4), "{took:?}");
        });
    }

    #[test]
    fn overdue_are_those_of_processes_that_are_gone() {
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
