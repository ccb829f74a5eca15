//! Small histories for tests.

use backtrail_decoder::{Event, HistoryBuilder, Sink, Stamp};
use backtrail_pt::{Avma, Cofi, Tid, Tsc};

/// A history under construction; addresses go up by 2 an instruction, times are ticks.
pub(crate) struct Recording(pub HistoryBuilder);

impl Recording {
    pub fn new() -> Self {
        Self(HistoryBuilder::new(Tid(1)))
    }

    pub fn run(&mut self, at: u64, count: u64) -> &mut Self {
        for more in 0..count {
            self.0.instruction(Avma(at + 2 * more), 2, Cofi::Sequential);
        }
        self
    }

    pub fn call(&mut self, at: u64, target: u64) -> &mut Self {
        let target = Avma(target);
        self.0.instruction(Avma(at), 2, Cofi::Call { target });
        self
    }

    pub fn ret(&mut self, at: u64) -> &mut Self {
        self.0.instruction(Avma(at), 2, Cofi::Return);
        self
    }

    pub fn syscall(&mut self, at: u64, [left, back]: [u64; 2]) -> &mut Self {
        self.0.instruction(Avma(at), 2, Cofi::FarTransfer);
        self.time(left);
        self.0.event(Event::Disabled { from: None, to: None });
        self.time(back);
        self.0.event(Event::Enabled {
            at: Avma(at + 2),
            status: false,
        });
        self
    }

    pub fn time(&mut self, tsc: u64) -> &mut Self {
        self.0.event(Event::Time(Stamp {
            tsc: Tsc(tsc),
            lost_mtc: 0,
            lost_cyc: 0,
        }));
        self
    }
}
