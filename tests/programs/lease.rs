//! Demo crash, Rust: SIGABRT out of an `expect` in `renew`, caused by a wrong branch in
//! `Wheel::insert` many ticks before.
//!
//! A server leases sessions to clients and lets a timer wheel end them. Exercises: Rust symbols,
//! inlined iterators and closures, the panic machinery (build with `-C panic=abort`).

/// Slots of the wheel: it turns one slot a tick.
const SLOTS: u64 = 8;

/// Timers nearer than one turn stand in their slot, the others wait in `far` for the next turn.
struct Wheel {
    now: u64,
    slots: [Vec<Timer>; SLOTS as usize],
    far: Vec<Timer>,
}

#[derive(Clone, Copy)]
struct Timer {
    deadline: u64,
    session: usize,
}

impl Wheel {
    fn new() -> Self {
        Self { now: 0, slots: Default::default(), far: Vec::new() }
    }

    fn insert(&mut self, timer: Timer) {
        let delay = timer.deadline - self.now;
        if delay <= SLOTS {
            self.slots[(timer.deadline % SLOTS) as usize].push(timer);
        } else {
            self.far.push(timer);
        }
    }

    fn cancel(&mut self, session: usize) {
        for slot in &mut self.slots {
            slot.retain(|timer| timer.session != session);
        }
        self.far.retain(|timer| timer.session != session);
    }

    /// The sessions whose time has come; moves on by one tick.
    fn tick(&mut self) -> Vec<usize> {
        let due = std::mem::take(&mut self.slots[(self.now % SLOTS) as usize]);
        self.now += 1;
        if self.now % SLOTS == 0 {
            for timer in std::mem::take(&mut self.far) {
                self.insert(timer);
            }
        }
        due.into_iter().map(|timer| timer.session).collect()
    }
}

struct Session {
    client: u32,
    renewals: u32,
}

struct Server {
    wheel: Wheel,
    sessions: Vec<Option<Session>>,
}

impl Server {
    fn lease(&mut self, client: u32, ticks: u64) -> usize {
        let session = self.sessions.len();
        self.sessions.push(Some(Session { client, renewals: 0 }));
        self.wheel.insert(Timer { deadline: self.wheel.now + ticks, session });
        session
    }

    fn renew(&mut self, session: usize, ticks: u64) -> u32 {
        let found = self.sessions[session].as_mut().expect("a session lives until its lease ends");
        found.renewals += 1;
        let client = found.client;
        self.wheel.cancel(session);
        self.wheel.insert(Timer { deadline: self.wheel.now + ticks, session });
        client
    }

    fn expire(&mut self, session: usize) {
        self.sessions[session] = None;
    }

    fn tick(&mut self) {
        for session in self.wheel.tick() {
            self.expire(session);
        }
    }
}

/// What clients ask for: (client, lease in ticks).
const REQUESTS: [(u32, u64); 6] = [(101, 3), (102, 12), (103, 5), (104, 8), (105, 2), (106, 9)];

fn main() {
    let mut server = Server { wheel: Wheel::new(), sessions: Vec::new() };
    let mut leased = Vec::new();
    for (client, ticks) in REQUESTS {
        leased.push((server.lease(client, ticks), ticks));
        server.tick();
    }
    // Every client with a long lease renews it just before it ends.
    let mut served = 0;
    for (session, _) in leased.iter().copied().filter(|&(_, ticks)| ticks > SLOTS / 2 + 1) {
        served += server.renew(session, 6);
    }
    std::process::exit((served % 7) as i32);
}
