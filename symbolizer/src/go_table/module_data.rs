//! Finds the record of the module in a file (package `runtime` of Go, type `moduledata`). It states
//! where the code begins, and where data of functions begin.
//!
//! No section or symbol of a stripped file names the record. Its first word is the address of the
//! header.

use super::header::{Format, Header};
use super::image::Image;
use std::ops::Range;

/// The words of the record up to the end of the code have the same numbers since Go 1.16.
const LIST: u64 = 16;
const LIST_LENGTH: u64 = 17;
const TEXT: u64 = 22;
const TEXT_END: u64 = 23;

/// The parts of the record that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModuleData {
    /// The start of the code to which offsets are relative.
    pub text: u64,
    /// The address to which the offsets of functions' data are relative: `go:func.*`. Zero: they
    /// are absolute, as before Go 1.18.
    pub function_data: u64,
}

impl ModuleData {
    /// Finds the record of the table at `addresses`.
    pub fn find(image: &Image<'_>, header: &Header<'_>, addresses: &Range<u64>) -> Option<Self> {
        let mut places = image.places_of(addresses.start);
        places.find_map(|place| Self::read(image, header, addresses, place))
    }

    fn read(image: &Image<'_>, header: &Header<'_>, addresses: &Range<u64>, place: u64) -> Option<Self> {
        let word = |number: u64| image.word(place.checked_add(number * 8)?);
        // The list of functions has an end mark.
        let list = addresses.start.checked_add(header.records_offset)?;
        if word(LIST)? != list || word(LIST_LENGTH)? != (header.functions as u64).checked_add(1)? {
            return None;
        }
        let text = word(TEXT)?;
        if text >= word(TEXT_END)? {
            return None;
        }
        let function_data = match header.format {
            Format::Go116 => 0,
            Format::Go118 => word(38)?,
            // Go 1.20 added two words, and Go 1.27 three more. Since Go 1.26 the data are in the
            // section of the table. Before Go 1.27, word 43 is a length or a capacity.
            Format::Go120 => match word(43).filter(|at| addresses.contains(at)) {
                Some(at) => at,
                None => word(40)?,
            },
        };
        Some(Self { text, function_data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Range<u64> = 0x50_0000..0x50_1000;

    fn header(format: Format) -> Header<'static> {
        Header {
            format,
            functions: 3,
            files: 0,
            text: None,
            names: &[],
            unit_files: &[],
            paths: &[],
            values: &[],
            records: &[],
            records_offset: 0x100,
        }
    }

    /// Returns the words of a record, and finds it after another pointer to the header.
    fn find(format: Format, change: impl Fn(&mut [u64])) -> Option<ModuleData> {
        let mut words = vec![0u64; 48];
        words[0] = TABLE.start;
        words[LIST as usize] = 0x50_0100;
        words[LIST_LENGTH as usize] = 4;
        words[TEXT as usize] = 0x40_1000;
        words[TEXT_END as usize] = 0x48_0000;
        words[38] = 0x38;
        words[40] = 0x40;
        words[43] = 1;
        change(&mut words);
        let mut bytes = TABLE.start.to_le_bytes().to_vec();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        ModuleData::find(
            &Image::made(vec![(0x60_0000, &bytes)], Vec::new()),
            &header(format),
            &TABLE,
        )
    }

    #[test]
    fn versions_state_function_data_in_other_words() {
        let data = |format, change: fn(&mut [u64])| find(format, change).unwrap().function_data;
        assert_eq!(data(Format::Go116, |_| {}), 0);
        assert_eq!(data(Format::Go118, |_| {}), 0x38);
        assert_eq!(data(Format::Go120, |_| {}), 0x40);
        assert_eq!(data(Format::Go120, |words| words[43] = 0x50_0800), 0x50_0800);
        assert_eq!(find(Format::Go120, |_| {}).unwrap().text, 0x40_1000);
    }

    #[test]
    fn records_that_contradict_the_header_are_refused() {
        for number in [0, LIST, LIST_LENGTH] {
            let found = find(Format::Go120, |words| words[number as usize] ^= 8);
            assert_eq!(found, None, "{number}");
        }
        assert_eq!(find(Format::Go120, |words| words[TEXT_END as usize] = 0), None);
    }
}
