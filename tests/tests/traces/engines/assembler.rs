//! Machine code in two segments, with labels.

/// A position in the code, which is known after it is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Bytes at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub start: u64,
    pub bytes: Vec<u8>,
}

/// The encoding of a label's address.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// One byte, relative to its end.
    Near,
    /// Four bytes, relative to their end.
    Relative,
    /// Eight bytes.
    Absolute,
}

#[derive(Debug)]
struct Fixup {
    segment: usize,
    offset: usize,
    label: Label,
    form: Form,
}

/// The code under construction.
#[derive(Debug)]
pub struct Assembler {
    segments: Vec<Segment>,
    /// The current segment.
    current: usize,
    labels: Vec<Option<u64>>,
    fixups: Vec<Fixup>,
}

impl Assembler {
    /// Creates segments at these addresses.
    pub fn new(starts: &[u64]) -> Self {
        let segment = |&start: &u64| Segment {
            start,
            bytes: Vec::new(),
        };
        Self {
            segments: starts.iter().map(segment).collect(),
            current: 0,
            labels: Vec::new(),
            fixups: Vec::new(),
        }
    }

    /// Switches to another segment.
    pub fn go_to(&mut self, segment: usize) {
        self.current = segment;
    }

    pub fn segment(&self) -> usize {
        self.current
    }

    /// Returns the address of the next byte.
    pub fn here(&self) -> u64 {
        let segment = &self.segments[self.current];
        segment.start + segment.bytes.len() as u64
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.segments[self.current].bytes.extend_from_slice(bytes);
    }

    /// Returns a label that is bound later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    pub fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.here());
    }

    /// Returns a label bound here.
    pub fn bound(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    /// Writes an opcode with the distance to a label of this segment in four bytes.
    pub fn relative(&mut self, opcode: &[u8], label: Label) {
        self.put(opcode);
        self.fix(label, Form::Relative, 4);
    }

    /// Writes the same in one byte: the label must be near.
    pub fn near(&mut self, opcode: &[u8], label: Label) {
        self.put(opcode);
        self.fix(label, Form::Near, 1);
    }

    /// Returns whether a bound label is in reach of [`Self::near`].
    pub fn is_near(&self, label: Label) -> bool {
        self.labels[label.0].is_some_and(|at| self.here().wrapping_sub(at) < 100)
    }

    /// Writes the address of a label in eight bytes.
    pub fn absolute(&mut self, label: Label) {
        self.fix(label, Form::Absolute, 8);
    }

    fn fix(&mut self, label: Label, form: Form, len: usize) {
        self.fixups.push(Fixup {
            segment: self.current,
            offset: self.segments[self.current].bytes.len(),
            label,
            form,
        });
        self.put(&[0; 8][..len]);
    }

    /// Returns the code, with all labels resolved.
    pub fn finish(mut self) -> Vec<Segment> {
        for fixup in &self.fixups {
            let target = self.labels[fixup.label.0].unwrap();
            let segment = &mut self.segments[fixup.segment];
            let place = &mut segment.bytes[fixup.offset..];
            let from = |len: u64| target.wrapping_sub(segment.start + fixup.offset as u64 + len) as i64;
            match fixup.form {
                Form::Near => place[0] = i8::try_from(from(1)).unwrap() as u8,
                Form::Relative => {
                    place[..4].copy_from_slice(&i32::try_from(from(4)).unwrap().to_le_bytes());
                }
                Form::Absolute => place[..8].copy_from_slice(&target.to_le_bytes()),
            }
        }
        self.segments
    }
}
