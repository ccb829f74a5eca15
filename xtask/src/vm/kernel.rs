//! Debian's packaged kernels: found with apt, unpacked into the target directory, never installed.

use super::{cannot, output_of};
use crate::{Failure, shell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which of Debian's kernels: the one for virtual machines, small and with its drivers built in.
const FLAVOR: &str = "-cloud-amd64";

/// A kernel, unpacked.
pub struct Kernel {
    /// The output of `uname -r` in it: `6.12.117+deb12-cloud-amd64`.
    pub release: String,
    /// Its packages, as they would stand in `/`.
    root: PathBuf,
}

impl Kernel {
    /// The bootable image.
    pub fn image(&self) -> PathBuf {
        self.root.join("boot").join(format!("vmlinuz-{}", self.release))
    }

    /// The headers for modules.
    pub fn headers(&self) -> PathBuf {
        self.root
            .join("usr/src")
            .join(format!("linux-headers-{}", self.release))
    }
}

impl Kernel {
    /// Returns these modules, each after its dependencies, without built-in ones.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<Vec<u8>>, Failure> {
        let library = self.root.join("lib/modules").join(&self.release);
        let list = library.join("modules.builtin");
        let built_in = fs::read_to_string(&list).map_err(|error| cannot("read", &list, &error))?;
        let built_in: BTreeSet<String> = built_in.lines().map(module_name).collect();
        let mut files = BTreeMap::new();
        find_modules(&library.join("kernel"), &mut files)?;

        let (mut done, mut modules) = (BTreeSet::new(), Vec::new());
        let mut waiting: Vec<String> = names.iter().rev().map(|name| (*name).to_owned()).collect();
        while let Some(name) = waiting.pop() {
            if built_in.contains(&name) || done.contains(&name) {
                continue;
            }
            let Some(file) = files.get(&name) else {
                return Err(format!("Linux {} has no module {name}", self.release));
            };
            let module = read_module(file)?;
            let mut needs = needed(&module);
            needs.retain(|need| !built_in.contains(need) && !done.contains(need));
            if needs.is_empty() {
                done.insert(name);
                modules.push(module);
            } else {
                waiting.push(name);
                waiting.extend(needs);
            }
        }
        Ok(modules)
    }
}

/// Returns the newest kernel of a series from apt, or an unpacked one if apt has none.
pub fn prepare(series: &str, folder: &Path) -> Result<Kernel, Failure> {
    let kernels = folder.join("kernels");
    fs::create_dir_all(&kernels).map_err(|error| cannot("make", &kernels, &error))?;
    let offered = newest(series, offered(series).iter().map(String::as_str));
    let unpacked = newest(series, unpacked(&kernels).iter().map(String::as_str));
    let Some(release) = offered.or(unpacked) else {
        return Err(format!(
            "no package of Linux {series} for virtual machines: apt-cache knows no linux-headers-{series}…{FLAVOR}; \
             it is in Debian 12 with its security updates, after `sudo apt-get update`"
        ));
    };
    let root = kernels.join(&release);
    if !root.exists() {
        println!("Linux {release}: fetching its packages.");
        unpack(&release, &root)?;
    }
    Ok(Kernel { release, root })
}

/// The releases of a series of which the image and the headers can be had.
fn offered(series: &str) -> Vec<String> {
    let search = |kind: &str| {
        let pattern = format!("^linux-{kind}-{}\\..*{FLAVOR}$", series.replace('.', "\\."));
        let text = shell::output("apt-cache", &["search", "--names-only", &pattern]).unwrap_or_default();
        releases(&text, kind)
    };
    let images = search("image");
    let mut both = search("headers");
    both.retain(|release| images.contains(release));
    both
}

/// Reads `apt-cache search`: a name, a dash and a description on each line.
fn releases(text: &str, kind: &str) -> Vec<String> {
    let prefix = format!("linux-{kind}-");
    text.lines()
        .filter_map(|line| line.split(' ').next()?.strip_prefix(&prefix))
        .map(str::to_owned)
        .collect()
}

fn unpacked(kernels: &Path) -> Vec<String> {
    fs::read_dir(kernels)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// The highest version of a series, by its numbers.
fn newest<'a>(series: &str, releases: impl Iterator<Item = &'a str>) -> Option<String> {
    let prefix = format!("{series}.");
    releases
        .filter(|release| release.starts_with(&prefix) && release.ends_with(FLAVOR))
        .max_by_key(|release| {
            release
                .split(|character: char| !character.is_ascii_digit())
                .filter_map(|number| number.parse::<u64>().ok())
                .collect::<Vec<_>>()
        })
        .map(str::to_owned)
}

/// Every module under a directory, by its name.
fn find_modules(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<(), Failure> {
    let entries = fs::read_dir(directory).map_err(|error| cannot("read", directory, &error))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            find_modules(&path, files)?;
        } else if path.extension().is_some_and(|kind| kind == "ko" || kind == "xz") {
            files.insert(module_name(&path.to_string_lossy()), path);
        }
    }
    Ok(())
}

/// Returns the module of a file: `ext4` for `kernel/fs/ext4/ext4.ko`. Dashes become underscores.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.split_once(".ko").map_or(file, |(name, _)| name);
    name.replace('-', "_")
}

/// A module as the kernel loads it.
fn read_module(path: &Path) -> Result<Vec<u8>, Failure> {
    if path.extension().is_some_and(|kind| kind == "xz") {
        let output = Command::new("xz").arg("-dc").arg(path).output();
        let output = output.map_err(|error| format!("cannot run xz: {error}"))?;
        if !output.status.success() {
            return Err(format!("xz cannot unpack {}", path.display()));
        }
        return Ok(output.stdout);
    }
    fs::read(path).map_err(|error| cannot("read", path, &error))
}

/// The modules that one names in its section `.modinfo`: `depends=mbcache,jbd2`, and a zero.
fn needed(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let names = &module[at + KEY.len()..];
    let end = names.iter().position(|&byte| byte == 0).unwrap_or(names.len());
    String::from_utf8_lossy(&names[..end])
        .split(',')
        .filter(|name| !name.is_empty())
        .map(module_name)
        .collect()
}

fn unpack(release: &str, root: &Path) -> Result<(), Failure> {
    let unfinished = root.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(|error| cannot("remove", &unfinished, &error))?;
    }
    let packages = unfinished.join("packages");
    fs::create_dir_all(&packages).map_err(|error| cannot("make", &packages, &error))?;

    let headers = format!("linux-headers-{release}");
    let mut names = vec![format!("linux-image-{release}"), headers.clone()];
    let depends = shell::output("apt-cache", &["depends", &headers]).unwrap_or_default();
    names.extend(headers_depend(&depends));
    shell::run(
        Command::new("apt-get")
            .args(["download", "-q", "-o", "APT::Sandbox::User=root"])
            .args(&names)
            .current_dir(&packages),
    )?;
    let entries = fs::read_dir(&packages).map_err(|error| cannot("read", &packages, &error))?;
    for package in entries.flatten() {
        output_of(
            Command::new("dpkg")
                .arg("-x")
                .arg(package.path())
                .arg(&unfinished),
        )?;
    }
    fs::remove_dir_all(&packages).map_err(|error| cannot("remove", &packages, &error))?;

    // The Makefile includes the common one by its path in an installed system.
    let makefile = unfinished.join("usr/src").join(&headers).join("Makefile");
    let text = fs::read_to_string(&makefile).map_err(|error| cannot("read", &makefile, &error))?;
    let text = text.replace("/usr/src/", &format!("{}/usr/src/", root.display()));
    fs::write(&makefile, text).map_err(|error| cannot("write", &makefile, &error))?;
    fs::rename(&unfinished, root).map_err(|error| cannot("make", root, &error))
}

/// The packages that the headers are not whole without; compilers are this machine's.
fn headers_depend(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_version_is_found_by_numbers() {
        let offered = [
            "6.1.0-9-cloud-amd64",
            "6.1.0-56-cloud-amd64",
            "6.12.117+deb12-cloud-amd64",
            "6.1.0-57-amd64",
        ];
        assert_eq!(
            newest("6.1", offered.into_iter()).unwrap(),
            "6.1.0-56-cloud-amd64"
        );
        assert_eq!(
            newest("6.12", offered.into_iter()).unwrap(),
            "6.12.117+deb12-cloud-amd64"
        );
        assert_eq!(newest("6.13", offered.into_iter()), None);
    }

    #[test]
    fn dependencies_of_a_module_are_read() {
        let module = b"\x7fELF\0license=GPL\0depends=mbcache,crc-16\0name=ext4\0";
        assert_eq!(needed(module), ["mbcache", "crc_16"]);
        assert!(needed(b"\0depends=\0name=jbd2\0").is_empty() && needed(b"").is_empty());
        for path in [
            "kernel/crypto/crc32c-generic.ko",
            "crc32c_generic.ko.xz",
            "crc32c_generic",
        ] {
            assert_eq!(module_name(path), "crc32c_generic");
        }
    }

    #[test]
    fn output_of_apt_is_parsed() {
        assert_eq!(
            releases(
                "linux-image-6.1.0-56-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)\n",
                "image"
            ),
            ["6.1.0-56-cloud-amd64"]
        );
        let depends = "linux-headers-6.1.0-56-cloud-amd64\n  Depends: linux-headers-6.1.0-56-common\n |Depends: linux-image-x\n  Depends: linux-kbuild-6.1\n  Depends: linux-compiler-gcc-12-x86\n";
        assert_eq!(
            headers_depend(depends),
            ["linux-headers-6.1.0-56-common", "linux-kbuild-6.1"]
        );
    }
}
