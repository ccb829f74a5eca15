//! A queue that is fair by user: a user with many waiting items delays only itself.

use crate::quota::Quota;
use crate::users::User;
use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How many items a queue holds, and how many of the popped items may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Waiting items. An ordinary user may have a quarter. A quarter is reserved for root and
    /// system services.
    pub capacity: usize,
    /// Running items of all users.
    pub running: usize,
    /// Running items of one user.
    pub running_of_user: usize,
    /// Running items that are reserved for root and system services.
    pub running_reserve: usize,
}

/// An item that was removed to keep the limits of the queue.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejected<T> {
    /// The owner of the item: the user who pushed, or the user with most waiting items.
    pub user: User,
    /// The item.
    pub item: T,
}

/// A queue of items of users. Each item leaves the queue once: it is popped, rejected for lack of
/// space, or overdue.
///
/// Users take turns. The items of one user keep their order.
#[derive(Debug)]
pub struct FairQueue<T> {
    limits: QueueLimits,
    quota: Quota,
    state: Mutex<QueueState<T>>,
    /// Notified when an item may be popped, or when no item will come.
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState<T> {
    /// The waiting items. No queue is empty.
    queues: HashMap<User, VecDeque<QueuedItem<T>>>,
    /// The users with waiting items, in the order of their turns.
    turns: VecDeque<User>,
    /// How many items of each user run. No count is zero.
    running: HashMap<User, usize>,
    is_closed: bool,
}

#[derive(Debug)]
struct QueuedItem<T> {
    deadline: Instant,
    item: T,
}

impl<T> FairQueue<T> {
    /// Creates an empty queue. The limits are raised to at least one running item of an ordinary
    /// user.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        let running = limits.running.max(1);
        Self {
            limits: QueueLimits {
                running,
                running_of_user: limits.running_of_user.max(1),
                running_reserve: limits.running_reserve.min(running - 1),
                ..limits
            },
            quota: Quota::quarters(limits.capacity),
            state: Mutex::new(QueueState {
                queues: HashMap::new(),
                turns: VecDeque::new(),
                running: HashMap::new(),
                is_closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item that must be popped before `deadline`.
    ///
    /// # Errors
    /// Returns the item that had to be removed. That is this item if its user is at the limit or
    /// has most items, or if the queue is closed. Otherwise this item is added, and the newest item
    /// of the user with most items is returned.
    pub fn push(&self, user: User, deadline: Instant, item: T) -> Result<(), Rejected<T>> {
        let mut state = self.lock();
        let counts = state.queues.iter().map(|(user, queue)| (*user, queue.len()));
        let evictee = self.quota.evictee(user, counts);
        if state.is_closed || evictee == Some(user) {
            return Err(Rejected { user, item });
        }
        let rejected = evictee.and_then(|evictee| {
            let item = state.remove_newest(evictee)?;
            Some(Rejected { user: evictee, item })
        });
        state.add(user, QueuedItem { deadline, item });
        drop(state);
        self.changed.notify_one();
        rejected.map_or(Ok(()), Err)
    }

    /// Pops the next item and counts it as running until [`Self::done`]. Waits until there is an
    /// item whose user may run one more. `None`: the queue is closed and empty.
    pub fn pop(&self) -> Option<(User, T)> {
        let mut state = self.lock();
        loop {
            if let Some(taken) = state.take_next(&self.limits) {
                self.wake_on_end(&state);
                return Some(taken);
            }
            if state.is_closed && state.queues.is_empty() {
                return None;
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records that an item of `user` has finished.
    pub fn done(&self, user: User) {
        let mut state = self.lock();
        if let Some(count) = state.running.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                state.running.remove(&user);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Removes the items whose deadline has passed at `now`.
    pub fn overdue(&self, now: Instant) -> Vec<T> {
        let mut overdue = Vec::new();
        let mut state = self.lock();
        for queue in state.queues.values_mut() {
            let (late, remaining): (VecDeque<_>, VecDeque<_>) =
                queue.drain(..).partition(|waiting| waiting.deadline <= now);
            *queue = remaining;
            overdue.extend(late.into_iter().map(|waiting| waiting.item));
        }
        state.forget_empty_queues();
        self.wake_on_end(&state);
        overdue
    }

    /// Accepts no more items. Waiting items can still be popped.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Wakes all threads that wait, if no item will come.
    fn wake_on_end(&self, state: &QueueState<T>) {
        if state.is_closed && state.queues.is_empty() {
            self.changed.notify_all();
        }
    }
}

impl<T> QueueState<T> {
    fn add(&mut self, user: User, waiting: QueuedItem<T>) {
        let queue = self.queues.entry(user).or_default();
        if queue.is_empty() {
            self.turns.push_back(user);
        }
        queue.push_back(waiting);
    }

    fn remove_newest(&mut self, user: User) -> Option<T> {
        let waiting = self.queues.get_mut(&user)?.pop_back();
        self.forget_empty_queues();
        waiting.map(|waiting| waiting.item)
    }

    fn forget_empty_queues(&mut self) {
        self.queues.retain(|_, queue| !queue.is_empty());
        self.turns.retain(|user| self.queues.contains_key(user));
    }

    /// Pops the first item of the first user who may run one more. That user's next turn comes
    /// last. Users who were skipped keep their turns.
    fn take_next(&mut self, limits: &QueueLimits) -> Option<(User, T)> {
        let turn = self.turns.iter().position(|user| self.may_run(*user, limits))?;
        let user = self.turns.remove(turn)?;
        let waiting = self.queues.get_mut(&user)?.pop_front()?;
        self.turns.push_back(user);
        self.forget_empty_queues();
        *self.running.entry(user).or_default() += 1;
        Some((user, waiting.item))
    }

    fn may_run(&self, user: User, limits: &QueueLimits) -> bool {
        let own = self.running.get(&user).copied().unwrap_or_default();
        let all: usize = self.running.values().sum();
        let ordinary = self.running.iter().filter(|(user, _)| !user.is_system);
        let ordinary: usize = ordinary.map(|(_, count)| count).sum();
        let has_place = user.is_system || ordinary < limits.running - limits.running_reserve;
        own < limits.running_of_user && all < limits.running && has_place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::time::Duration;

    const LIMITS: QueueLimits = QueueLimits {
        capacity: 16,
        running: 4,
        running_of_user: 2,
        running_reserve: 1,
    };
    const ANN: User = ordinary(1000);
    const BOB: User = ordinary(1001);
    const CAT: User = ordinary(1002);

    const fn ordinary(id: u32) -> User {
        User { id, is_system: false }
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(1000)
    }

    /// Pops an item if one may run now.
    fn try_pop<T>(queue: &FairQueue<T>) -> Option<(User, T)> {
        queue.lock().take_next(&queue.limits)
    }

    #[test]
    fn user_with_many_waiting_does_not_delay_the_first_of_another() {
        let queue = FairQueue::new(QueueLimits {
            capacity: 1000,
            ..LIMITS
        });
        for number in 0..100 {
            queue.push(ANN, far(), number).unwrap();
        }
        queue.push(BOB, far(), 1000).unwrap();
        queue.push(User::ROOT, far(), 2000).unwrap();
        let mut order = Vec::new();
        for _ in 0..6 {
            let (user, item) = queue.pop().unwrap();
            queue.done(user);
            order.push(item);
        }
        assert_eq!(order, [0, 1000, 2000, 1, 2, 3]);
    }

    #[test]
    fn users_at_their_running_limit_are_passed_over() {
        let queue = FairQueue::new(LIMITS);
        for item in 0..3 {
            queue.push(ANN, far(), item).unwrap();
        }
        assert_eq!((queue.pop(), queue.pop()), (Some((ANN, 0)), Some((ANN, 1))));
        assert_eq!(try_pop(&queue), None, "two of one user run");
        queue.push(BOB, far(), 10).unwrap();
        queue.push(CAT, far(), 20).unwrap();
        assert_eq!(queue.pop(), Some((BOB, 10)));
        assert_eq!(try_pop(&queue), None, "one place is reserved");
        queue.push(User::ROOT, far(), 30).unwrap();
        queue.push(User::ROOT, far(), 31).unwrap();
        assert_eq!(queue.pop(), Some((User::ROOT, 30)));
        assert_eq!(try_pop(&queue), None, "all places are taken");
        queue.done(ANN);
        assert_eq!(queue.pop(), Some((ANN, 2)), "it kept its turn");
        queue.done(User::ROOT);
        assert_eq!(
            queue.pop(),
            Some((User::ROOT, 31)),
            "CAT may not have the reserve"
        );
        queue.done(BOB);
        assert_eq!(queue.pop(), Some((CAT, 20)));
    }

    #[test]
    fn push_beyond_own_share_is_rejected() {
        let queue = FairQueue::new(LIMITS);
        for item in 0..4 {
            queue.push(ANN, far(), item).unwrap();
        }
        let rejected = Rejected { user: ANN, item: 4 };
        assert_eq!(queue.push(ANN, far(), 4), Err(rejected));
    }

    #[test]
    fn newest_item_of_largest_user_is_evicted() {
        let queue = FairQueue::new(LIMITS);
        for item in 0..4 {
            queue.push(ANN, far(), item).unwrap();
            queue.push(BOB, far(), 10 + item).unwrap();
        }
        for id in 0..4 {
            queue.push(ordinary(2000 + id), far(), 100 + id).unwrap();
        }
        let Err(rejected) = queue.push(CAT, far(), 20) else {
            panic!("three quarters were taken")
        };
        assert!([(ANN, 3), (BOB, 13)].contains(&(rejected.user, rejected.item)));
        queue.close();
        let mut rest = BTreeSet::new();
        while let Some((user, item)) = queue.pop() {
            queue.done(user);
            rest.insert(item);
        }
        assert!(rest.contains(&20) && !rest.contains(&rejected.item));
        assert_eq!(rest.len(), 12);
    }

    #[test]
    fn overdue_items_leave_the_queue() {
        let queue = FairQueue::new(LIMITS);
        let now = Instant::now();
        queue.push(ANN, now, 1).unwrap();
        queue.push(ANN, far(), 2).unwrap();
        queue.push(BOB, now, 3).unwrap();
        let late: BTreeSet<i32> = queue.overdue(now).into_iter().collect();
        assert_eq!(late, [1, 3].into());
        assert!(queue.overdue(now).is_empty());
        assert_eq!(queue.pop(), Some((ANN, 2)));
        queue.push(BOB, far(), 4).unwrap();
        assert_eq!(queue.pop(), Some((BOB, 4)));
    }

    #[test]
    fn waiting_workers_are_woken() {
        let queue = FairQueue::new(QueueLimits {
            running_of_user: 1,
            ..LIMITS
        });
        std::thread::scope(|scope| {
            let worker = || {
                let mut taken = 0;
                while let Some((user, ())) = queue.pop() {
                    std::thread::sleep(Duration::from_millis(1));
                    queue.done(user);
                    taken += 1;
                }
                taken
            };
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
            let mut rejected = 0;
            for round in 0..200_u32 {
                let user = [ANN, BOB, User::ROOT][round as usize % 3];
                rejected += usize::from(queue.push(user, far(), ()).is_err());
                std::thread::sleep(Duration::from_micros(300));
            }
            queue.close();
            assert!(queue.push(ANN, far(), ()).is_err());
            let taken: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
            assert_eq!(taken + rejected, 200);
        });
        assert!(queue.lock().running.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(User, u64),
        Pop,
        Done(User),
        Overdue(u64),
    }

    fn user() -> impl Strategy<Value = User> {
        (0u32..6, any::<bool>()).prop_map(|(id, is_system)| User { id, is_system })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (user(), 0u64..100).prop_map(|(user, deadline)| Step::Push(user, deadline)),
            2 => Just(Step::Pop),
            2 => user().prop_map(Step::Done),
            1 => (0u64..40).prop_map(Step::Overdue),
        ]
    }

    fn within_bounds(queue: &FairQueue<usize>) -> bool {
        let state = queue.lock();
        let ordinary = |counts: &[(User, usize)]| -> usize {
            let ordinary = counts.iter().filter(|(user, _)| !user.is_system);
            ordinary.map(|(_, count)| count).sum()
        };
        let all = |counts: &[(User, usize)]| -> usize { counts.iter().map(|(_, count)| count).sum() };
        let waiting: Vec<_> = state
            .queues
            .iter()
            .map(|(user, queue)| (*user, queue.len()))
            .collect();
        let running: Vec<_> = state
            .running
            .iter()
            .map(|(user, count)| (*user, *count))
            .collect();
        let (limits, quota) = (queue.limits, queue.quota);
        let turns: BTreeSet<User> = state.turns.iter().copied().collect();
        all(&waiting) <= limits.capacity
            && ordinary(&waiting) <= quota.ordinary
            && waiting
                .iter()
                .all(|(user, count)| user.is_system || *count <= quota.per_user)
            && all(&running) <= limits.running
            && ordinary(&running) <= limits.running - limits.running_reserve
            && running.iter().all(|(_, count)| *count <= limits.running_of_user)
            && turns.len() == state.turns.len()
            && turns == waiting.iter().map(|(user, _)| *user).collect()
    }

    proptest! {
        #[test]
        fn limits_hold_and_each_item_leaves_once(
            capacity in 1usize..30,
            running in 1usize..6,
            of_user in 1usize..4,
            steps in prop::collection::vec(step(), 0..300),
        ) {
            let queue = FairQueue::new(QueueLimits {
                capacity,
                running,
                running_of_user: of_user,
                running_reserve: running / 4,
            });
            let start = Instant::now();
            let at = |time: u64| start + Duration::from_secs(time);
            let (mut out, mut pushed) = (Vec::new(), 0);
            for step in steps {
                match step {
                    Step::Push(user, deadline) => {
                        let rejected = queue.push(user, at(deadline), pushed);
                        out.extend(rejected.err().map(|rejected| rejected.item));
                        pushed += 1;
                    }
                    Step::Pop => out.extend(try_pop(&queue).map(|(_, item)| item)),
                    Step::Done(user) => queue.done(user),
                    Step::Overdue(now) => out.extend(queue.overdue(at(now))),
                }
                prop_assert!(within_bounds(&queue));
            }
            // No user starves: when nothing runs, all waiting items can be popped.
            queue.close();
            let ran: Vec<User> = queue.lock().running.keys().copied().collect();
            for user in ran {
                (0..running).for_each(|_| queue.done(user));
            }
            while let Some((user, item)) = queue.pop() {
                queue.done(user);
                out.push(item);
            }
            out.sort_unstable();
            prop_assert!(out.into_iter().eq(0..pushed));
        }

        #[test]
        fn users_take_turns(users in prop::collection::vec(user(), 0..60)) {
            let queue = FairQueue::new(QueueLimits { capacity: 1000, ..LIMITS });
            let mut nth: HashMap<User, usize> = HashMap::new();
            for user in users {
                let nth = nth.entry(user).or_default();
                queue.push(user, far(), *nth).unwrap();
                *nth += 1;
            }
            queue.close();
            let mut order = Vec::new();
            while let Some((user, nth)) = queue.pop() {
                queue.done(user);
                order.push(nth);
            }
            prop_assert!(order.is_sorted(), "the second of one before the first of another: {order:?}");
        }
    }
}
