//! Assembles AUX buffers from the pieces in a `perf.data` file.

use crate::{BundlePath, Error, Result, Writer};
use backtrail_perf::auxtrace::AuxData;
use backtrail_perf::switch::AuxEnd;
use backtrail_pt::{Cpu, Tid};
use std::collections::BTreeMap;
use std::path::Path;

/// The owner of a buffer's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// All threads on a processor.
    Cpu(Cpu),
    /// One thread.
    Thread(Tid),
}

/// The packets of one owner, in order.
#[derive(Debug)]
pub(super) struct AuxBuffer<'a> {
    pub(super) owner: Owner,
    pieces: Vec<&'a [u8]>,
    /// For each piece, its start in the stream of the buffer. Empty if pieces are snapshots, whose
    /// starts are unknown.
    starts: Vec<u64>,
}

impl<'a> AuxBuffer<'a> {
    /// Groups the pieces by owner, in file order. A piece that overlaps the previous one loses the
    /// overlapping bytes.
    ///
    /// Snapshots may overlap in unknown ways, so only the last one is used: it ends at the crash.
    pub(super) fn assemble(pieces: &[AuxData<'a>], snapshot: bool, notes: &mut Vec<String>) -> Vec<Self> {
        let mut by_owner: BTreeMap<Owner, Vec<&AuxData<'a>>> = BTreeMap::new();
        for piece in pieces {
            let owner = piece.cpu.map_or(Owner::Thread(piece.tid), Owner::Cpu);
            by_owner.entry(owner).or_default().push(piece);
        }
        by_owner
            .into_iter()
            .map(|(owner, pieces)| {
                if !snapshot {
                    let (starts, pieces) = without_overlap(&pieces).into_iter().unzip();
                    return Self {
                        owner,
                        pieces,
                        starts,
                    };
                }
                if pieces.len() > 1 {
                    notes.push(format!(
                        "only the last of {} snapshots of {} is used",
                        pieces.len(),
                        name(owner)
                    ));
                }
                Self {
                    owner,
                    pieces: pieces.last().map(|piece| piece.bytes).into_iter().collect(),
                    starts: Vec::new(),
                }
            })
            .collect()
    }

    /// Returns the ends of parts that are recorded in the sideband, with offsets in the trace file.
    pub(super) fn ends(&self, recorded: &[AuxEnd]) -> Vec<AuxEnd> {
        let mut at = 0;
        let mut known = Vec::new();
        for (start, piece) in self.starts.iter().zip(&self.pieces) {
            let end = start.saturating_add(piece.len() as u64);
            known.push((*start, end, at));
            at += piece.len() as u64;
        }
        let place = |end: &AuxEnd| {
            let index = known.partition_point(|(_, last, _)| *last < end.offset);
            let (start, _, file) = known.get(index)?;
            let inside = end.offset.checked_sub(*start).filter(|inside| *inside != 0)?;
            Some(AuxEnd {
                offset: file + inside,
                time: end.time,
            })
        };
        recorded.iter().filter_map(place).collect()
    }

    pub(super) fn write(&self, writer: &Writer, path: &BundlePath) -> Result<()> {
        let mut file = writer.create_file(path)?;
        self.pieces
            .iter()
            .try_for_each(|piece| writer.cancel_token().write(piece, &mut file))
            .map_err(Error::io("write", Path::new(path.as_str())))
    }
}

fn name(owner: Owner) -> String {
    match owner {
        Owner::Cpu(cpu) => format!("processor {cpu}"),
        Owner::Thread(tid) => format!("thread {tid}"),
    }
}

/// Returns the bytes of each piece that are in no earlier one, after the offset of their start.
fn without_overlap<'a>(pieces: &[&AuxData<'a>]) -> Vec<(u64, &'a [u8])> {
    let mut end = 0u64;
    let mut kept = Vec::new();
    for piece in pieces {
        let known = usize::try_from(end.saturating_sub(piece.offset)).unwrap_or(usize::MAX);
        if let Some(new) = piece.bytes.get(known..).filter(|new| !new.is_empty()) {
            kept.push((piece.offset.max(end), new));
        }
        end = end.max(piece.offset.saturating_add(piece.bytes.len() as u64));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::Nanos;

    fn piece(cpu: Option<u32>, offset: u64, bytes: &'static [u8]) -> AuxData<'static> {
        AuxData {
            offset,
            index: 0,
            tid: Tid(9),
            cpu: cpu.map(Cpu),
            bytes,
        }
    }

    #[test]
    fn overlap_is_cut_and_owners_are_kept_apart() {
        let pieces = [
            piece(Some(1), 0, b"abc"),
            piece(None, 0, b"xyz"),
            piece(Some(1), 2, b"cde"),
            piece(Some(1), 3, b"de"),
        ];
        let mut notes = Vec::new();
        let buffers = AuxBuffer::assemble(&pieces, false, &mut notes);
        assert_eq!(buffers.len(), 2);
        assert_eq!(
            (buffers[0].owner, buffers[0].pieces.concat()),
            (Owner::Cpu(Cpu(1)), b"abcde".to_vec())
        );
        assert_eq!(
            (buffers[1].owner, buffers[1].pieces.concat()),
            (Owner::Thread(Tid(9)), b"xyz".to_vec())
        );
        assert!(notes.is_empty());
        let end = |offset| AuxEnd {
            offset,
            time: Nanos(offset),
        };
        // Beyond the last piece, nothing is known.
        assert_eq!(
            buffers[0].ends(&[end(0), end(3), end(5), end(6)]),
            [end(3), end(5)]
        );
        let later = [piece(None, 100, b"abc"), piece(None, 200, b"def")];
        let later = AuxBuffer::assemble(&later, false, &mut notes);
        let placed = later[0].ends(&[end(102), end(150), end(203)]);
        let placed: Vec<u64> = placed.iter().map(|end| end.offset).collect();
        assert_eq!(placed, [2, 6]);
        let snapshots = AuxBuffer::assemble(&pieces, true, &mut notes);
        assert_eq!((snapshots[0].pieces.concat(), notes.len()), (b"de".to_vec(), 1));
        assert!(snapshots[0].ends(&[end(4)]).is_empty());
    }
}
