//! Decodes a generated trace up to a stage. `cargo xtask guard` counts its machine instructions.
//!
//! `backtrail-guard STAGE` prints the number of decoded instructions. Each stage includes the
//! previous one, so the difference of two stages is the cost of one.

mod program;

use backtrail_decoder::engine::native::Native;
use backtrail_decoder::{
    Bytes, Config, Decoded, Decoder, Engine, Event, Forest, Functions, Image, Input, PathIdx, PathTable,
    Section, Sink, Watch,
};
use backtrail_pt::{Avma, Cofi, Tid};
use program::{Program, Run};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::process::ExitCode;
use std::sync::Arc;

/// The number of instructions in the trace. One-time costs are small in comparison.
const INSTRUCTIONS: u64 = 1_000_000;

fn main() -> ExitCode {
    let stage = std::env::args().nth(1).unwrap_or_default();
    match run(&stage) {
        Ok(decoded) => {
            println!("{decoded}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("backtrail-guard: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(stage: &str) -> Result<u64, String> {
    let program = Program::make();
    let run = program.run(INSTRUCTIONS);
    let decoded = match stage {
        "trace" => run.instructions,
        "flow" => flow(&program, &run)?,
        "history" => history(&program, &run)?
            .threads
            .iter()
            .map(|thread| thread.len())
            .sum(),
        "forest" => {
            let decoded = history(&program, &run)?;
            let thread = decoded.threads.first().ok_or("no thread")?;
            let forest =
                Forest::build(thread, &program, &Watch::none()).map_err(|error| error.to_string())?;
            // Calls that had not returned at the end count too.
            if forest.len() as u64 != run.calls + 1 {
                return Err(format!("{} calls instead of {}", forest.len(), run.calls + 1));
            }
            thread.len()
        }
        other => {
            return Err(format!(
                "'{other}' is not a stage; use trace, flow, history or forest"
            ));
        }
    };
    if decoded == run.instructions {
        Ok(decoded)
    } else {
        Err(format!("decoded {decoded} of {} instructions", run.instructions))
    }
}

fn image(program: &Program) -> Image {
    let mut image = Image::new();
    image.add(Section {
        start: program::CODE_AT,
        bytes: Arc::new(program.code.clone()),
    });
    image
}

/// Decodes only the flow.
fn flow(program: &Program, run: &Run) -> Result<u64, String> {
    let mut counter = Counter::default();
    Native
        .decode(&run.trace, &image(program), &Config::default(), &mut counter)
        .map_err(|error| error.to_string())?;
    Ok(counter.instructions)
}

/// Decodes flow and history, as the product does.
fn history(program: &Program, run: &Run) -> Result<Decoded, String> {
    let trace: Bytes = Arc::new(run.trace.clone());
    let input = Input::Thread {
        tid: Tid(1),
        trace,
        image: Arc::new(image(program)),
    };
    Decoder::new(&Config::default())
        .decode(&[input], &BTreeMap::new())
        .map_err(|error| error.to_string())
}

/// Counts instructions.
#[derive(Default)]
struct Counter {
    instructions: u64,
    /// The number of instructions in each path, by its index.
    path_lens: Vec<u64>,
}

impl Sink for Counter {
    fn begin(&mut self) {
        self.path_lens.clear();
    }

    fn instruction(&mut self, _at: Avma, _len: u8, _cofi: Cofi) {
        self.instructions += 1;
    }

    fn paths(&mut self, table: &PathTable<'_>, executed: &[PathIdx]) {
        for &path in executed {
            let at = path.index();
            if self.path_lens.len() <= at {
                self.path_lens.resize(at + 1, 0);
            }
            let Some(known) = self.path_lens.get_mut(at) else {
                continue;
            };
            if *known == 0 {
                *known = table.instructions(path).count() as u64;
            }
            self.instructions += *known;
        }
    }

    fn event(&mut self, _event: Event) {}

    fn progress(&mut self, _offset: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Functions for Program {
    fn range_of(&self, pc: Avma) -> Option<Range<Avma>> {
        let after = self.functions.partition_point(|function| function.start <= pc);
        let function = self.functions.get(after.checked_sub(1)?)?;
        Some(function.start..function.end)
    }
}
