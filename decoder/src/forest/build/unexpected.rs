//! Places that flow jumps to in scenes, and that no open call may return to then: the jump would be a return.

use super::rules::Rules;

/// Those of all scenes.
#[derive(Default)]
pub(super) struct Unexpected {
    of_scenes: Vec<Few>,
    places: Vec<u32>,
}

/// Those of one scene.
#[derive(Clone, Copy)]
struct Few {
    first: u32,
    len: u32,
    /// The first `suspect` of them are those that some call returns to, when `returns` such places were known.
    suspect: u32,
    returns: u32,
}

impl Unexpected {
    /// Adds those of a scene, which are in no order, and may be there more than once. Gives their number.
    pub fn add(&mut self, places: &mut Vec<u32>) -> Option<u32> {
        places.sort_unstable();
        places.dedup();
        let number = u32::try_from(self.of_scenes.len()).ok()?;
        self.of_scenes.push(Few {
            first: u32::try_from(self.places.len()).ok()?,
            len: u32::try_from(places.len()).ok()?,
            suspect: 0,
            returns: 0,
        });
        self.places.append(places);
        Some(number)
    }

    /// Some call returns to one of those of a scene.
    pub fn is_suspect(&self, number: u32) -> bool {
        self.of_scenes
            .get(number as usize)
            .is_some_and(|few| few.suspect > 0)
    }

    /// No open call returns to one of these.
    #[inline]
    pub fn holds(&mut self, number: u32, rules: &mut Rules<'_>) -> bool {
        let Some(few) = self.of_scenes.get_mut(number as usize) else {
            return true;
        };
        if few.returns != rules.places.returns() {
            few.suspect(&mut self.places, rules);
        }
        let first = few.first as usize;
        let suspect = self.places.get(first..first + few.suspect as usize);
        !suspect.unwrap_or(&[]).iter().any(|&place| rules.expects(place))
    }
}

impl Few {
    /// Puts the places that some call returns to before the others.
    #[cold]
    fn suspect(&mut self, all: &mut [u32], rules: &Rules<'_>) {
        let first = self.first as usize;
        let own = all.get_mut(first..first + self.len as usize).unwrap_or(&mut []);
        own.sort_unstable_by_key(|&place| !rules.places.may_be_returned_to(place));
        let suspect = own.partition_point(|&place| rules.places.may_be_returned_to(place));
        (self.suspect, self.returns) = (suspect as u32, rules.places.returns());
    }
}
