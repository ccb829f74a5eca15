//! Tests of a cache without a program.
use super::*;

/// The address of the cache.
const AT: u64 = 0x2000_0000;
/// The address of the program's code.
const START: u64 = 0x1000;

fn memory(len: u64) -> SharedMemory {
    SharedMemory::map(&tempfile::tempfile().unwrap(), len).unwrap()
}

#[test]
fn promotion_relinks_all_jumps_to_superblock() {
    // START: test edi, edi; je +1; ret; nop; jmp START
    let code = [0x85, 0xff, 0x74, 1, 0xc3, 0x90, 0xeb, 0xf8];
    let mut fetch = |from: u64, out: &mut [u8]| {
        let rest = code.get(from.wrapping_sub(START) as usize..).unwrap_or_default();
        out.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
        rest.len().min(out.len())
    };
    let mut cache = Cache::new(
        memory(layout::TABLES_SIZE),
        BlockOptions::default(),
        layout::SLAB_SIZE,
    );
    cache.add_slab(AT, memory(layout::SLAB_SIZE));
    let plain = cache.lookup_or_translate(START, &mut fetch).unwrap();
    cache.add_indirect_entry(START).unwrap();
    let entry = cache.indirect_entries[&START];
    let leads_to = |cache: &Cache, site: u64| {
        let bytes = cache.slabs[0].memory.bytes(site + 4 - AT);
        let distance = i32::from_le_bytes(*bytes.last_chunk().unwrap());
        (site + 4).wrapping_add_signed(i64::from(distance))
    };
    let ends = |cache: &Cache| {
        [entry.first, entry.second].map(|at| match cache.items[&at] {
            CacheItem::IndirectEntry { len, .. } => leads_to(cache, at + u64::from(len) - 4),
            _ => 0,
        })
    };
    assert_eq!(ends(&cache), [plain; 2]);
    assert!(cache.is_promotable(START));
    cache.promote(START, &mut fetch);
    let superblock = cache.lookup_or_translate(START, &mut fetch).unwrap();
    assert!(superblock != plain && !cache.is_promotable(START));
    assert_eq!(ends(&cache), [superblock; 2]);
    // A thread may still be in the old block.
    for at in [plain, superblock] {
        assert_eq!(cache.translation_at(at).map(|entry| entry.ip), Some(START));
        assert_eq!(cache.block_containing(at + 1), Some(START));
    }
    // The code of both blocks is reported when it changes.
    assert_eq!(cache.sources_of(START).count(), 2);
    cache.code_changed(START..START + 1);
    assert!(cache.fragments(|_| false).len() >= 2);
    assert_eq!(cache.sources_of(START).count(), 0);
    cache.promote(START, &mut fetch);
    assert_eq!(
        cache.sources_of(START).count(),
        0,
        "only existing blocks are promoted"
    );
}
