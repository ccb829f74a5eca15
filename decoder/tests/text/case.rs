//! A test file: a trace, and the expected result of its decode.

use crate::address::{Labels, number};
use crate::code::Stretch;
use crate::compare::shared;
use crate::record::{WORDS, record};
use crate::{calls, packets};
use backtrail_decoder::engine::native::Native;
use backtrail_decoder::{AddressFilter, Config, Engine, FilterKind, Image};
use backtrail_oracle::Libipt;
use backtrail_pt::Avma;

/// A parsed file.
pub struct Case {
    config: Config,
    image: Image,
    trace: Vec<u8>,
    addresses: Labels,
    offsets: Labels,
    /// Why libipt differs.
    differs: Option<String>,
    /// Why the native engine differs.
    pub ignored: Option<String>,
    expected: Option<Vec<String>>,
    /// The calls, indented by depth.
    calls: Option<Vec<String>>,
}

/// The keyword of the current section.
enum Section {
    None,
    Code,
    Packets,
    Expect,
    Calls,
}

/// The parts of a file under construction.
#[derive(Default)]
struct Parts<'a> {
    code: Vec<Stretch<'a>>,
    packets: Vec<&'a str>,
    filters: Vec<(FilterKind, &'a str)>,
}

impl Case {
    /// Parses a file.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with("# ") {
            return Err("the first line does not say what it shows".to_owned());
        }
        let mut case = Self {
            config: Config::default(),
            image: Image::new(),
            trace: Vec::new(),
            addresses: Labels::default(),
            offsets: Labels::default(),
            differs: None,
            ignored: None,
            expected: None,
            calls: None,
        };
        let mut parts = Parts::default();
        let mut section = Section::None;
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim_end();
            let read = if line.is_empty() {
                Ok(())
            } else if line.starts_with(' ') {
                case.line(line, &section, &mut parts)
            } else {
                case.keyword(line, &mut section, &mut parts)
            };
            read.map_err(|error| format!("line {}: {error}", number + 1))?;
        }
        for stretch in &parts.code {
            stretch.add_to(&mut case.image, &case.addresses)?;
        }
        for (kind, range) in parts.filters {
            let (start, end) = range.split_once("..").ok_or("a filter needs `..`")?;
            let [start, end] = [start, end].map(|at| case.addresses.value(at));
            let range = Avma(start?)..Avma(end?);
            case.config.filters.push(AddressFilter { range, kind });
        }
        for line in parts.packets {
            packets::push(line, &case.addresses, &mut case.offsets, &mut case.trace)?;
        }
        Ok(case)
    }

    fn keyword<'a>(
        &mut self,
        line: &'a str,
        section: &mut Section,
        parts: &mut Parts<'a>,
    ) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        let mut now = Section::None;
        match word {
            "cpu" => self.config.cpu = Some(rest.parse().map_err(|error| format!("{error}"))?),
            "timing" => self.timing(rest)?,
            "filter" => parts.filters.push((FilterKind::Filter, rest)),
            "stop" => parts.filters.push((FilterKind::Stop, rest)),
            "label" => {
                let (name, at) = rest.split_once(' ').ok_or("a label needs an address")?;
                self.addresses.define(name, number(at.trim())?)?;
            }
            "libipt:" => {
                let reason = rest
                    .strip_prefix("differs, ")
                    .ok_or("`libipt:` needs `differs, REASON`")?;
                self.differs = Some(reason.to_owned());
            }
            "ignored:" if !rest.is_empty() => self.ignored = Some(rest.to_owned()),
            "code" => {
                parts.code.push(Stretch::new(rest)?);
                now = Section::Code;
            }
            "packets" if rest.is_empty() => now = Section::Packets,
            "expect" if rest.is_empty() => {
                self.expected = Some(Vec::new());
                now = Section::Expect;
            }
            "calls" if rest.is_empty() => {
                self.calls = Some(Vec::new());
                now = Section::Calls;
            }
            _ => return Err(format!("unknown keyword `{word}`")),
        }
        *section = now;
        Ok(())
    }

    fn line<'a>(&mut self, line: &'a str, section: &Section, parts: &mut Parts<'a>) -> Result<(), String> {
        match section {
            Section::None => return Err("indented, and belongs to no keyword".to_owned()),
            Section::Code => {
                let stretch = parts.code.last_mut().ok_or("no code has begun")?;
                stretch.push(line, &mut self.addresses)?;
            }
            Section::Packets => parts.packets.push(line),
            Section::Expect => {
                let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
                let event = line.split_once(" * ").map_or(&*line, |(_, event)| event);
                let word = event.split(' ').next().unwrap_or_default();
                if !WORDS.contains(&word) {
                    return Err(format!("unknown keyword `{word}`"));
                }
                self.expected.get_or_insert_default().push(line);
            }
            Section::Calls => {
                let line = line.strip_prefix("  ").ok_or("indented by one")?;
                self.calls.get_or_insert_default().push(line.to_owned());
            }
        }
        Ok(())
    }

    fn timing(&mut self, words: &str) -> Result<(), String> {
        let timing = &mut self.config.timing;
        for word in words.split_whitespace() {
            let (name, value) = word.split_once(':').ok_or("a timing needs `:`")?;
            let value = number(value)?;
            let small = u8::try_from(value).map_err(|error| format!("{word}: {error}"));
            let wide = u32::try_from(value).map_err(|error| format!("{word}: {error}"));
            match name {
                "mtc" => timing.mtc_freq = small?,
                "nom" => timing.nom_freq = small?,
                "eax" => timing.cpuid_15h_eax = wide?,
                "ebx" => timing.cpuid_15h_ebx = wide?,
                _ => return Err(format!("unknown keyword `{name}`")),
            }
        }
        Ok(())
    }

    fn decode(&self, engine: &dyn Engine) -> Vec<String> {
        let Self {
            trace, image, config, ..
        } = self;
        record(engine, trace, image, config, &self.addresses, &self.offsets)
    }

    fn find_calls(&self, engine: &dyn Engine) -> Vec<String> {
        let Self {
            trace, image, config, ..
        } = self;
        calls::calls(engine, trace, image, config, &self.addresses)
    }

    /// Decodes with all engines, and returns differences.
    pub fn check(&self) -> Result<(), String> {
        let expected = self.expected.as_ref().filter(|lines| !lines.is_empty());
        let expected = expected.ok_or("nothing is expected")?;
        for line in expected.iter().chain(self.calls.iter().flatten()) {
            self.addresses.use_in(line);
            self.offsets.use_in(line);
        }
        for labels in [&self.addresses, &self.offsets] {
            if let Some(name) = labels.unused() {
                return Err(format!("label `{name}` is not used"));
            }
        }
        let native = self.decode(&Native);
        match (&self.ignored, native == *expected) {
            (None, false) => return Err(differ("native", expected, &native)),
            (Some(_), true) => return Err("ignored, but it is as expected".to_owned()),
            _ => self.check_calls(&Native, &self.ignored)?,
        }
        let (wanted, given) = (shared(expected), shared(&self.decode(&Libipt)));
        match (&self.differs, wanted == given) {
            (None, false) => Err(differ("libipt", &wanted, &given)),
            (Some(_), true) => Err("libipt does not differ".to_owned()),
            _ => self.check_calls(&Libipt, &self.differs),
        }
    }

    /// Compares the call forest, unless a difference is declared.
    fn check_calls(&self, engine: &dyn Engine, reason: &Option<String>) -> Result<(), String> {
        let (Some(calls), None) = (&self.calls, reason) else {
            return Ok(());
        };
        let found = self.find_calls(engine);
        if found == *calls {
            return Ok(());
        }
        Err(differ(&format!("{engine:?}, calls"), calls, &found))
    }

    /// Returns the text with the native engine's result as the expected one.
    pub fn blessed(&self, text: &str) -> String {
        let of = |line: &&str| *line != "expect" && *line != "calls";
        let mut blessed: String = text
            .lines()
            .take_while(of)
            .flat_map(|line| [line, "\n"])
            .collect();
        blessed.truncate(blessed.trim_end().len());
        let mut section = |keyword: &str, lines: Vec<String>| {
            blessed.push_str(&format!("\n\n{keyword}"));
            lines
                .iter()
                .for_each(|line| blessed.push_str(&format!("\n  {line}")));
        };
        section("expect", self.decode(&Native));
        if self.calls.is_some() {
            section("calls", self.find_calls(&Native));
        }
        blessed + "\n"
    }
}

fn differ(engine: &str, expected: &[String], found: &[String]) -> String {
    let same = expected
        .iter()
        .zip(found)
        .take_while(|(one, other)| one == other)
        .count();
    let rest = |lines: &[String]| {
        lines
            .iter()
            .skip(same)
            .take(12)
            .map(|line| format!("\n    {line}"))
            .collect::<String>()
    };
    format!(
        "{engine}: after {same} equal lines, expected{}\n  found{}",
        rest(expected),
        rest(found)
    )
}
