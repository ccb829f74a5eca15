//! A short run of the installed hub.

use super::Root;
use crate::Failure;
use crate::dist::cannot;
use std::fs;

/// Files that the package brings.
pub const FILES: &[&str] = &[
    "usr/share/man/man1/backtrail-hub.1.gz",
    "usr/share/man/man1/backtrail-hub-token.1.gz",
    "usr/share/bash-completion/completions/backtrail-hub",
    "usr/share/zsh/vendor-completions/_backtrail-hub",
    "usr/share/fish/vendor_completions.d/backtrail-hub.fish",
    "usr/lib/systemd/system/backtrail-hub.service",
    "usr/share/doc/backtrail-hub/hub.md",
    "usr/share/doc/backtrail-hub/THIRD-PARTY.txt.gz",
    "etc/backtrail-hub/hub.toml",
];
/// The folder of the hub's data.
pub const DATA: &str = "var/lib/backtrail-hub";
/// The beginning of each token.
const TOKEN: &str = "bthub_";
/// The beginning of the line that a hub prints when it serves.
const LISTENING: &str = "listening on http://127.0.0.1:";
/// Starts a hub, waits until it serves, ends it, and prints its output. A hub that ends by itself,
/// or with an error, is a failure.
const SERVE: &str = "\
set -e
cd /package-test
backtrail-hub --config /etc/backtrail-hub/hub.toml --data /package-test/hub \
    --listen 127.0.0.1:0 >hub.out &
hub=$!
for attempt in $(seq 150); do
    grep -q '^listening on ' hub.out && break
    sleep 0.2
done
kill $hub
wait $hub
cat hub.out
";

/// Creates a token in the usual folder, and runs a hub in another one.
pub fn run(root: &Root) -> Result<(), Failure> {
    let token = root.run(&[
        "backtrail-hub",
        "--config",
        "/etc/backtrail-hub/hub.toml",
        "token",
        "test",
        "--scope",
        "read",
    ])?;
    if !token.starts_with(TOKEN) {
        return Err(format!("the hub prints no token: {token}"));
    }
    let output = root.run(&["sh", "-c", SERVE])?;
    let is_served = output.starts_with(LISTENING) && output.contains(TOKEN);
    match is_served {
        true => Ok(()),
        false => Err(format!("the hub does not serve: {output}")),
    }
}

/// Fails if the purge removed the hub's data, or does not say where they are. Then removes them.
pub fn check_data(root: &Root, purging: &str) -> Result<(), Failure> {
    let data = root.0.join(DATA);
    if !data.join("hub.db").is_file() {
        return Err(format!("purging removes the hub's data in /{DATA}"));
    }
    if !purging.contains(&format!("remain in /{DATA}")) {
        return Err(format!(
            "purging does not say where the hub's data are: {purging}"
        ));
    }
    fs::remove_dir_all(&data).map_err(|error| cannot("remove", &data, &error))
}
