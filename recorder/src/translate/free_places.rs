//! Finds free addresses for the recorder's memory.

use super::layout::{self, REACH};
use backtrail_process::maps::Map;

/// Returns the highest free place for a region that is not above `at`. `maps` are in ascending
/// order.
pub(super) fn free_below(maps: &[Map], at: u64) -> Option<u64> {
    let mut place = at;
    for map in maps.iter().rev() {
        let overlaps = map.start < place.saturating_add(layout::REGION_SIZE) && place < map.end;
        if overlaps {
            place = map.start.checked_sub(layout::REGION_SIZE)?;
        }
    }
    (place >= layout::LOWEST_REGION).then_some(place)
}

/// Returns a free place for a slab near `ip`, away from the growing heap and stack.
pub(super) fn find_slab_place(maps: &[Map], ip: u64) -> Option<u64> {
    /// The gap on either side.
    const MARGIN: u64 = 1 << 20;
    /// The distance between candidates.
    const STEP: u64 = 0x0400_0000;
    /// Programs below this address have their heap directly after them.
    const LOW: u64 = 1 << 31;
    /// The end of the user address space.
    const END: u64 = 0x7fff_f000_0000;
    let free = |at: u64| {
        at > 0x1_0000
            && at + layout::SLAB_SIZE < END
            && !maps
                .iter()
                .any(|map| map.start < at + layout::SLAB_SIZE + MARGIN && at < map.end.saturating_add(MARGIN))
    };
    let base = ip & !(STEP - 1);
    let mut steps: Vec<u64> = (0x1000_0000..0x6000_0000).step_by(STEP as usize).collect();
    let found = if ip < LOW {
        steps.reverse();
        steps.iter().copied().find(|at| free(*at))
    } else {
        let candidates = steps
            .iter()
            .flat_map(|distance| [base.checked_sub(distance + 0x1000_0000), Some(base + distance)]);
        candidates.flatten().find(|at| free(*at))
    };
    // Programs may reserve the usual places. Any other one in reach serves as well.
    found.or_else(|| {
        let distances = (STEP..REACH - layout::SLAB_SIZE).step_by(STEP as usize);
        let all = distances.flat_map(|distance| [base.checked_add(distance), base.checked_sub(distance)]);
        all.flatten().find(|at| free(*at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;

    fn map(start: u64, end: u64) -> Map {
        Map {
            start,
            end,
            ..Map::default()
        }
    }

    #[test]
    fn slabs_are_near_and_overlap_nothing() {
        let maps = [
            map(0x5555_5555_4000, 0x5555_5556_0000),
            map(0x7fff_f7fc_0000, 0x7fff_f800_0000),
        ];
        for ip in [0x5555_5555_5000, 0x7fff_f7fd_0000] {
            let at = find_slab_place(&maps, ip).unwrap();
            assert!(at.abs_diff(ip) < 0x6000_0000, "{at:#x}");
            assert!(
                maps.iter()
                    .all(|map| map.end <= at || at + layout::SLAB_SIZE <= map.start)
            );
        }
        let low = find_slab_place(&[map(0x40_0000, 0x50_0000)], 0x40_1000).unwrap();
        assert!(low > 0x2000_0000 && low < 0x8000_0000);
    }

    #[test]
    fn regions_are_placed_below_existing_mappings() {
        let size = layout::REGION_SIZE;
        let top = 0x7e80_0000_0000;
        // ThreadSanitizer reserves the addresses below its part of the library area.
        let maps = [
            map(0x5000_0000_0000, 0x5000_0000_1000),
            map(0x7c00_0000_0000, top),
        ];
        assert_eq!(free_below(&maps, top), Some(top));
        assert_eq!(free_below(&maps, top - PAGE), Some(0x7c00_0000_0000 - size));
        assert_eq!(free_below(&[map(0, top)], top - size), None);
    }
}
