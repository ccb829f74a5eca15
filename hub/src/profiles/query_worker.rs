//! `backtrail-hub worker`: a machine that runs parts of the SQL queries of hubs.
//!
//! The process becomes `backtrail-query worker` over the same store. The configuration is that of
//! the hubs.

use super::query_program;
use crate::config::Config;
use crate::error::{Error, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// The port of workers without an address.
const PORT: u16 = 8476;

/// The options of a worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerOptions {
    /// The address for hubs. `None`: that of the configuration.
    pub listen: Option<SocketAddr>,
    /// The maximum memory of all queries in MiB. `None`: the program's.
    pub memory: Option<u64>,
    /// The folder for rows that do not fit into memory. `None`: the system's.
    pub temp: Option<PathBuf>,
}

/// Becomes a worker. Returns only if that fails.
///
/// # Errors
/// Fails if the program is not installed, or cannot be run.
pub fn become_worker(config: &Config, options: &WorkerOptions) -> Result<()> {
    let error = command(config, options)?.exec();
    Err(Error::system("run backtrail-query")(error))
}

fn command(config: &Config, options: &WorkerOptions) -> Result<Command> {
    let listen = options.listen.or(config.query.listen);
    let listen = listen.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, PORT).into());
    let mut command = query_program::command(config, "worker")?;
    command.arg("--listen").arg(listen.to_string());
    if let Some(memory) = options.memory {
        command.arg("--memory").arg(memory.to_string());
    }
    if let Some(temp) = &options.temp {
        command.arg("--temp").arg(temp);
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Query, S3};

    fn config(listen: Option<&str>) -> Config {
        Config {
            objects: Some("s3://crashes/hub/".to_owned()),
            s3: S3 {
                endpoint: Some("http://127.0.0.1:9".to_owned()),
                allow_http: true,
                ..S3::default()
            },
            query: Query {
                program: Some("/opt/engine".into()),
                listen: listen.map(|listen| listen.parse().unwrap()),
                ..Query::default()
            },
            ..Config::default()
        }
    }

    fn words(command: &Command) -> Vec<&str> {
        command.get_args().map(|word| word.to_str().unwrap()).collect()
    }

    #[test]
    fn worker_has_the_store_and_address_of_the_configuration() {
        let command = command(&config(Some("10.0.0.2:8476")), &WorkerOptions::default()).unwrap();
        assert_eq!(command.get_program(), "/opt/engine");
        assert_eq!(
            words(&command),
            [
                "worker",
                "--objects",
                "s3://crashes/hub/profiles",
                "--listen",
                "10.0.0.2:8476"
            ]
        );
        let variables: Vec<_> = command.get_envs().collect();
        assert!(variables.contains(&("AWS_ENDPOINT".as_ref(), Some("http://127.0.0.1:9".as_ref()))));
        assert!(variables.contains(&("AWS_ALLOW_HTTP".as_ref(), Some("true".as_ref()))));
    }

    #[test]
    fn options_replace_the_configuration() {
        let options = WorkerOptions {
            listen: Some("127.0.0.1:1".parse().unwrap()),
            memory: Some(64),
            temp: Some("/tmp/rows".into()),
        };
        let command = command(&config(Some("10.0.0.2:8476")), &options).unwrap();
        assert_eq!(
            words(&command)[3..],
            ["--listen", "127.0.0.1:1", "--memory", "64", "--temp", "/tmp/rows"]
        );
        let without = super::command(&config(None), &WorkerOptions::default()).unwrap();
        assert_eq!(words(&without)[4], "127.0.0.1:8476");
    }
}
