//! The sysfs description of a PMU: its type, its configuration terms and its capabilities.
//!
//! Source: Documentation/ABI/testing/sysfs-bus-event_source-devices-format and -caps, and how perf
//! reads them (`tools/perf/util/pmu.c`).

use crate::{Error, cpu_list};
use backtrail_pt::Cpu;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum size of a sysfs file.
const MAX_FILE: usize = 4096;

/// A PMU as sysfs describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pmu {
    /// The name of the PMU and its directory.
    pub name: String,
    /// `perf_event_attr.type` of its events.
    pub kind: u32,
    /// The configuration terms.
    pub formats: BTreeMap<String, Format>,
    /// The capabilities, as the text of `caps/NAME`.
    pub caps: BTreeMap<String, String>,
    /// The number of address filters that an event may have.
    pub address_filters: u32,
    /// The processors to open its events on; `None` means all.
    pub cpus: Option<Vec<Cpu>>,
    /// All other files of the directory, such as `max_nonturbo_ratio`.
    pub other: BTreeMap<String, String>,
}

/// The words of `perf_event_attr` that configure an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config(pub [u64; 5]);

/// The bits of a configuration term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// 0 for `config`, 1 for `config1`, and so on.
    word: usize,
    /// The bits. The lowest bit of a value goes to the lowest of them.
    mask: u64,
}

impl Format {
    /// Parses `config:0-3,8` or `config1:5`.
    ///
    /// # Errors
    /// A message about the problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let wrong = || format!("{text:?} does not name bits of a configuration");
        let (word, ranges) = text.split_once(':').ok_or_else(wrong)?;
        let word = match word.strip_prefix("config").ok_or_else(wrong)? {
            "" => 0,
            number => number
                .parse()
                .ok()
                .filter(|word| (1..5).contains(word))
                .ok_or_else(wrong)?,
        };
        let mut mask = 0;
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bits = first.parse::<u32>().ok().zip(last.parse::<u32>().ok());
            let (first, last) = bits
                .filter(|(first, last)| first <= last && *last < 64)
                .ok_or_else(wrong)?;
            mask |= (u64::MAX >> (63 - (last - first))) << first;
        }
        Ok(Self { word, mask })
    }

    /// Returns the largest value that fits.
    #[must_use]
    pub fn max(&self) -> u64 {
        match self.mask.count_ones() {
            0 => 0,
            bits => u64::MAX >> (64 - bits),
        }
    }

    /// Puts `value` into the bits. Returns `false` and changes nothing if it does not fit.
    pub fn put(&self, config: &mut Config, value: u64) -> bool {
        let Some(word) = config.0.get_mut(self.word).filter(|_| value <= self.max()) else {
            return false;
        };
        let (mut scattered, mut left) = (0u64, value);
        for bit in (0..64).filter(|bit| self.mask >> bit & 1 != 0) {
            scattered |= (left & 1) << bit;
            left >>= 1;
        }
        *word = *word & !self.mask | scattered;
        true
    }

    /// Returns the value of the bits.
    #[must_use]
    pub fn get(&self, config: &Config) -> u64 {
        let word = config.0.get(self.word).copied().unwrap_or(0);
        let bits = (0..64).filter(|bit| self.mask >> bit & 1 != 0);
        bits.enumerate()
            .fold(0, |value, (place, bit)| value | (word >> bit & 1) << place)
    }
}

impl Pmu {
    /// Returns the directory of the PMU `name` under a sysfs root.
    #[must_use]
    pub fn directory(sysfs: &Path, name: &str) -> PathBuf {
        sysfs.join("bus/event_source/devices").join(name)
    }

    /// Reads the PMU `name`, or returns `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is invalid.
    pub fn read(sysfs: &Path, name: &str) -> Result<Option<Self>, Error> {
        let directory = Self::directory(sysfs, name);
        if !directory.is_dir() {
            return Ok(None);
        }
        let mut other = files(&directory)?;
        let place = |file: &str| directory.join(file);
        let wrong = |file: &str, problem: String| Error::File {
            path: place(file),
            problem,
        };
        let kind = other
            .remove("type")
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| wrong("type", "there is no type number".to_owned()))?;
        let mut formats = BTreeMap::new();
        for (term, text) in files(&place("format"))? {
            let format = Format::parse(&text).map_err(|problem| wrong(&format!("format/{term}"), problem))?;
            formats.insert(term, format);
        }
        let address_filters = match other.remove("nr_addr_filters") {
            None => 0,
            Some(text) => text
                .trim()
                .parse()
                .map_err(|_| wrong("nr_addr_filters", format!("{text:?} is not a number")))?,
        };
        let cpus = match other.remove("cpumask") {
            None => None,
            Some(text) => Some(cpu_list::parse(&text).map_err(|problem| wrong("cpumask", problem))?),
        };
        Ok(Some(Self {
            name: name.to_owned(),
            kind,
            formats,
            caps: files(&place("caps"))?,
            address_filters,
            cpus,
            other,
        }))
    }

    /// Sets a configuration term.
    ///
    /// # Errors
    /// Fails if the PMU does not have the term, or the value does not fit.
    pub fn put(&self, config: &mut Config, term: &str, value: u64) -> Result<(), Error> {
        let name = &self.name;
        let format = self
            .formats
            .get(term)
            .ok_or_else(|| Error::Setting(format!("the PMU {name} of this kernel has no term {term:?}")))?;
        if format.put(config, value) {
            return Ok(());
        }
        let max = format.max();
        Err(Error::Setting(format!(
            "{value} is too large for the term {term:?} of the PMU {name}; use 0 to {max}"
        )))
    }
}

/// Reads the text files of a directory; returns none if the directory does not exist. Files without
/// read permission are skipped.
fn files(directory: &Path) -> Result<BTreeMap<String, String>, Error> {
    let mut found = BTreeMap::new();
    let Ok(entries) = fs::read_dir(directory) else {
        return Ok(found);
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if !path.is_file() {
            continue;
        }
        let (Ok(name), Ok(text)) = (entry.file_name().into_string(), fs::read_to_string(&path)) else {
            continue;
        };
        if text.len() > MAX_FILE {
            let problem = format!("it has more than {MAX_FILE} bytes");
            return Err(Error::File { path, problem });
        }
        found.insert(name, text);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_bit_range_scatters_a_value() {
        let format = Format::parse("config1:0-3,8,60-63\n").unwrap();
        let mut config = Config::default();
        assert_eq!(format.max(), 0x1ff);
        assert!(format.put(&mut config, 0b1_0101_1010));
        // The lowest four bits, then the one at 8, then four at the top.
        assert_eq!(config.0, [0, 0b1010 << 60 | 1 << 8 | 0b1010, 0, 0, 0]);
        assert_eq!(format.get(&config), 0b1_0101_1010);
        assert!(!format.put(&mut config, 0x200));
        assert_eq!(format.get(&config), 0b1_0101_1010);
    }

    #[test]
    fn format_without_bits_is_refused() {
        for text in [
            "",
            "config",
            "config:",
            "config:64",
            "config:3-1",
            "config5:0",
            "config0:1",
            "conf:1",
            "config:0-",
        ] {
            assert!(Format::parse(text).is_err(), "{text}");
        }
        assert_eq!(Format::parse("config:0-63").unwrap().max(), u64::MAX);
    }

    #[test]
    fn software_pmu_of_this_machine_is_read() {
        let pmu = Pmu::read(Path::new("/sys"), "software").unwrap().unwrap();
        assert_eq!(pmu.kind, 1);
        assert_eq!(Pmu::read(Path::new("/sys"), "no-such-pmu").unwrap(), None);
    }

    #[test]
    fn invalid_pmu_file_is_named_in_the_error() {
        let root = tempfile::tempdir().unwrap();
        let directory = Pmu::directory(root.path(), "odd");
        fs::create_dir_all(directory.join("format")).unwrap();
        let read = || Pmu::read(root.path(), "odd").unwrap_err().to_string();
        assert!(read().contains("odd/type: there is no type number"), "{}", read());
        fs::write(directory.join("type"), "9\n").unwrap();
        fs::write(directory.join("format/a"), "config:70\n").unwrap();
        assert!(read().contains("format/a"), "{}", read());
        fs::write(directory.join("format/a"), "config2:1\n").unwrap();
        fs::write(directory.join("cpumask"), "x").unwrap();
        assert!(read().contains("cpumask"), "{}", read());
        fs::write(directory.join("cpumask"), "1\n").unwrap();
        let pmu = Pmu::read(root.path(), "odd").unwrap().unwrap();
        assert_eq!((pmu.kind, pmu.cpus.clone()), (9, Some(vec![Cpu(1)])));
        let mut config = Config::default();
        pmu.put(&mut config, "a", 1).unwrap();
        assert_eq!(config.0[2], 2);
        assert!(
            pmu.put(&mut config, "a", 2)
                .unwrap_err()
                .to_string()
                .contains("use 0 to 1")
        );
        assert!(pmu.put(&mut config, "b", 0).is_err());
    }
}
