//! The unit of the collector (systemd.service(5), systemd.exec(5), systemd.resource-control(5)).

use super::words::{argument, listed, program};
use crate::config::{Config, TraceSource};
use crate::error::Result;
use crate::heap::MAX_PROCESSES;
use crate::privilege;
use std::fmt::Write;
use std::path::Path;

/// The name of the unit.
pub const NAME: &str = "backtrail-collect.service";

/// The name of the unit that creates its directories.
pub const DIRECTORIES: &str = "backtrail-directories.service";

/// Capabilities in addition to [`privilege::NEEDED`], until the daemon drops them.
const AT_THE_START: [(&str, &str); 3] = [
    ("CAP_SETPCAP", "drop the other capabilities"),
    ("CAP_FOWNER", "let the group of `user` read the spool"),
    (
        "CAP_DAC_OVERRIDE",
        "take the spool back that an earlier version gave to another user",
    ),
];

/// Needed for opening events where `kernel.perf_event_paranoid` is above 2, which only Debian's
/// kernels have. Recent kernels require it for uprobes.
const FOR_EVENTS: (&str, &str) = (
    "CAP_SYS_ADMIN",
    "open events where kernel.perf_event_paranoid is 3, and uprobes; kept with [heap], and with [profile] where events need it, else dropped after the start",
);

/// The machine that the unit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetMachine {
    /// Its number of processors.
    pub processors: usize,
    /// Whether it has Intel PT.
    pub intel_pt: bool,
    /// Whether its kernel requires `CAP_SYS_ADMIN` for opening events.
    pub restricted: bool,
}

/// The program that puts the units on a machine. Their first lines say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installer {
    /// `backtrail install`.
    Command,
    /// The package manager.
    Package,
}

impl Installer {
    /// Returns the beginning of the first line of a unit.
    fn origin(self) -> &'static str {
        match self {
            Self::Command => "Written by `backtrail install`",
            Self::Package => "Installed by the package `backtrail`",
        }
    }

    /// Returns the comment at the top of the collector's unit.
    fn head(self, file: &Path) -> String {
        let after = match self {
            Self::Command => "run `backtrail install --overwrite`.",
            Self::Package => "run `backtrail install`: its unit replaces this one.",
        };
        format!(
            "\
# {}. Put your own changes into a drop-in: systemctl edit {NAME}
# It depends on the spool, the runtime directory, the ring size and the hub in {}.
# After changing one of them, {after}
",
            self.origin(),
            file.display()
        )
    }
}

/// Memory for the daemon and the bundle that is being written, without trace copies and sideband.
const MEMORY: u64 = 512 << 20;
/// Memory for the sender, most of it pages of the files that it packs.
const SENDER: u64 = 256 << 20;
/// Memory for the profiler, with the unwind tables of programs.
const PROFILER: u64 = 256 << 20;
/// Hides the kernel's log, and the addresses of its functions.
const HIDE_KERNEL: &str = "ProtectKernelLogs=yes\n";
const SHOW_KERNEL: &str = "\
# The profiler reads the names of kernel functions: no ProtectKernelLogs=.
";
/// The network of a collector without a hub, and of one with a hub.
const LOCAL_ONLY: &str = "\
# It communicates only over local Unix sockets.
RestrictAddressFamilies=AF_UNIX
IPAddressDeny=any
";
const TO_THE_HUB: &str = "\
# Its sender, which has no privileges, connects to the hub.
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
";
const PROFILES_TO_THE_HUB: &str = "\
# Its sender, which has no privileges, and the profiler connect to the hub.
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
";

/// Returns the unit that runs `binary collect --config file` on a machine.
///
/// # Errors
/// When a path cannot be written in a unit.
pub fn collector(
    binary: &Path,
    file: &Path,
    config: &Config,
    machine: TargetMachine,
    installer: Installer,
) -> Result<String> {
    let processors = machine.processors;
    let command = format!("{} collect --config {}", program(binary)?, argument(file)?);
    let (runtime, made) = runtime(&config.runtime)?;
    let mut writable = listed(&config.spool)?;
    if !made {
        write_to(&mut writable, format_args!(" {}", listed(&config.runtime)?));
    }
    let (reasons, capabilities) = capabilities(
        attaches_uprobes(config) || machine.restricted && opens_events(config, machine.intel_pt),
        config.profile.enabled,
    );
    let copies = config.trace.ring.0.saturating_mul(processors as u64);
    let memory = MEMORY
        .saturating_add(config.trace.sideband.0)
        .saturating_add(copies.saturating_mul(2));
    let heap = match config.heap.services.is_empty() {
        true => 0,
        false => config.heap.ring.0.saturating_mul(MAX_PROCESSES as u64),
    };
    let memory = memory.saturating_add(heap);
    let sends = config.hub.url.is_some();
    let memory = memory.saturating_add(if sends { SENDER } else { 0 });
    let memory = memory.saturating_add(if config.profile.enabled { PROFILER } else { 0 });
    let (network, kernel) = match (sends, config.profile.enabled) {
        (true, true) => (PROFILES_TO_THE_HUB, SHOW_KERNEL),
        (true, false) => (TO_THE_HUB, HIDE_KERNEL),
        (false, _) => (LOCAL_ONLY, HIDE_KERNEL),
    };
    let (memory, ring) = (memory.div_ceil(1 << 20), config.trace.ring);
    let head = installer.head(file);
    Ok(format!(
        "\
{head}
[Unit]
Description=Backtrail collector: keeps the last moments of processes that crash
# Services that set core_pattern at boot come first, so that their value can be chained to and restored.
After=local-fs.target systemd-sysctl.service apport.service
# It creates the directories of ReadWritePaths=, without which this unit cannot start.
Requires={DIRECTORIES}
After={DIRECTORIES}
# Restart it however often it fails.
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
# Restores core_pattern if the daemon was killed. The guard may do so first, which is not a failure.
ExecStopPost=-{command} --restore
Restart=always
RestartSec=2
# The daemon notifies systemd once a second.
WatchdogSec=30
TimeoutStopSec=30
# SIGTERM goes only to the daemon: its guard runs until core_pattern is restored.
KillMode=mixed
{runtime}
# Capabilities. After its start, the daemon drops all but the first twelve, with [heap]
# CAP_SYS_ADMIN, and with [profile] CAP_SYSLOG. Each worker drops all of them after opening the files of its process.
{reasons}CapabilityBoundingSet={capabilities}
NoNewPrivileges=yes
# Crashes are read at real-time priority, with locked memory: no RestrictRealtime=.
LimitMEMLOCK=infinity
# A few descriptors for each processor.
LimitNOFILE=65536
OOMScoreAdjust=-500

# It writes /proc/sys/kernel/core_pattern: no ProtectKernelTunables=, which makes that read-only.
# It reads all processes and their open files: no ProtectProc=, no PrivateUsers=, no ProtectHome=.
# The kernel starts the crash handler and connects to the socket by a path outside of this unit: no
# PrivateTmp=, RootDirectory= or TemporaryFileSystem=, which would change that path. ProtectSystem=
# only makes files read-only.
ProtectSystem=strict
ReadWritePaths={writable}
ProtectControlGroups=yes
{kernel}ProtectClock=yes
DevicePolicy=closed
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictNamespaces=yes
# Paths of other users are resolved with openat2(), which RestrictSUIDSGID= blocks.
{network}# The system calls of services, and perf_event_open, ptrace (@debug) and bpf. Workers need chroot
# and seccomp. All others fail, and the failure is logged.
SystemCallArchitectures=native
SystemCallFilter=@system-service @debug bpf chroot seccomp
SystemCallErrorNumber=EPERM

# Resource limits, so that the rest of the machine keeps working during a storm of crashes.
# The kernel does not count threads with real-time priority here.
CPUQuota=100%
# {}M, the sideband, heap records, and twice the trace copies: {ring} for each of {processors} processors.
MemoryMax={memory}M

[Install]
WantedBy=multi-user.target
",
        MEMORY >> 20,
    ))
}

/// Returns the unit that creates, at each start of the collector, the directories that systemd does
/// not create.
///
/// The collector's own unit cannot do this, because systemd runs none of its commands before the
/// directories of `ReadWritePaths=` exist (systemd.exec(5)).
///
/// # Errors
/// When a path cannot be written in a unit.
pub fn directories(config: &Config, installer: Installer) -> Result<String> {
    let mut paths = listed(&config.spool)?;
    // Cores contain secrets of programs.
    let mut commands = format!("ExecStart=/bin/mkdir -p -m 0700 {}\n", argument(&config.spool)?);
    if !runtime(&config.runtime)?.1 {
        write_to(&mut paths, format_args!(" {}", listed(&config.runtime)?));
        let path = argument(&config.runtime)?;
        write_to(&mut commands, format_args!("ExecStart=/bin/mkdir -p {path}\n"));
    }
    let origin = installer.origin();
    Ok(format!(
        "\
# {origin}, for {NAME}, which starts it.

[Unit]
Description=Backtrail collector: its directories
RequiresMountsFor={paths}

[Service]
Type=oneshot
# Existing directories are not changed.
{commands}"
    ))
}

/// Returns the lines for the runtime directory, and whether systemd creates it.
fn runtime(directory: &Path) -> Result<(String, bool)> {
    let why =
        "# It contains the handler for core_pattern and the previous pattern, so it outlives the daemon.\n";
    match directory.strip_prefix("/run") {
        Ok(name) if name.components().next().is_some() => {
            let name = listed(name)?;
            Ok((
                format!("{why}RuntimeDirectory={name}\nRuntimeDirectoryPreserve=yes\n"),
                true,
            ))
        }
        _ => Ok((String::new(), false)),
    }
}

/// Returns whether the daemon opens perf events at its start. The probe needs none.
fn opens_events(config: &Config, intel_pt: bool) -> bool {
    let traces = match config.trace.source {
        TraceSource::Auto => intel_pt,
        TraceSource::Hardware => true,
        TraceSource::None => false,
    };
    traces || attaches_uprobes(config) || config.profile.enabled
}

/// Returns whether the daemon attaches uprobes.
fn attaches_uprobes(config: &Config) -> bool {
    !config.function.is_empty() || !config.heap.services.is_empty()
}

/// Returns a comment for each capability, and the list of all.
fn capabilities(events: bool, profiler: bool) -> (String, String) {
    let needed = privilege::NEEDED.into_iter();
    let needed = needed.chain(profiler.then_some(privilege::FOR_KERNEL_NAMES));
    let needed = needed.map(|(capability, why)| (capability.to_string(), why));
    let first = AT_THE_START
        .into_iter()
        .chain(events.then_some(FOR_EVENTS))
        .map(|(name, why)| (name.to_owned(), why));
    let (mut reasons, mut names) = (String::new(), Vec::new());
    for (name, why) in needed.chain(first) {
        write_to(&mut reasons, format_args!("# {name}: {why}\n"));
        names.push(name);
    }
    (reasons, names.join(" "))
}

/// Appends to a string, which cannot fail.
fn write_to(text: &mut String, more: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(more);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const MACHINE: TargetMachine = TargetMachine {
        processors: 4,
        intel_pt: false,
        restricted: true,
    };

    fn unit(config: &Config) -> String {
        collector(
            Path::new("/usr/bin/backtrail"),
            Path::new("/etc/backtrail/collect.toml"),
            config,
            MACHINE,
            Installer::Command,
        )
        .unwrap()
    }

    fn has(unit: &str, line: &str) -> bool {
        unit.lines().any(|known| known == line)
    }

    #[test]
    fn unit_has_the_required_settings() {
        let unit = unit(&Config::default());
        for line in [
            "Type=notify",
            "ExecStart=/usr/bin/backtrail collect --config /etc/backtrail/collect.toml",
            "ExecStopPost=-/usr/bin/backtrail collect --config /etc/backtrail/collect.toml --restore",
            "Requires=backtrail-directories.service",
            "After=backtrail-directories.service",
            "ReadWritePaths=/var/spool/backtrail",
            "RuntimeDirectory=backtrail",
            "RuntimeDirectoryPreserve=yes",
            "KillMode=mixed",
            "MemoryMax=560M",
        ] {
            assert!(has(&unit, line), "{line}\n{unit}");
        }
        let (_, capabilities) = capabilities(false, false);
        for (needed, _) in privilege::NEEDED {
            assert!(capabilities.contains(&needed.to_string()), "{needed}");
        }
        let set = |key: &str| unit.lines().any(|line| line.starts_with(key));
        for harmful in [
            "ProtectKernelTunables=",
            "PrivateTmp=",
            "ProtectProc=",
            "PrivateUsers=",
            "RestrictRealtime=",
            "User=",
        ] {
            assert!(!set(harmful), "{harmful}");
        }
    }

    #[test]
    fn other_directories_are_created_and_writable() {
        let config = Config {
            spool: "/srv/crash spool".into(),
            runtime: "/srv/run".into(),
            ..Config::default()
        };
        let made = directories(&config, Installer::Command).unwrap();
        for line in [
            "RequiresMountsFor=\"/srv/crash spool\" /srv/run",
            "ExecStart=/bin/mkdir -p -m 0700 \"/srv/crash spool\"",
            "ExecStart=/bin/mkdir -p /srv/run",
        ] {
            assert!(has(&made, line), "{line}\n{made}");
        }
        let usual = directories(&Config::default(), Installer::Command).unwrap();
        assert!(!usual.contains("/run"));
        let unit = unit(&config);
        assert!(has(&unit, "ReadWritePaths=\"/srv/crash spool\" /srv/run"));
        assert!(!unit.contains("RuntimeDirectory="));
    }

    #[test]
    fn network_is_allowed_only_with_a_hub() {
        let mut config = Config::default();
        assert!(has(&unit(&config), "IPAddressDeny=any"));
        config.hub.url = Some("https://hub.example.com".to_owned());
        let unit = unit(&config);
        assert!(!unit.contains("IPAddressDeny="));
        assert!(has(&unit, "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6"));
        assert!(has(&unit, "MemoryMax=816M"));
    }

    #[test]
    fn units_name_their_installer() {
        let config = Config::default();
        for (installer, origin, other) in [
            (Installer::Command, "Written by `backtrail install`", "package"),
            (
                Installer::Package,
                "Installed by the package `backtrail`",
                "Written",
            ),
        ] {
            let (binary, file) = (Path::new("/usr/bin/backtrail"), Path::new("/etc/x.toml"));
            for unit in [
                collector(binary, file, &config, MACHINE, installer).unwrap(),
                directories(&config, installer).unwrap(),
            ] {
                let first = unit.lines().next().unwrap();
                assert!(first.starts_with(&format!("# {origin}")), "{first}");
                assert!(!unit.contains(other), "{unit}");
            }
        }
    }

    #[test]
    fn sys_admin_is_granted_only_where_needed() {
        let admin = |config: &Config, machine| {
            let (path, file) = (Path::new("/b"), Path::new("/c"));
            let unit = collector(path, file, config, machine, Installer::Package).unwrap();
            unit.lines()
                .any(|line| line.starts_with("CapabilityBoundingSet=") && line.contains("CAP_SYS_ADMIN"))
        };
        let config = Config::default();
        let traced = TargetMachine {
            intel_pt: true,
            ..MACHINE
        };
        assert!(!admin(&config, MACHINE) && admin(&config, traced));
        let mut untraced = config.clone();
        untraced.trace.source = TraceSource::None;
        assert!(!admin(&untraced, traced));
        let text = "[[function]]\nbinary = \"/bin/x\"\nsymbol = \"y\"\n";
        let functions: Config = toml::from_str(text).unwrap();
        assert!(admin(&functions, MACHINE));
        let mainline = TargetMachine {
            restricted: false,
            ..traced
        };
        assert!(admin(&functions, mainline) && !admin(&config, mainline));
        let heap: Config = toml::from_str("[heap]\nservices = [\"web\"]\n").unwrap();
        assert!(admin(&heap, mainline));
        let text = unit(&heap);
        assert!(has(&text, "MemoryMax=1584M"), "{text}");
    }

    /// Checks the unit with `systemd-analyze` (package systemd), if it is installed.
    #[test]
    fn systemd_accepts_the_unit() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(NAME);
        let binary = Path::new("/bin/true");
        let (file_of_config, config) = (Path::new("/etc/x.toml"), Config::default());
        let text = collector(binary, file_of_config, &config, MACHINE, Installer::Command).unwrap();
        std::fs::write(&file, &text).unwrap();
        std::fs::write(
            directory.path().join(DIRECTORIES),
            directories(&Config::default(), Installer::Command).unwrap(),
        )
        .unwrap();
        let verify = |file: &Path| {
            Command::new("systemd-analyze")
                .args(["verify", "--man=no"])
                .arg(file)
                .output()
        };
        let Ok(output) = verify(&file) else {
            println!("systemd-analyze is not installed (apt-get install systemd); the unit is not verified.");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let about = |said: &str| {
            said.lines()
                .filter(|line| line.contains(NAME) || line.contains(DIRECTORIES))
                .count()
        };
        assert!(output.status.success() && about(&said) == 0, "{said}");
        // Shows that the check finds errors.
        std::fs::write(&file, text.replace("KillMode=mixed", "KillMode=gently")).unwrap();
        let output = verify(&file).unwrap();
        assert_ne!(about(&String::from_utf8_lossy(&output.stderr)), 0, "{output:?}");
    }
}
