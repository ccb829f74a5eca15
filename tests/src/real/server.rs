//! Servers: start, requests of clients, and stop.

use super::child::{Child, Ended, Limit};
use super::{Server, Workspace};
use crate::programs::Ending;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{io, thread};

/// Runs `command` (the server, recorded or not) with requests of its clients. The outputs of the
/// clients are compared in place of its own.
///
/// The time is from the server's start to its end.
///
/// # Errors
///
/// The server does not listen, ends early, or does not end when asked to; a client fails.
pub(super) fn run(
    server: &Server,
    command: Command,
    workspace: &Workspace,
    limit: Limit,
) -> io::Result<Ended> {
    let mut running = Child::start(command, workspace.folder(), "server")?;
    wait_until_ready(server, &mut running, workspace, limit)?;
    let mut output = Vec::new();
    for client in server.clients {
        let ended = workspace.run(workspace.command(client)?, "client", limit)?;
        output.extend(ended.succeeded(&client.join(" "))?.stdout);
    }
    let _ = workspace
        .run(workspace.command(server.stop)?, "stop", limit)?
        .succeeded("asking the server to end")?;
    let mut ended = running.wait(limit)?;
    // The recorder's report is in the server's output and must stay last.
    output.append(&mut ended.stdout);
    ended.stdout = output;
    Ok(ended)
}

fn wait_until_ready(
    server: &Server,
    running: &mut Child,
    workspace: &Workspace,
    limit: Limit,
) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    while !is_ready(server, workspace, limit)? {
        if !running.is_running()? {
            return Err(io::Error::other(format!(
                "the server ended at once: {}",
                running.said()
            )));
        }
        if Instant::now() > deadline {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "the server did not serve within {} s: {}",
                    limit.as_secs(),
                    running.said()
                ),
            ));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn is_ready(server: &Server, workspace: &Workspace, limit: Limit) -> io::Result<bool> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, workspace.port()));
    if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
        return Ok(false);
    }
    if server.ready.is_empty() {
        return Ok(true);
    }
    let ended = workspace.run(workspace.command(server.ready)?, "ready", limit)?;
    Ok(ended.ending == Ending::Exit(0))
}
