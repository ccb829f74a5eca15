//! Tests code that changes while it is traced: each flow is decoded with the bytes that ran.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its tests do

#[path = "common/agreed.rs"]
mod agreed;

use agreed::decode_agreed;
use backtrail_decoder::{Boundary, Change, Config, GapCause, History, Image, Input, Section, Version};
use backtrail_pt::{Avma, Encoder, EncoderOptions, Tid};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const TID: Tid = Tid(7);
/// The code that changes: eight bytes.
const START: Avma = Avma(0x1000);
/// The code that stays: jmp *%rax; syscall; jmp *%rax.
const STAYS: Avma = Avma(0x1008);
const STAYING: [u8; 6] = [0xff, 0xe0, 0x0f, 0x05, 0xff, 0xe0];
const SYSCALL: Avma = Avma(0x100a);
const BACK: Avma = Avma(0x100c);

/// Returns the code at [`START`] in a version. It always leads to [`STAYS`], by different
/// instructions.
fn code(version: u32) -> [u8; 8] {
    match version % 4 {
        // nop; jmp STAYS
        0 => [0x90, 0xeb, 0x05, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc],
        // nopl (%rax); jz STAYS; nop; nop; nop
        1 => [0x0f, 0x1f, 0x00, 0x74, 0x03, 0x90, 0x90, 0x90],
        // xor %rax,%rax; jz STAYS; nop; nop; nop: instructions of equal lengths.
        2 => [0x48, 0x31, 0xc0, 0x74, 0x03, 0x90, 0x90, 0x90],
        // jnz STAYS; nopl 0(%rax,%rax); nop
        _ => [0x75, 0x06, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0x90],
    }
}

/// Returns the addresses that run in a version from [`START`] up to [`STAYS`], and whether there is
/// a conditional branch.
fn way(version: u32, taken: bool) -> (&'static [u64], bool) {
    match (version % 4, taken) {
        (0, _) => (&[0x1000, 0x1001], false),
        (1 | 2, true) => (&[0x1000, 0x1003], true),
        (1 | 2, false) => (&[0x1000, 0x1003, 0x1005, 0x1006, 0x1007], true),
        (_, true) => (&[0x1000], true),
        (_, false) => (&[0x1000, 0x1002, 0x1007], true),
    }
}

/// A thread that runs its code, as a recorder writes it. Between calls it is at [`START`].
struct Run {
    encoder: Encoder,
    version: u32,
    boundaries: Vec<Boundary>,
    /// The address and version of every instruction.
    expected: Vec<(u64, u32)>,
    /// PSBs to start at: the offset, and the number of instructions before.
    psbs: Vec<(u64, usize)>,
}

impl Run {
    fn new() -> Self {
        let mut encoder = Encoder::new(EncoderOptions::default());
        encoder.start();
        encoder.enable(START);
        Self {
            encoder,
            version: 0,
            boundaries: Vec::new(),
            expected: Vec::new(),
            psbs: vec![(0, 0)],
        }
    }

    fn runs(&mut self, pcs: &[u64]) {
        let version = self.version;
        self.expected.extend(pcs.iter().map(|&pc| (pc, version)));
    }

    /// Runs from [`START`] to `target`.
    fn go(&mut self, taken: bool, target: Avma) {
        let (pcs, conditional) = way(self.version, taken);
        self.runs(pcs);
        if conditional {
            self.encoder.conditional(taken);
        }
        self.runs(&[STAYS.0]);
        self.encoder.indirect(target);
    }

    fn turn(&mut self, taken: bool) {
        self.go(taken, START);
    }

    /// Changes the version while tracing is disabled. The recorded offset is `late` bytes after the
    /// TIP.PGD, in which MODE.Exec takes two.
    fn note(&mut self, late: u64) {
        self.version += 1;
        self.boundaries.push(Boundary {
            offset: self.encoder.written() + late,
            version: Version(self.version),
        });
    }

    fn boundary(&mut self, late: u64) {
        self.encoder.disable_async(START);
        self.note(late);
        self.encoder.enable(START);
    }

    /// Runs one instruction, then a signal whose handler is at [`START`].
    fn interrupted(&mut self, late: u64) {
        let (pcs, _) = way(self.version, false);
        match *pcs {
            [first, second, ..] if self.version % 4 != 3 => {
                self.runs(&[first]);
                self.encoder.disable_async(Avma(second));
            }
            _ => self.encoder.disable_async(START),
        }
        self.note(late);
        self.encoder.enable(START);
    }

    fn system_call(&mut self, boundaries: &[u64], psb: bool) {
        self.go(true, SYSCALL);
        self.runs(&[SYSCALL.0]);
        self.encoder.disable();
        if psb {
            self.encoder.flush();
            self.psbs.push((self.encoder.written(), self.expected.len()));
            self.encoder.start();
        }
        boundaries.iter().for_each(|&late| self.note(late));
        self.encoder.enable(BACK);
        self.runs(&[BACK.0]);
        self.encoder.indirect(START);
    }

    fn psb(&mut self) {
        self.encoder.flush();
        self.psbs.push((self.encoder.written(), self.expected.len()));
        self.encoder.psb(START);
    }

    /// Returns the decoded history from a PSB on.
    fn decode(mut self, from: usize) -> (History, Image, Vec<(u64, u32)>) {
        self.encoder.disable_async(START);
        let (offset, before) = self.psbs[from];
        let trace = self.encoder.take().split_off(offset as usize);
        // A boundary that the ring dropped is at the start.
        for boundary in &mut self.boundaries {
            boundary.offset = boundary.offset.saturating_sub(offset);
        }
        let image = image(self.version, self.boundaries);
        let history = history(trace, &image, TID);
        (history, image, self.expected.split_off(before))
    }
}

fn section(start: Avma, bytes: &[u8]) -> Section {
    Section {
        start,
        bytes: Arc::new(bytes.to_vec()),
    }
}

/// Returns the code in versions 0 to `last`.
fn image(last: u32, boundaries: Vec<Boundary>) -> Image {
    let mut image = Image::new();
    image.add(section(START, &code(0)));
    let changes = (1..=last).map(|version| Change {
        since: Version(version),
        section: section(START, &code(version)),
    });
    let stays = Change {
        since: Version(0),
        section: section(STAYS, &STAYING),
    };
    image.set_versions(changes.chain([stays]).collect(), [(TID, boundaries)].into());
    image
}

fn history(trace: Vec<u8>, image: &Image, tid: Tid) -> History {
    let input = Input::Thread {
        tid,
        trace: Arc::new(trace),
        image: Arc::new(image.clone()),
    };
    let decoded = decode_agreed(&[input], &BTreeMap::new(), &Config::default());
    decoded.threads.into_iter().next().unwrap()
}

/// Returns the executed instructions with their versions.
fn executed(history: &History) -> Vec<(u64, u32)> {
    (0..history.len())
        .map(|index| (history.pc(index).unwrap().0, history.version(index).0))
        .collect()
}

/// Checks that the history has the instructions that ran, with the right versions for instructions
/// and blocks.
fn assert_ran(history: &History, image: &Image, expected: &[(u64, u32)]) {
    assert_eq!(executed(history), expected);
    assert_eq!(history.errors(), 0);
    let mut turns: BTreeMap<u32, u64> = BTreeMap::new();
    for (index, &(pc, version)) in (0..).zip(expected) {
        let mut bytes = [0; 8];
        image.read_version(Version(version), START, &mut bytes);
        assert_eq!(bytes, code(version));
        if pc < STAYS.0 {
            let mut own = [0; 1];
            image.read_version(history.version(index), Avma(pc), &mut own);
            assert_eq!(own[0], code(version)[(pc - START.0) as usize]);
        }
        if pc == START.0 {
            *turns.entry(version).or_default() += 1;
        }
    }
    let mut found = BTreeMap::new();
    let mut staying = 0;
    for (id, count) in history.blocks() {
        let start = history.block(id).next().unwrap().pc;
        if start == START {
            let length = history.block(id).count();
            let before = found.insert((history.block_version(id).0, length), count);
            assert_eq!(
                before, None,
                "one block a version, and one of what an interruption left of it"
            );
        }
        staying += usize::from(start == STAYS);
    }
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for ((version, _), count) in found {
        *sums.entry(version).or_default() += count;
    }
    assert_eq!(sums, turns, "executions of the first block, by version");
    assert!(staying <= 1, "code that stays is one block in all versions");
}

#[test]
fn each_version_is_decoded_with_its_bytes() {
    let mut run = Run::new();
    for taken in [true, false, true] {
        for _ in 0..5 {
            run.turn(taken);
            run.boundary(0);
        }
    }
    run.turn(false);
    let (history, image, expected) = run.decode(0);
    assert_ran(&history, &image, &expected);
    assert_eq!(history.version(history.len()), Version(15));
}

#[test]
fn adjacent_boundaries_are_distinguished() {
    // The decoder has read beyond the next boundary when it reports one.
    for (between, late) in [(1, 0), (2, 0), (3, 2), (7, 2)] {
        let mut run = Run::new();
        run.turn(true);
        for _ in 0..between {
            run.boundary(late);
            run.interrupted(late);
        }
        run.turn(false);
        run.boundary(late);
        run.turn(true);
        let (history, image, expected) = run.decode(0);
        assert_ran(&history, &image, &expected);
    }
}

#[test]
fn boundary_after_a_system_call_waits_for_its_return() {
    // Only the TIP.PGD is between the TIP.PGE of one version and the boundary of the next.
    let mut encoder = Encoder::new(EncoderOptions::default());
    encoder.start();
    encoder.enable(Avma(0x1000));
    encoder.disable();
    let offset = encoder.written();
    encoder.enable(Avma(0x1002));
    encoder.disable_async(Avma(0x1003));
    let mut image = Image::new();
    image.add(section(Avma(0x1000), &[0x0f, 0x05, 0x90, 0x90]));
    let change = Change {
        since: Version(1),
        section: section(Avma(0x1000), &[0x90, 0x90]),
    };
    let boundary = Boundary {
        offset,
        version: Version(1),
    };
    image.set_versions(vec![change], [(TID, vec![boundary])].into());
    let history = history(encoder.take(), &image, TID);
    assert_eq!(executed(&history), [(0x1000, 0), (0x1002, 1)]);
    assert_eq!(history.errors(), 0);
}

#[test]
fn history_may_start_after_a_boundary() {
    let whole = || {
        let mut run = Run::new();
        run.turn(true);
        run.boundary(0);
        run.boundary(2);
        run.psb();
        run.turn(true);
        run.boundary(0);
        run.turn(false);
        run.psb();
        run.turn(false);
        run
    };
    for (from, first) in [(0, 0), (1, 2), (2, 3)] {
        let (history, image, expected) = whole().decode(from);
        assert_ran(&history, &image, &expected);
        assert_eq!(history.version(0), Version(first));
    }
}

#[test]
fn a_thread_without_boundaries_sees_the_first_version() {
    let mut run = Run::new();
    run.turn(true);
    run.encoder.disable_async(START);
    let boundary = Boundary {
        offset: 0,
        version: Version(1),
    };
    let image = image(3, vec![boundary]);
    let history = history(run.encoder.take(), &image, Tid(8));
    assert_eq!(executed(&history), [(0x1000, 0), (0x1001, 0), (0x1008, 0)]);
}

#[test]
fn address_or_psb_after_an_error_sets_the_version() {
    for hidden in [0, 1, 3] {
        let mut run = Run::new();
        run.turn(true);
        run.boundary(0);
        // There is no code here. The flow resumes at the next address.
        run.go(true, Avma(0x9000));
        run.encoder.indirect(START);
        (0..hidden).for_each(|_| run.boundary(0));
        run.turn(false);
        run.psb();
        run.psb();
        run.turn(false);
        run.boundary(0);
        run.turn(true);
        let (history, _, expected) = run.decode(0);
        assert_eq!(executed(&history), expected);
        assert_eq!(history.errors(), 1);
        let causes: Vec<_> = history.gaps().map(|(_, gap)| &gap.cause).collect();
        assert_eq!(causes, [&GapCause::LostCode { at: Avma(0x9000) }]);
    }
}

#[test]
fn an_overflow_may_hide_a_boundary() {
    let mut run = Run::new();
    run.turn(true);
    run.note(0);
    run.encoder.overflow(Some(START));
    run.turn(true);
    run.boundary(0);
    run.turn(false);
    let (history, _, expected) = run.decode(0);
    assert_eq!(executed(&history), expected);
    assert_eq!(history.errors(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Turn(bool),
    Boundary(u64),
    Interrupted(u64),
    SystemCall(Vec<u64>, bool),
    Psb,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any::<bool>().prop_map(Step::Turn),
        3 => (0u64..3).prop_map(Step::Boundary),
        2 => (0u64..3).prop_map(Step::Interrupted),
        2 => (prop::collection::vec(0u64..1, 0..3), any::<bool>())
            .prop_map(|(boundaries, psb)| Step::SystemCall(boundaries, psb)),
        1 => Just(Step::Psb),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Any run decodes correctly from any PSB on.
    #[test]
    fn any_run_is_decoded_as_it_ran(steps in steps(), from: prop::sample::Index) {
        let mut run = Run::new();
        for step in steps {
            match step {
                Step::Turn(taken) => run.turn(taken),
                Step::Boundary(late) => run.boundary(late),
                Step::Interrupted(late) => run.interrupted(late),
                Step::SystemCall(boundaries, psb) => run.system_call(&boundaries, psb),
                Step::Psb => run.psb(),
            }
        }
        let from = from.index(run.psbs.len());
        let (history, image, expected) = run.decode(from);
        assert_ran(&history, &image, &expected);
    }

    /// Boundaries of any origin may be wrong: then the result may be wrong, but nothing worse.
    #[test]
    fn wrong_boundaries_do_no_harm(
        lies in prop::collection::vec((0u64..400, 0u32..9), 0..8),
        steps in 1usize..20,
    ) {
        let mut run = Run::new();
        for step in 0..steps {
            run.turn(step % 3 == 0);
            run.boundary(0);
        }
        run.boundaries = lies
            .into_iter()
            .map(|(offset, version)| Boundary { offset, version: Version(version) })
            .collect();
        let (history, _, _) = run.decode(0);
        for index in 0..history.len() {
            prop_assert!(history.version(index) <= Version(9));
        }
        let blocks: u64 = history.blocks().map(|(id, count)| history.block(id).count() as u64 * count).sum();
        prop_assert_eq!(blocks, history.len());
    }
}
