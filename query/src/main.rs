//! The binary `backtrail-query`: SQL over the profile store.
#![forbid(unsafe_code)]

mod arguments;
mod check;
mod coverage;
mod damage;
mod distributed;
mod engine;
mod error;
mod functions;
mod listing;
mod names;
mod objects;
mod output;
mod request;
mod segment;
mod session;
mod spill;
mod tables;
mod watchdog;

use arguments::{Arguments, Command, RunArguments, SqlArguments, WorkerArguments};
use clap::Parser;
use coverage::Coverage;
use distributed::Token;
use engine::Query;
use error::{Error, Result};
use request::{Format, Request};
use spill::SpillFolder;
use std::future::Future;
use std::io::{BufWriter, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use watchdog::Watchdog;

/// The stack of a thread. Planning recurses as deep as the query has words.
const STACK_BYTES: usize = 256 << 20;
/// The threads that read files.
const FILE_THREADS: usize = 16;

fn main() -> ExitCode {
    // A panic in a library is reported as the error of its task.
    std::panic::set_hook(Box::new(|_| ()));
    let result = match Arguments::parse().command {
        Command::Run(arguments) => run(&arguments),
        Command::Sql(arguments) => sql(&arguments),
        Command::Worker(arguments) => worker(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::from(error.status())
        }
    }
}

/// Writes an error to standard error.
fn report(error: &Error) {
    eprintln!("backtrail-query: {error}");
}

/// Answers the request on standard input.
fn run(arguments: &RunArguments) -> Result<()> {
    let request = Request::read(std::io::stdin().lock())?;
    let coverage = within_limits(
        arguments.temp.as_deref(),
        request,
        &arguments.objects,
        false,
        arguments.workers.clone(),
    )?;
    eprintln!("{}", coverage.json());
    Ok(())
}

/// Answers a query of the command line.
fn sql(arguments: &SqlArguments) -> Result<()> {
    let request = Request {
        sql: arguments.sql.clone(),
        limits: arguments.limits(),
        format: arguments.format(),
        ..Request::default()
    };
    let is_for_people = request.format == Format::Table;
    let coverage = within_limits(
        arguments.temp.as_deref(),
        request,
        &arguments.store,
        true,
        Vec::new(),
    )?;
    match is_for_people {
        true => eprintln!("{}", coverage.text()),
        false => eprintln!("{}", coverage.json()),
    }
    Ok(())
}

/// Runs parts of queries until the process ends.
fn worker(arguments: &WorkerArguments) -> Result<()> {
    let temp = arguments.temp.clone().unwrap_or_else(std::env::temp_dir);
    let spill = SpillFolder::create(&temp)?;
    let objects = objects::open(&arguments.objects)?;
    let token = Token::of_environment()?;
    let (address, limits) = (arguments.listen, arguments.limits());
    on_runtime(async move {
        let ended = async { drop(tokio::signal::ctrl_c().await) };
        let served = distributed::serve(address, objects, limits, spill.path(), token, |address| {
            println!("listening on {address}");
        });
        tokio::select! {
            result = served => result,
            () = ended => Ok(()),
        }
    })?
}

/// Runs a query under its limits of time and memory. `lists` says to list the store's segments.
fn within_limits(
    temp: Option<&Path>,
    mut request: Request,
    place: &str,
    lists: bool,
    workers: Vec<url::Url>,
) -> Result<Coverage> {
    let temp = temp.map_or_else(std::env::temp_dir, Path::to_owned);
    let spill = SpillFolder::create(&temp)?;
    let path = spill.path().to_owned();
    let spill = Arc::new(Mutex::new(Some(spill)));
    let limits = request.limits;
    let spill_of_watch = Arc::clone(&spill);
    let place = place.to_owned();
    let result = on_runtime(async move {
        let exceeded = move |error: Error| {
            report(&error);
            drop(
                spill_of_watch
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take(),
            );
            std::process::exit(error.status().into());
        };
        let watch = Watchdog::start(limits.seconds, limits.memory_bytes, exceeded)?;
        let objects = objects::open(&place)?;
        if lists {
            request.segments = listing::segments(&objects).await?;
        }
        let query = Query {
            request,
            objects,
            workers,
            spill: &path,
        };
        let result = query.run(BufWriter::new(stdout())).await;
        drop(watch);
        result
    })?;
    drop(spill.lock().unwrap_or_else(PoisonError::into_inner).take());
    result
}

/// Runs a task on threads of its own, and returns its result.
fn on_runtime<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK_BYTES)
        .max_blocking_threads(FILE_THREADS)
        .build()
        .map_err(|error| Error::System {
            action: "start threads",
            reason: error.to_string(),
        })?;
    let task = runtime.spawn(task);
    let result = runtime.block_on(task);
    // Unfinished reads end with the process.
    runtime.shutdown_background();
    result.map_err(|error| Error::Failed(format!("an internal error: {error}")))
}
