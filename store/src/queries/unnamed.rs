//! The code of segments that came without names.

use crate::segment::SegmentEntry;
use crate::store::Store;
use crate::tables::ModuleIndex;
use crate::{Error, Result};
use backtrail_profile::Profile;
use std::time::Instant;

/// Code without names, and the number of segments that it is of.
#[derive(Clone, Debug, Default)]
pub struct UnnamedCode {
    /// A profile without samples, whose frames are the code.
    pub profile: Profile,
    /// The number of segments that were read. A segment with missing files counts.
    pub segments: usize,
}

impl Store {
    /// Returns the code of segments whose frames have no stored lines, each place once. It ends
    /// after the segment that reaches `most` frames, or at a deadline.
    ///
    /// # Errors
    ///
    /// Those of [`Store::merge`]. A missing file is none.
    pub async fn unnamed_code(
        &self,
        segments: &[SegmentEntry],
        most: usize,
        deadline: Instant,
    ) -> Result<UnnamedCode> {
        let mut found = UnnamedCode::default();
        let mut modules = ModuleIndex::default();
        for entry in segments {
            if found.profile.frames.len() >= most || Instant::now() >= deadline {
                break;
            }
            match self.reader.frames(entry, None).await {
                Ok(frames) => {
                    for (_, part) in frames.iter() {
                        part.add_unnamed(&mut found.profile, &mut modules)?;
                    }
                }
                Err(Error::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
            found.segments += 1;
        }
        Ok(found)
    }
}
