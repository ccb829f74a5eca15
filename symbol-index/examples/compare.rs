//! Compares an index with `llvm-symbolizer`, with blazesym, and with the converter of gsym-rs, at
//! random addresses. Differences are counted by their reasons.
//!
//! ```text
//! cargo run --release -p backtrail-symbol-index --example compare -- PROGRAM [ADDRESSES]
//! ```

use backtrail_pt::Svma;
use backtrail_symbol_index::{BuildOptions, Frames, Index, OpenOptions, Position, build};
use backtrail_symbolizer::{DebugSearch, SymbolFile};
use blazesym::symbolize::source::{GsymData, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolizer};
use gsym::convert::{ConversionOptions, ElfConverter};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error>>;
/// The linkage name, the path, and the line of a frame.
type Shown = (String, String, u32);

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let program = PathBuf::from(arguments.next().ok_or("usage: compare PROGRAM [ADDRESSES]")?);
    let count = arguments.next();
    let count = count.map_or(Ok(20_000), |count| count.to_string_lossy().parse())?;

    let symbols = SymbolFile::open(&program, &DebugSearch::default())?;
    let files = build(&symbols, &BuildOptions::default())?;
    let addresses = random_addresses(&symbols, count);
    let index = Index::open(
        Arc::new(files.gsym.clone()),
        Arc::new(files.types),
        &OpenOptions::default(),
    )?;
    let positions: Vec<_> = addresses.iter().map(|at| Position::Address(Svma(*at))).collect();
    let frames = index.lookup_all(&positions, BuildOptions::default().threads)?;
    let ours: Vec<Vec<Shown>> = frames.iter().map(shown).collect();
    let inlined = ours.iter().filter(|frames| frames.len() > 1).count();
    println!("{count} addresses, {inlined} of them in inlined calls");

    let unequal = ours.iter().zip(&addresses).filter(|(ours, at)| {
        let known = symbols.frames_at(Svma(**at));
        let known = known.iter().map(|frame| {
            let place = frame.location.as_ref().filter(|place| place.line != 0);
            place.map_or(("??".to_owned(), 0), |place| (place.file.to_string(), place.line))
        });
        !known.eq(ours.iter().map(|(_, file, line)| (file.clone(), *line)))
    });
    println!("the symbolizer differs at {} addresses", unequal.count());

    let context = Context {
        rows: decoded_rows(&program)?,
        aliases: aliases(&symbols),
        symbols: &symbols,
    };
    let began = Instant::now();
    let llvm = llvm(&program, &addresses)?;
    println!("llvm-symbolizer answered in {:?}", began.elapsed());
    report("llvm-symbolizer", &addresses, &ours, &llvm, &context);
    let blazesym = blazesym(&files.gsym, &addresses)?;
    report("blazesym", &addresses, &ours, &blazesym, &context);
    let began = Instant::now();
    let converted = converted(&program, &addresses)?;
    println!("gsym-rs converted in {:?}", began.elapsed());
    report(
        "llvm-symbolizer and gsym-rs' converter",
        &addresses,
        &converted,
        &llvm,
        &context,
    );
    Ok(())
}

fn shown(frames: &Frames) -> Vec<Shown> {
    let shown = |frame: &backtrail_symbol_index::Frame| {
        let file = frame.file.as_deref().filter(|_| frame.line != 0);
        (
            frame.function.linkage_name.to_string(),
            file.unwrap_or("??").to_owned(),
            if file.is_some() { frame.line } else { 0 },
        )
    };
    frames.iter().map(shown).collect()
}

/// Returns random addresses of functions, in proportion to their code.
fn random_addresses(symbols: &SymbolFile, count: usize) -> Vec<u64> {
    let groups = symbols.code_groups();
    let parts = groups.iter().flat_map(|group| symbols.code_parts(group).parts);
    let ranges: Vec<_> = parts.map(|part| part.range).collect();
    let mut ends = Vec::new();
    let mut total = 0u64;
    for range in &ranges {
        total += range.end.0 - range.start.0;
        ends.push(total);
    }
    let mut seed = 99u64;
    let address = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (seed >> 20) % total.max(1);
        let number = ends.partition_point(|end| *end <= at);
        Some(ranges.get(number)?.end.0 - (ends.get(number)? - at))
    };
    (0..count).filter_map(address).collect()
}

/// The facts that explain differences.
struct Context<'a> {
    symbols: &'a SymbolFile,
    /// Lines and `is_stmt` of the rows at an address.
    rows: HashMap<u64, Vec<(u32, bool)>>,
    /// The names of the symbols at an address.
    aliases: HashMap<u64, BTreeSet<String>>,
}

fn aliases(symbols: &SymbolFile) -> HashMap<u64, BTreeSet<String>> {
    let mut names: HashMap<u64, BTreeSet<String>> = HashMap::new();
    for symbol in symbols.code_symbols() {
        let here = names.entry(symbol.address.0).or_default();
        here.insert(symbol.linkage_name.to_string());
    }
    names
}

fn report(peer: &str, addresses: &[u64], ours: &[Vec<Shown>], theirs: &[Vec<Shown>], context: &Context<'_>) {
    let mut classes: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for ((at, ours), theirs) in addresses.iter().zip(ours).zip(theirs) {
        let class = context.class(*at, ours, theirs);
        let (count, examples) = classes.entry(class).or_default();
        *count += 1;
        if examples.len() < 2 {
            examples.push(format!("{at:#x}\n      {ours:?}\n      {theirs:?}"));
        }
    }
    println!("\ncompared with {peer}:");
    for (class, (count, examples)) in &classes {
        println!("  {count:6} {class}");
        for example in examples.iter().filter(|_| class != "equal") {
            println!("    {example}");
        }
    }
}

impl Context<'_> {
    /// Returns the reasons for which frames differ.
    fn class(&self, at: u64, ours: &[Shown], theirs: &[Shown]) -> String {
        let unknown = |frames: &[Shown]| frames.iter().all(|frame| frame.0 == "??" && frame.2 == 0);
        if ours == theirs || unknown(ours) && unknown(theirs) {
            return "equal".to_owned();
        }
        if ours.is_empty() || unknown(theirs) {
            return "one side knows no function".to_owned();
        }
        if ours.len() != theirs.len() {
            return "another number of inlined calls".to_owned();
        }
        let mut reasons = BTreeSet::new();
        for (level, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            reasons.extend(self.name_reason(at, &ours.0, &theirs.0));
            if (&ours.1, ours.2) != (&theirs.1, theirs.2) {
                reasons.insert(self.line_reason(at, level, ours, theirs));
            }
        }
        reasons.into_iter().collect::<Vec<_>>().join("; ")
    }

    fn name_reason(&self, at: u64, ours: &str, theirs: &str) -> Option<&'static str> {
        let function = self.symbols.function_at(Svma(at));
        let entry = function.map_or(0, |function| function.entry.0);
        let aliases = self.aliases.get(&entry);
        let qualified = ours
            .strip_suffix(theirs)
            .is_some_and(|before| before.ends_with("::"));
        let variant = |one: &str, other: &str| {
            let rest = one.strip_prefix(other);
            rest.is_some_and(|suffix| suffix.starts_with('.'))
        };
        match () {
            () if ours == theirs => None,
            () if qualified => Some("without linkage name: the qualified name"),
            () if variant(theirs, ours) || variant(ours, theirs) => Some("suffix of a variant or part"),
            () if ours.ends_with("@plt") => Some("linkage stub"),
            () if aliases.is_some_and(|names| names.contains(theirs)) => Some("another alias"),
            () => Some("another name"),
        }
    }

    fn line_reason(&self, at: u64, level: usize, ours: &Shown, theirs: &Shown) -> &'static str {
        let row = self.symbols.line_at(Svma(at)).map_or(0, |row| row.range.start.0);
        let rows = self.rows.get(&row).map(Vec::as_slice).unwrap_or_default();
        let has = |line: u32| rows.iter().any(|row| row.0 == line);
        match () {
            () if level > 0 && ours.2 == theirs.2 => "another path of a caller",
            () if level > 0 => "another line of a caller",
            () if normalized(&ours.1) == normalized(&theirs.1) && ours.2 == theirs.2 => {
                "the same path, written differently"
            }
            () if rows.len() > 1 && (has(ours.2) || ours.2 == 0) && (has(theirs.2) || theirs.2 == 0) => {
                "another of several rows at the address"
            }
            () if ours.2 == theirs.2 => "another path",
            () => "another line",
        }
    }
}

fn normalized(path: &str) -> PathBuf {
    let mut out = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            std::path::Component::ParentDir => drop(out.pop()),
            std::path::Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

fn decoded_rows(program: &Path) -> Result<HashMap<u64, Vec<(u32, bool)>>> {
    let output = Command::new("objdump")
        .arg("--dwarf=decodedline")
        .arg(program)
        .output()?;
    let mut rows: HashMap<u64, Vec<(u32, bool)>> = HashMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut words = line.split_whitespace().skip(1);
        let (Some(line), Some(address)) = (words.next(), words.next()) else {
            continue;
        };
        let address = address.strip_prefix("0x");
        let address = address.and_then(|address| u64::from_str_radix(address, 16).ok());
        if let Some(address) = address {
            let row = (line.parse().unwrap_or(0), words.any(|word| word == "x"));
            rows.entry(address).or_default().push(row);
        }
    }
    Ok(rows)
}

fn llvm(program: &Path, addresses: &[u64]) -> Result<Vec<Vec<Shown>>> {
    let found = ["llvm-symbolizer-19", "llvm-symbolizer"]
        .into_iter()
        .find_map(|tool| {
            Command::new(tool)
                .args(["--output-style=GNU", "-a", "-i", "-f", "--no-demangle", "-e"])
                .arg(program)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .ok()
        });
    let mut child = found.ok_or("no llvm-symbolizer on this machine")?;
    let mut stdin = child.stdin.take().ok_or("no input")?;
    let input: String = addresses.iter().map(|at| format!("{at:#x}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    let _ = writer.join();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut answers: Vec<Vec<Shown>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") && !line.contains(' ') {
            answers.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap_or_default();
        let place = place.split(" (discriminator").next().unwrap_or_default();
        let (file, number) = place.rsplit_once(':').unwrap_or(("??", "0"));
        let number = number.parse().unwrap_or(0);
        let file = if number == 0 { "??" } else { file };
        if let Some(frames) = answers.last_mut() {
            frames.push((line.to_owned(), file.to_owned(), number));
        }
    }
    Ok(answers)
}

fn blazesym(gsym: &[u8], addresses: &[u64]) -> Result<Vec<Vec<Shown>>> {
    let symbolizer = Symbolizer::builder().enable_demangling(false).build();
    let source = Source::from(GsymData::new(gsym));
    let place = |info: Option<&CodeInfo<'_>>| {
        let info = info.filter(|info| info.line.is_some_and(|line| line != 0));
        info.map_or(("??".to_owned(), 0), |info| {
            (info.to_path().display().to_string(), info.line.unwrap_or(0))
        })
    };
    let mut answers = Vec::new();
    for found in symbolizer.symbolize(&source, Input::VirtOffset(addresses))? {
        let mut frames: Vec<Shown> = Vec::new();
        if let Some(sym) = found.as_sym() {
            let (file, line) = place(sym.code_info.as_deref());
            frames.push((sym.name.to_string(), file, line));
            for inlined in &sym.inlined {
                let (file, line) = place(inlined.code_info.as_ref());
                frames.push((inlined.name.to_string(), file, line));
            }
        }
        frames.reverse();
        answers.push(frames);
    }
    Ok(answers)
}

fn converted(program: &Path, addresses: &[u64]) -> Result<Vec<Vec<Shown>>> {
    let converter = ElfConverter::new(ConversionOptions::default());
    let bytes = converter.convert_path(program)?.builder.to_bytes()?;
    let gsym = gsym::Gsym::parse(bytes)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut answers = Vec::new();
    for at in addresses {
        let found = gsym.lookup(*at)?;
        let frames = found.iter().flat_map(|found| found.frames());
        answers.push(
            frames
                .map(|frame| match frame.line {
                    0 => (text(frame.name), "??".to_owned(), 0),
                    line => {
                        let directory = text(frame.directory);
                        let slash = if directory.is_empty() || directory == "/" {
                            ""
                        } else {
                            "/"
                        };
                        (
                            text(frame.name),
                            format!("{directory}{slash}{}", text(frame.basename)),
                            line,
                        )
                    }
                })
                .collect(),
        );
    }
    Ok(answers)
}
