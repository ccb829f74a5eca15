//! Converts the command line of `backtrail record` to recorder options.

use crate::args::{self, Record, RecordEngine};
use crate::cache_directory;
use backtrail_pt::Pid;
use backtrail_recorder::{
    Engine, Output, Pin, ProgramFilter, RecordOptions, Target, TranslationDirectory, ValueOptions,
};
use std::sync::atomic::AtomicBool;

/// Returns the engine that the command line selects.
pub(super) fn engine(args: &Record) -> Engine {
    match args.engine {
        Some(RecordEngine::Step) => Engine::Step,
        // Golden addresses come from single steps.
        _ if args.golden.is_some() => Engine::Step,
        Some(RecordEngine::Translate) | None => Engine::Translate,
    }
}

/// Returns where translated code is kept, in at most `limit` bytes.
fn translations(limit: u64) -> Option<TranslationDirectory> {
    let path = cache_directory::path("translations").filter(|_| limit > 0)?;
    Some(TranslationDirectory { path, limit })
}

/// Converts the command line to recorder options.
pub(super) fn options<'a>(
    args: &Record,
    output: impl Into<Output<'a>>,
    stop: &'a AtomicBool,
) -> RecordOptions<'a> {
    let target = match args.pid {
        Some(pid) => Target::Processes(vec![Pid(pid)]),
        None => Target::Command(args.program.clone()),
    };
    RecordOptions {
        ring: if args.full {
            None
        } else {
            Some(usize::try_from(args.ring).unwrap_or(usize::MAX))
        },
        engine: engine(args),
        pin: match args.pin {
            args::Pin::Auto => Pin::Auto,
            args::Pin::Together => Pin::Together,
            args::Pin::Off => Pin::Off,
        },
        cache: args.cache,
        translations: translations(args.translations),
        heap: args.heap,
        values: args.values.map(|size| ValueOptions {
            limit: if args.full {
                None
            } else {
                Some(usize::try_from(size).unwrap_or(usize::MAX))
            },
            segment: args.values_segment,
        }),
        standard_error: !args.no_stderr,
        follow: !args.no_follow,
        only: ProgramFilter::new(args.only.clone()),
        randomize_addresses: !args.no_aslr,
        compress_returns: !args.no_compress_returns,
        duration: args.duration,
        ..RecordOptions::new(target, output, stop)
    }
}
