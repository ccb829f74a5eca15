//! The systemd unit of the hub.

use std::path::Path;

/// The name of the unit.
pub const NAME: &str = "backtrail-hub.service";
/// The configuration that the unit names.
pub const CONFIG: &str = "/etc/backtrail-hub/hub.toml";
/// The path of the program that a package installs.
const PACKAGED: &str = "/usr/bin/backtrail-hub";

/// Returns the unit for an installed program.
#[must_use]
pub fn unit(program: &Path) -> String {
    let origin = format!("Printed by `backtrail-hub unit`. Save it as /etc/systemd/system/{NAME}.");
    text(&origin, program)
}

/// Returns the unit that a package contains.
#[must_use]
pub fn packaged() -> String {
    let origin = format!(
        "Installed by the package `backtrail-hub`. Put your own changes into a drop-in: systemctl edit {NAME}"
    );
    text(&origin, Path::new(PACKAGED))
}

/// Returns the unit. Its first line is the origin.
fn text(origin: &str, program: &Path) -> String {
    let program = program.display();
    format!(
        "\
# {origin}
[Unit]
Description=Backtrail hub: keeps and shows the crashes of a team
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
ExecStart=\"{program}\" --config {CONFIG} --data /var/lib/backtrail-hub
# Keys of the bucket: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
EnvironmentFile=-/etc/backtrail-hub/environment
Restart=on-failure
RestartSec=2
# The last requests have 20 seconds.
TimeoutStopSec=40
# SIGTERM goes to the hub, which ends its child processes.
KillMode=mixed
# A child process that needs too much memory is killed, and its bundle is refused.
OOMPolicy=continue

# A user that exists while the hub runs. Secrets of the configuration are files that this user can
# read: name them in LoadCredential=.
DynamicUser=yes
StateDirectory=backtrail-hub
StateDirectoryMode=0700
UMask=0077
LimitNOFILE=16384

# For ports below 1024, add CAP_NET_BIND_SERVICE to both, and remove PrivateUsers=.
CapabilityBoundingSet=
AmbientCapabilities=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
ProtectClock=yes
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProcSubset=pid
RemoveIPC=yes
KeyringMode=private
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
# The system calls of services. Child processes limit themselves by the last four.
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallFilter=seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The most exposure that `systemd-analyze security` may find, in tenths.
    const EXPOSURE: &str = "15";

    /// Runs `systemd-analyze`, and returns whether it succeeded and what it printed. `None`: it is
    /// not installed.
    fn analyze(arguments: &[&str], unit: &Path) -> Option<(bool, String)> {
        let output = Command::new("systemd-analyze").args(arguments).arg(unit).output();
        let Ok(output) = output else {
            println!("left out: systemd-analyze is not installed (apt-get install systemd)");
            return None;
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let text = text(&output.stdout) + &text(&output.stderr);
        Some((output.status.success(), text))
    }

    #[test]
    fn systemd_accepts_the_unit_and_finds_it_confined() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        std::fs::write(&path, unit(&std::env::current_exe().unwrap())).unwrap();
        let Some((is_valid, text)) = analyze(&["verify"], &path) else {
            return;
        };
        // Warnings name the file.
        assert!(is_valid && !text.contains(NAME), "{text}");
        let threshold = format!("--threshold={EXPOSURE}");
        let security = ["security", "--offline=true", &threshold];
        let Some((is_confined, text)) = analyze(&security, &path) else {
            return;
        };
        assert!(is_confined && text.contains("Overall exposure level"), "{text}");
    }

    #[test]
    fn unit_names_the_program_once() {
        let text = unit(Path::new("/opt/hub 1/backtrail-hub"));
        assert_eq!(text.matches("ExecStart=").count(), 1);
        assert!(text.contains("ExecStart=\"/opt/hub 1/backtrail-hub\" --config"));
    }

    #[test]
    fn unit_of_the_package_differs_in_origin_and_program() {
        let (packaged, printed) = (packaged(), unit(Path::new(PACKAGED)));
        assert!(packaged.starts_with("# Installed by the package `backtrail-hub`"));
        assert!(printed.starts_with("# Printed by `backtrail-hub unit`"));
        let rest = |text: &str| text.split_once('\n').unwrap().1.to_owned();
        assert_eq!(rest(&packaged), rest(&printed));
    }
}
