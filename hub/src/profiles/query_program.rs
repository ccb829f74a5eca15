//! The program `backtrail-query`, which answers SQL: where it is, and how it reaches the store.

use super::catalog::PREFIX;
use crate::config::{Config, S3};
use crate::error::{Error, Result};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// The name of the program, which is beside the hub's own.
const PROGRAM: &str = "backtrail-query";

/// Returns a command of the program over the store of a hub.
///
/// # Errors
/// Fails if the program is not installed.
pub fn command(config: &Config, subcommand: &str) -> Result<Command> {
    let mut command = Command::new(program(config)?);
    command
        .arg(subcommand)
        .arg("--objects")
        .arg(objects(config))
        .envs(environment(&config.s3));
    Ok(command)
}

/// Checks the addresses of workers.
///
/// # Errors
/// Fails if one is no address.
pub fn check_workers(workers: &[String]) -> Result<()> {
    let is_address = |worker: &&String| {
        let uri: Option<axum::http::Uri> = worker.parse().ok();
        uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some())
    };
    match workers.iter().find(|worker| !is_address(worker)) {
        None => Ok(()),
        Some(worker) => Err(Error::Configuration(format!(
            "query.workers has \"{}\"; write an address as http://10.0.0.2:8476",
            worker.escape_debug()
        ))),
    }
}

/// Returns the path of the program.
fn program(config: &Config) -> Result<PathBuf> {
    if let Some(program) = &config.query.program {
        return Ok(program.clone());
    }
    let own = std::env::current_exe().map_err(Error::system("find this program"))?;
    let beside = own.with_file_name(PROGRAM);
    match beside.exists() {
        true => Ok(beside),
        false => Err(Error::Absent(format!(
            "program {PROGRAM} beside the hub, which answers SQL; install it, or name it as query.program"
        ))),
    }
}

/// Returns the place of the store's files.
fn objects(config: &Config) -> OsString {
    match &config.objects {
        Some(bucket) => format!("{}/{PREFIX}", bucket.trim_end_matches('/')).into(),
        None => config.data.join("objects").join(PREFIX).into(),
    }
}

/// Returns the variables by which the program reaches a bucket.
fn environment(s3: &S3) -> Vec<(&'static str, String)> {
    let http = s3.allow_http.then(|| "true".to_owned());
    let variables = [
        ("AWS_ENDPOINT", s3.endpoint.clone()),
        ("AWS_REGION", s3.region.clone()),
        ("AWS_ALLOW_HTTP", http),
    ];
    variables
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_addresses() {
        let check = |worker: &str| check_workers(&["http://a:1".to_owned(), worker.to_owned()]);
        assert!(check("https://10.0.0.2:8476").is_ok());
        for wrong in ["127.0.0.1:8491", "", "ftp://a:1", "http://"] {
            let error = check(wrong).unwrap_err().to_string();
            assert!(
                error.contains("query.workers") && error.contains("http://10"),
                "{error}"
            );
        }
    }
}
