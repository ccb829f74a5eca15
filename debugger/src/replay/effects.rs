//! The effects of instructions, kept for their next executions.

use super::ExecutedPath;
use backtrail_decoder::Version;
use backtrail_pt::Avma;
use backtrail_semantics::Effect;
use rustc_hash::FxHashMap;

/// The most instructions whose effects are kept.
const MAX_EFFECTS: usize = 1 << 18;
/// The number of recent instructions that are found by their address alone.
const RECENT: usize = 1 << 12;

/// An instruction of a version of the code.
type Place = (Avma, Version);

/// The effects of instructions by their addresses and versions.
#[derive(Default)]
pub struct Effects {
    /// `None`: the code is not known.
    list: Vec<Option<Effect>>,
    numbers: FxHashMap<Place, usize>,
    /// Recent instructions with their numbers, by the low bits of their addresses.
    recent: Vec<Option<(Place, usize)>>,
}

impl Effects {
    /// Returns the effect of an instruction. `None`: its code is not known.
    pub fn of(&mut self, path: &dyn ExecutedPath, version: Version, pc: Avma, len: u8) -> Option<&Effect> {
        let place = (pc, version);
        let slot = pc.0 as usize % RECENT;
        let number = match self.recent.get(slot) {
            Some(Some((known, number))) if *known == place => *number,
            _ => self.number_of(path, place, len, slot),
        };
        self.list.get(number)?.as_ref()
    }

    fn number_of(&mut self, path: &dyn ExecutedPath, place: Place, len: u8, slot: usize) -> usize {
        let number = match self.numbers.get(&place) {
            Some(&known) => known,
            None => {
                if self.list.len() >= MAX_EFFECTS {
                    *self = Self::default();
                }
                let instruction = path.decode(place.1, place.0, len);
                self.list
                    .push(instruction.map(|instruction| Effect::of(&instruction)));
                let number = self.list.len() - 1;
                self.numbers.insert(place, number);
                number
            }
        };
        self.recent.resize(RECENT, None);
        if let Some(recent) = self.recent.get_mut(slot) {
            *recent = Some((place, number));
        }
        number
    }
}
