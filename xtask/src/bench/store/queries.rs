//! Times of queries over a made-up fleet, beside DuckDB and chdb on the same files.

use super::{Fleet, StoreOptions, output};
use crate::{Failure, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The other engines.
const PACKAGES: [&str; 2] = ["duckdb==2.0.1", "chdb==4.4.0"];

/// Prints lines as the example `fleet` does. The arguments are the engine and the store.
const SCRIPT: &str = r#"
import glob, sys, time
engine, root = sys.argv[1:]
hours = sorted(glob.glob(f"{root}/kind=samples/*/*"))
last = "/".join(hours[-1].split("/")[-2:])
SQL = """SELECT f.module, f."offset", sum(s.weight) AS w FROM {samples} s
    JOIN {stacks} k ON s.segment = k.segment AND s.stack = k.stack
    JOIN {frames} f ON f.segment = k.segment AND f.frame = k.frames[1]
    {where} GROUP BY 1, 2"""
def connect():
    if engine == "duckdb":
        import duckdb
        # Rows beyond the memory are written beside the store, not to the current directory.
        connection = duckdb.connect(config={"temp_directory": root + ".duckdb"})
        return (lambda path: f"read_parquet('{path}')"), lambda sql: connection.execute(sql).fetchall()
    import chdb
    def query(sql):
        text = chdb.query(sql, "TSV").bytes().decode()
        rows = (line.split("\t") for line in text.splitlines())
        return [(module, int(offset), int(weight)) for module, offset, weight in rows]
    return (lambda path: f"file('{path}', Parquet)"), query
table, run = connect()
for name, where, part in [("hour", "", last), ("service", "WHERE s.service = 'service-0'", "*/*")]:
    names = {kind: table(f"{root}/kind={kind}/{part}/*.parquet") for kind in ("samples", "stacks", "frames")}
    for attempt in ("first", "second"):
        begin = time.time()
        rows = run(SQL.format(where=where, **names))
        seconds = time.time() - begin
        weight, place = max((weight, f"{module}+{offset}") for module, offset, weight in rows)
        total = sum(int(weight) for _, _, weight in rows)
        print(f"{name}\t{attempt}\t{seconds:.3f}\t{len(rows)}\t{total}\t{place}={weight}", flush=True)
"#;

/// An answer: the query, the attempt, the seconds, and what engines must agree on.
struct Answer {
    query: String,
    seconds: String,
    value: String,
}

/// Writes the fleet unless it is there, and measures.
pub(super) fn measure(fleet: &Fleet, folder: &Path, options: &StoreOptions) -> Result<(), Failure> {
    let StoreOptions {
        samples,
        services,
        days,
        ..
    } = options;
    let store = folder.join(format!("fleet-{samples}-{services}-{days}"));
    if !store.join("complete").exists() {
        let _ = fs::remove_dir_all(&store);
        let numbers = [samples, services, days].map(u64::to_string);
        let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
        let _ = fleet.run(&["write"], &store, &numbers)?;
        fs::write(store.join("complete"), "").map_err(|error| error.to_string())?;
    }
    println!("\nA made-up fleet of {services} services and {days} days:\n");
    print!("{}", fleet.run(&["sizes"], &store, &[])?);
    let python = python(folder)?;
    let ours = parse(&fleet.run(&["query"], &store, &[])?);
    let mut others = Vec::new();
    for engine in ["duckdb", "chdb"] {
        let mut command = Command::new(&python);
        command.args(["-c", SCRIPT, engine]).arg(&store);
        let text = output(&mut command).unwrap_or_else(|error| {
            eprintln!("{engine} has no answer: {error}");
            String::new()
        });
        others.push((engine, parse(&text)));
    }
    println!("\n| query, attempt | ours | DuckDB | chdb | answers |\n|---|---:|---:|---:|---|");
    for (at, own) in ours.iter().enumerate() {
        let of = |(_, answers): &(&str, Vec<Answer>)| {
            answers
                .get(at)
                .map(|answer| (answer.seconds.clone(), answer.value == own.value))
        };
        let found: Vec<_> = others.iter().map(of).collect();
        let seconds = |found: &Option<(String, bool)>| {
            let seconds = found.as_ref().map(|(seconds, _)| format!("{seconds} s"));
            seconds.unwrap_or_else(|| "no answer".to_owned())
        };
        let is_equal = found.iter().flatten().all(|(_, is_equal)| *is_equal);
        println!(
            "| {} | {} s | {} | {} | {} |",
            own.query,
            own.seconds,
            found.first().map(&seconds).unwrap_or_default(),
            found.get(1).map(&seconds).unwrap_or_default(),
            if is_equal { "equal" } else { "DIFFERENT" }
        );
        if !is_equal {
            return Err(format!("the engines disagree on {}", own.query));
        }
    }
    Ok(())
}

fn parse(text: &str) -> Vec<Answer> {
    let answer = |line: &str| {
        let mut parts = line.splitn(4, '\t');
        let mut next = || parts.next().map(str::to_owned);
        let (name, attempt) = (next()?, next()?);
        Some(Answer {
            query: format!("{name}, {attempt}"),
            seconds: next()?,
            value: next()?,
        })
    };
    text.lines().filter_map(answer).collect()
}

/// Returns a Python that has the other engines.
fn python(folder: &Path) -> Result<PathBuf, Failure> {
    let environment = folder.join("engines");
    let python = environment.join("bin/python");
    if !environment.join("complete").exists() {
        shell::run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        let mut pip = Command::new(environment.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"])
            .args(PACKAGES);
        shell::run(&mut pip)?;
        fs::write(environment.join("complete"), "").map_err(|error| error.to_string())?;
    }
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_from_lines() {
        let answers = parse("hour\tfirst\t0.5\t7\t90\ta\tb\nbroken\n");
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].query, "hour, first");
        assert_eq!((&*answers[0].seconds, &*answers[0].value), ("0.5", "7\t90\ta\tb"));
    }
}
