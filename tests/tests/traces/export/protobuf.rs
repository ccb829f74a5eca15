//! Reads the wire format of protocol buffers without any schema, independently of the writer.

use std::collections::BTreeMap;

/// A message: its fields by number, each with its values in order.
#[derive(Debug, Default)]
pub struct Message(BTreeMap<u64, Vec<Field>>);

#[derive(Debug)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Message {
    /// Reads a message.
    #[track_caller]
    pub fn read(mut bytes: &[u8]) -> Self {
        let mut message = Self::default();
        while !bytes.is_empty() {
            let key = number(&mut bytes);
            let field = match key & 7 {
                0 => Field::Number(number(&mut bytes)),
                2 => {
                    let len = number(&mut bytes) as usize;
                    let (own, rest) = bytes.split_at(len);
                    bytes = rest;
                    Field::Bytes(own.to_vec())
                }
                kind => panic!("no field of kind {kind} is written"),
            };
            message.0.entry(key >> 3).or_default().push(field);
        }
        message
    }

    fn bytes(&self, field: u64) -> impl Iterator<Item = &[u8]> {
        let values = self.0.get(&field).into_iter().flatten();
        values.map(move |value| match value {
            Field::Bytes(bytes) => &**bytes,
            Field::Number(_) => panic!("field {field} is a number"),
        })
    }

    /// The messages in a field.
    pub fn messages(&self, field: u64) -> impl Iterator<Item = Self> {
        self.bytes(field).map(Self::read)
    }

    /// The message in a field.
    pub fn message(&self, field: u64) -> Option<Self> {
        self.messages(field).next()
    }

    /// The strings in a field.
    pub fn texts(&self, field: u64) -> impl Iterator<Item = String> {
        self.bytes(field)
            .map(|text| String::from_utf8(text.to_vec()).unwrap())
    }

    /// The number in a field.
    pub fn number(&self, field: u64) -> Option<u64> {
        match self.0.get(&field)?.first()? {
            Field::Number(number) => Some(*number),
            Field::Bytes(_) => panic!("field {field} is no number"),
        }
    }

    /// The numbers in a packed field.
    pub fn numbers(&self, field: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        for mut packed in self.bytes(field) {
            while !packed.is_empty() {
                numbers.push(number(&mut packed));
            }
        }
        numbers
    }
}

fn number(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number of more than ten bytes");
}
