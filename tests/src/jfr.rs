//! Recordings of the JDK Flight Recorder (JFR), made event by event.

use std::collections::BTreeMap;

/// The types of both writers: a name, and fields as `NAME TYPE`. `*` is a constant, `[]` an array,
/// and `@UNIT` an annotation with a unit.
const TYPES: &str = "\
boolean:
byte:
char:
short:
int:
long:
float:
double:
java.lang.String:
java.lang.Class: classLoader jdk.types.ClassLoader*, name jdk.types.Symbol*, modifiers int
java.lang.Thread: osName java.lang.String, osThreadId long, javaName java.lang.String, javaThreadId long
jdk.types.ClassLoader: type java.lang.Class*, name jdk.types.Symbol*
jdk.types.FrameType: description java.lang.String
jdk.types.ThreadState: name java.lang.String
jdk.types.StackTrace: truncated boolean, frames jdk.types.StackFrame[]
jdk.types.StackFrame: method jdk.types.Method*, lineNumber int, bytecodeIndex int, type jdk.types.FrameType*
jdk.types.Method: type java.lang.Class*, name jdk.types.Symbol*, descriptor jdk.types.Symbol*, modifiers int, hidden boolean
jdk.types.Symbol: string java.lang.String
jdk.ExecutionSample: startTime long@TICKS, sampledThread java.lang.Thread*, stackTrace jdk.types.StackTrace*, state jdk.types.ThreadState*
jdk.ObjectAllocationInNewTLAB: startTime long@TICKS, eventThread java.lang.Thread*, stackTrace jdk.types.StackTrace*, objectClass java.lang.Class*, allocationSize long, tlabSize long
jdk.ObjectAllocationOutsideTLAB: startTime long@TICKS, eventThread java.lang.Thread*, stackTrace jdk.types.StackTrace*, objectClass java.lang.Class*, allocationSize long
jdk.JavaMonitorEnter: startTime long@TICKS, duration long@TICKS, eventThread java.lang.Thread*, stackTrace jdk.types.StackTrace*, monitorClass java.lang.Class*, previousOwner java.lang.Thread*, address long
jdk.ThreadPark: startTime long@TICKS, duration long@TICKS, eventThread java.lang.Thread*, stackTrace jdk.types.StackTrace*, parkedClass java.lang.Class*, timeout long@NANOSECONDS, until long@MILLISECONDS_SINCE_EPOCH, address long
jdk.ActiveSetting: startTime long@TICKS, duration long@TICKS, eventThread java.lang.Thread*, stackTrace jdk.types.StackTrace*, id long, name java.lang.String, value java.lang.String
jdk.JVMInformation: startTime long@TICKS, jvmName java.lang.String, javaArguments java.lang.String, pid long
";

/// The types that async-profiler adds.
const PROFILER_TYPES: &str = "\
profiler.Log: startTime long@TICKS, message java.lang.String
profiler.WallClockSample: startTime long@TICKS, sampledThread java.lang.Thread*, stackTrace jdk.types.StackTrace*, state jdk.types.ThreadState*, samples int
profiler.LiveObject: startTime long@TICKS, eventThread java.lang.Thread*, stackTrace jdk.types.StackTrace*, objectClass java.lang.Class*, allocationSize long, allocationTime long@TICKS
profiler.Malloc: startTime long@TICKS, eventThread java.lang.Thread*, stackTrace jdk.types.StackTrace*, address long, size long
profiler.NativeLock: startTime long@TICKS, duration long@TICKS, eventThread java.lang.Thread*, stackTrace jdk.types.StackTrace*, address long
";

/// The types that the JVM adds.
const JVM_TYPES: &str = "\
jdk.NativeMethodSample: startTime long@TICKS, sampledThread java.lang.Thread*, stackTrace jdk.types.StackTrace*, state jdk.types.ThreadState*
jdk.CPUTimeSample: startTime long@TICKS, stackTrace jdk.types.StackTrace*, eventThread java.lang.Thread*, failed boolean, samplingPeriod long@NANOSECONDS, biased boolean
jdk.ObjectAllocationSample: startTime long@TICKS, eventThread java.lang.Thread*, stackTrace jdk.types.StackTrace*, objectClass java.lang.Class*, weight long
jdk.DataLoss: startTime long@TICKS, amount long, total long
jdk.CPULoad: startTime long@TICKS, jvmUser float, machineTotal float
";

/// The number of the first type in a file.
const FIRST_TYPE: i64 = 20;
/// The start of a chunk's clock: nanoseconds since the Unix epoch, ticks, and ticks a second.
pub const START: (u64, i64, i64) = (1_700_000_000_000_000_000, 5_000, 1_000_000);

/// A value of a field.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A whole number, or the key of a constant.
    Number(i64),
    /// A text.
    Text(&'a str),
    /// A floating-point number.
    Float(f32),
}

/// A frame of a stack trace.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The class in the JVM's form, or the library of a function.
    pub class: &'a str,
    /// The method or function.
    pub method: &'a str,
    /// The line.
    pub line: i64,
    /// The description of the frame type, as `JIT compiled`.
    pub kind: &'a str,
}

impl<'a> Frame<'a> {
    /// Returns a frame of a compiled method.
    pub fn java(class: &'a str, method: &'a str, line: i64) -> Self {
        Self {
            class,
            method,
            line,
            kind: "JIT compiled",
        }
    }
}

/// A type of the metadata.
#[derive(Clone)]
struct Type {
    name: String,
    fields: Vec<Field>,
}

/// A field of a type.
#[derive(Clone)]
struct Field {
    name: String,
    kind: usize,
    is_constant: bool,
    is_array: bool,
    unit: Option<String>,
}

/// A chunk in the making.
#[derive(Clone)]
pub struct Chunk {
    types: Vec<Type>,
    /// Whether whole numbers are compressed.
    pub is_compressed: bool,
    /// Whether the metadata are before the events, as async-profiler writes them.
    pub is_metadata_first: bool,
    records: Vec<u8>,
    /// The constants since the last checkpoint, by type.
    constants: BTreeMap<usize, Vec<(i64, Vec<u8>)>>,
    /// The constants that have keys, by type and content.
    keys: BTreeMap<(usize, Vec<u8>), i64>,
    /// The position of the last checkpoint.
    checkpoint: Option<usize>,
}

impl Chunk {
    /// Begins a chunk of async-profiler, without settings.
    pub fn async_profiler() -> Self {
        Self::with_types(PROFILER_TYPES, true)
    }

    /// Begins a chunk of the JVM.
    pub fn jvm() -> Self {
        Self::with_types(JVM_TYPES, false)
    }

    /// Begins a chunk with more types than those of both writers.
    pub fn with_types(more: &str, is_metadata_first: bool) -> Self {
        let lines = TYPES.lines().chain(more.lines());
        let lines: Vec<_> = lines.filter_map(|line| line.split_once(':')).collect();
        let field = |text: &str| {
            let (name, kind) = text.trim().split_once(' ')?;
            let (kind, unit) = match kind.split_once('@') {
                Some((kind, unit)) => (kind, Some(unit.to_owned())),
                None => (kind, None),
            };
            let plain = kind.trim_end_matches(['*', '[', ']']);
            Some(Field {
                name: name.to_owned(),
                kind: lines.iter().position(|(name, _)| *name == plain)?,
                is_constant: kind.ends_with('*'),
                is_array: kind.ends_with("[]"),
                unit,
            })
        };
        let types = lines.iter().map(|(name, fields)| Type {
            name: (*name).to_owned(),
            fields: fields.split(',').filter_map(field).collect(),
        });
        Self {
            types: types.collect(),
            is_compressed: true,
            is_metadata_first,
            records: Vec::new(),
            constants: BTreeMap::new(),
            keys: BTreeMap::new(),
            checkpoint: None,
        }
    }

    /// Adds a setting of the recording.
    pub fn setting(&mut self, name: &str, value: &str) {
        let zero = Value::Number(0);
        let values = [
            Value::Number(START.1),
            zero,
            zero,
            zero,
            zero,
            Value::Text(name),
            Value::Text(value),
        ];
        self.event("jdk.ActiveSetting", &values);
    }

    /// Adds the process.
    pub fn process(&mut self, pid: i64, arguments: &str) {
        let values = [
            Value::Number(START.1),
            Value::Text("OpenJDK"),
            Value::Text(arguments),
            Value::Number(pid),
        ];
        self.event("jdk.JVMInformation", &values);
    }

    /// Returns the key of a thread.
    pub fn thread(&mut self, tid: i64, name: &str) -> i64 {
        let values = [
            Value::Text("os name"),
            Value::Number(tid),
            Value::Text(name),
            Value::Number(tid + 1000),
        ];
        self.constant("java.lang.Thread", &values)
    }

    /// Returns the key of a state.
    pub fn state(&mut self, name: &str) -> i64 {
        self.constant("jdk.types.ThreadState", &[Value::Text(name)])
    }

    /// Returns the key of a symbol.
    fn symbol(&mut self, text: &str) -> i64 {
        self.constant("jdk.types.Symbol", &[Value::Text(text)])
    }

    /// Returns the key of a class, by its name in the JVM.
    pub fn class(&mut self, name: &str) -> i64 {
        let name = self.symbol(name);
        let values = [Value::Number(0), Value::Number(name), Value::Number(1)];
        self.constant("java.lang.Class", &values)
    }

    /// Returns the key of a stack trace. The innermost frame is the first.
    pub fn stack(&mut self, frames: &[Frame<'_>], is_truncated: bool) -> i64 {
        let mut content = vec![u8::from(is_truncated)];
        self.put_int(&mut content, frames.len() as i64);
        for frame in frames {
            let class = self.class(frame.class);
            let (name, descriptor) = (self.symbol(frame.method), self.symbol("()V"));
            let method = [class, name, descriptor, 1, 0].map(Value::Number);
            let method = self.constant("jdk.types.Method", &method);
            let kind = self.constant("jdk.types.FrameType", &[Value::Text(frame.kind)]);
            self.put_long(&mut content, method);
            self.put_int(&mut content, frame.line);
            self.put_int(&mut content, 7);
            self.put_long(&mut content, kind);
        }
        self.keyed("jdk.types.StackTrace", content)
    }

    fn constant(&mut self, kind: &str, values: &[Value<'_>]) -> i64 {
        let content = self.fields(kind, values);
        self.keyed(kind, content)
    }

    /// Returns the key of a constant with some content.
    pub fn keyed(&mut self, kind: &str, content: Vec<u8>) -> i64 {
        let kind = self.type_index(kind);
        let next = self.keys.keys().filter(|(other, _)| *other == kind).count() as i64 + 1;
        let key = *self.keys.entry((kind, content.clone())).or_insert(next);
        if key == next {
            self.constants.entry(kind).or_default().push((key, content));
        }
        key
    }

    /// Adds an event.
    pub fn event(&mut self, kind: &str, values: &[Value<'_>]) {
        let content = self.fields(kind, values);
        let kind = self.type_number(kind);
        self.record(kind, &content);
    }

    /// Returns the number of a type in the file.
    pub fn type_number(&self, kind: &str) -> i64 {
        FIRST_TYPE + self.type_index(kind) as i64
    }

    /// Adds a record of a type, with a size of five bytes as recorders write it.
    pub fn record(&mut self, kind: i64, content: &[u8]) {
        let mut body = Vec::new();
        self.put_long(&mut body, kind);
        body.extend_from_slice(content);
        let size = body.len() + if self.is_compressed { 5 } else { 4 };
        match self.is_compressed {
            true => {
                let more = |index| if index < 4 { 0x80 } else { 0 };
                let padded = (0..5).map(|index| (size >> (7 * index)) as u8 & 0x7f | more(index));
                self.records.extend(padded);
            }
            false => self.records.extend((size as i32).to_be_bytes()),
        }
        self.records.extend(body);
    }

    /// Writes the constants since the last checkpoint.
    pub fn checkpoint(&mut self) {
        let at = self.records.len();
        let before = self.checkpoint.map_or(0, |before| before as i64 - at as i64);
        let mut content = Vec::new();
        self.put_long(&mut content, START.1);
        self.put_long(&mut content, 0);
        self.put_long(&mut content, before);
        content.push(1);
        let constants = std::mem::take(&mut self.constants);
        self.put_int(&mut content, constants.len() as i64);
        for (kind, constants) in constants {
            self.put_long(&mut content, FIRST_TYPE + kind as i64);
            self.put_int(&mut content, constants.len() as i64);
            for (key, constant) in constants {
                self.put_long(&mut content, key);
                content.extend(constant);
            }
        }
        self.record(1, &content);
        self.checkpoint = Some(at);
    }

    /// Returns the bytes of the chunk.
    pub fn finish(mut self) -> Vec<u8> {
        const HEADER: usize = 68;
        if !self.constants.is_empty() {
            self.checkpoint();
        }
        let records = std::mem::take(&mut self.records);
        let content = self.metadata();
        self.record(0, &content);
        let metadata = std::mem::take(&mut self.records);
        let (metadata_at, records_at) = match self.is_metadata_first {
            true => (HEADER, HEADER + metadata.len()),
            false => (HEADER + records.len(), HEADER),
        };
        let mut out = b"FLR\0\0\x02\0\x01".to_vec();
        let (start, ticks, frequency) = START;
        for number in [
            (HEADER + records.len() + metadata.len()) as i64,
            self.checkpoint.map_or(0, |at| (records_at + at) as i64),
            metadata_at as i64,
            start as i64,
            2_000_000_000,
            ticks,
            frequency,
        ] {
            out.extend(number.to_be_bytes());
        }
        out.extend([0, 0, 0, u8::from(self.is_compressed)]);
        match self.is_metadata_first {
            true => out.extend(metadata.iter().chain(&records)),
            false => out.extend(records.iter().chain(&metadata)),
        }
        out
    }

    fn type_index(&self, name: &str) -> usize {
        let found = self.types.iter().position(|kind| kind.name == name);
        assert!(found.is_some(), "there is no type {name}");
        found.unwrap_or_default()
    }

    /// Returns the content of a value with fields.
    fn fields(&self, kind: &str, values: &[Value<'_>]) -> Vec<u8> {
        let kind = &self.types[self.type_index(kind)];
        assert_eq!(kind.fields.len(), values.len(), "{}", kind.name);
        let mut content = Vec::new();
        for (field, value) in kind.fields.iter().zip(values) {
            match *value {
                Value::Number(number) if field.is_constant => self.put_long(&mut content, number),
                Value::Number(number) => match &*self.types[field.kind].name {
                    "boolean" | "byte" => content.push(number as u8),
                    "int" => self.put_int(&mut content, number),
                    _ => self.put_long(&mut content, number),
                },
                Value::Text(text) => self.put_text(&mut content, text),
                Value::Float(number) => content.extend(number.to_be_bytes()),
            }
        }
        content
    }

    fn put_text(&self, out: &mut Vec<u8>, text: &str) {
        if text.is_empty() {
            return out.push(1);
        }
        out.push(3);
        self.put_int(out, text.len() as i64);
        out.extend(text.as_bytes());
    }

    fn put_int(&self, out: &mut Vec<u8>, number: i64) {
        match self.is_compressed {
            true => put_compressed(out, number),
            false => out.extend((number as i32).to_be_bytes()),
        }
    }

    fn put_long(&self, out: &mut Vec<u8>, number: i64) {
        match self.is_compressed {
            true => put_compressed(out, number),
            false => out.extend(number.to_be_bytes()),
        }
    }

    /// Returns the content of the metadata: strings, and a tree of elements that name them.
    fn metadata(&self) -> Vec<u8> {
        let mut strings = Strings::default();
        let mut tree = Vec::new();
        // The last type is that of annotations.
        let annotation = (FIRST_TYPE + self.types.len() as i64).to_string();
        self.element(&mut tree, &mut strings, "root", &[], 2);
        self.element(&mut tree, &mut strings, "metadata", &[], self.types.len() + 1);
        for (id, kind) in (FIRST_TYPE..).zip(&self.types) {
            let id = id.to_string();
            let attributes = [("name", &*kind.name), ("id", &id)];
            self.element(&mut tree, &mut strings, "class", &attributes, kind.fields.len());
            for field in &kind.fields {
                let kind = (FIRST_TYPE + field.kind as i64).to_string();
                let mut attributes = vec![("name", &*field.name), ("class", &kind)];
                if field.is_constant {
                    attributes.push(("constantPool", "true"));
                }
                if field.is_array {
                    attributes.push(("dimension", "1"));
                }
                let children = usize::from(field.unit.is_some());
                self.element(&mut tree, &mut strings, "field", &attributes, children);
                if let Some(unit) = &field.unit {
                    let attributes = [("class", &*annotation), ("value", unit)];
                    self.element(&mut tree, &mut strings, "annotation", &attributes, 0);
                }
            }
        }
        let attributes = [("name", "jdk.jfr.Timestamp"), ("id", &annotation)];
        self.element(&mut tree, &mut strings, "class", &attributes, 0);
        self.element(&mut tree, &mut strings, "region", &[("locale", "en_US")], 0);
        let mut content = Vec::new();
        for number in [START.1, 0, 1] {
            self.put_long(&mut content, number);
        }
        self.put_int(&mut content, strings.texts.len() as i64);
        for text in &strings.texts {
            self.put_text(&mut content, text);
        }
        content.extend(tree);
        content
    }

    fn element(
        &self,
        out: &mut Vec<u8>,
        strings: &mut Strings,
        name: &str,
        attributes: &[(&str, &str)],
        children: usize,
    ) {
        self.put_int(out, strings.index(name));
        self.put_int(out, attributes.len() as i64);
        for (key, value) in attributes {
            self.put_int(out, strings.index(key));
            self.put_int(out, strings.index(value));
        }
        self.put_int(out, children as i64);
    }
}

/// The strings of the metadata.
#[derive(Default)]
struct Strings {
    texts: Vec<String>,
}

impl Strings {
    fn index(&mut self, text: &str) -> i64 {
        let known = self.texts.iter().position(|known| known == text);
        known.unwrap_or_else(|| {
            self.texts.push(text.to_owned());
            self.texts.len() - 1
        }) as i64
    }
}

/// Writes seven bits a byte. The ninth byte has eight.
fn put_compressed(out: &mut Vec<u8>, number: i64) {
    let mut rest = number as u64;
    for _ in 0..8 {
        if rest < 0x80 {
            return out.push(rest as u8);
        }
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Returns a recording of async-profiler with processor time, wall-clock time, allocations and
/// locks, in two chunks.
pub fn recording() -> Vec<u8> {
    let mut file = Vec::new();
    for turn in 0..2 {
        let mut chunk = Chunk::async_profiler();
        if turn == 0 {
            chunk.process(4711, "com.example.Server --port 80");
            chunk.setting("event", "cpu");
            chunk.setting("interval", "1000000");
            chunk.setting("wall", "20000000");
        }
        let thread = chunk.thread(4712, "worker");
        let (cpu, asleep) = (chunk.state("STATE_DEFAULT"), chunk.state("STATE_SLEEPING"));
        let work = [
            Frame::java("com/example/Server", "work", 30),
            Frame::java("com/example/Server", "main", 12 + turn),
        ];
        let work = chunk.stack(&work, false);
        let wait = [
            Frame {
                class: "libc.so.6",
                method: "__poll",
                line: 0,
                kind: "Native",
            },
            Frame::java("com/example/Server", "main", 14),
        ];
        let wait = chunk.stack(&wait, false);
        let bytes = chunk.class("[B");
        for index in 0..4 {
            let time = START.1 + 1000 * index;
            let sample = [time, thread, work, cpu].map(Value::Number);
            chunk.event("jdk.ExecutionSample", &sample);
            let allocation = [time, thread, work, bytes, 100, 4096].map(Value::Number);
            chunk.event("jdk.ObjectAllocationInNewTLAB", &allocation);
        }
        let samples = [START.1 + 9000, thread, wait, asleep, 5].map(Value::Number);
        chunk.event("profiler.WallClockSample", &samples);
        let lock = [START.1, 500, thread, work, bytes, 0, 0x1000].map(Value::Number);
        chunk.event("jdk.JavaMonitorEnter", &lock);
        file.extend(chunk.finish());
    }
    file
}
