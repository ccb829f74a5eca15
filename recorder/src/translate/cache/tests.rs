//! A cache without a program.
#![allow(unsafe_code)]
use super::*;

/// Where the cache is.
const AT: u64 = 0x2000_0000;
/// Where the program's code is.
const START: u64 = 0x1000;

fn memory(len: u64) -> SharedMemory {
    SharedMemory::map(&tempfile::tempfile().unwrap(), len).unwrap()
}

#[test]
fn everything_leads_to_a_block_that_was_made_wide() {
    // START: test edi, edi; je +1; ret; nop; jmp START
    let code = [0x85, 0xff, 0x74, 1, 0xc3, 0x90, 0xeb, 0xf8];
    let mut fetch = |from: u64, out: &mut [u8]| {
        let rest = code.get(from.wrapping_sub(START) as usize..).unwrap_or_default();
        out.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
        rest.len().min(out.len())
    };
    let mut cache = Cache::new(
        memory(layout::TABLES_SIZE),
        Style::default(),
        layout::CLUSTER_SIZE,
        &[],
    );
    cache.add_cluster(AT, memory(layout::CLUSTER_SIZE));
    let narrow = cache.look_up(START, &mut fetch).unwrap();
    cache.land(START).unwrap();
    let landing = cache.landings[&START];
    let leads_to = |cache: &Cache, site: u64| {
        let bytes = cache.clusters[0].memory.bytes(site + 4 - AT);
        let distance = i32::from_le_bytes(*bytes.last_chunk().unwrap());
        (site + 4).wrapping_add_signed(i64::from(distance))
    };
    let ends = |cache: &Cache| {
        [landing.first, landing.second].map(|at| match cache.pieces[&at] {
            Piece::Landing { len, .. } => leads_to(cache, at + u64::from(len) - 4),
            _ => 0,
        })
    };
    assert_eq!(ends(&cache), [narrow; 2]);
    assert!(cache.is_narrow(START));
    cache.widen(START, &mut fetch);
    let wide = cache.look_up(START, &mut fetch).unwrap();
    assert!(wide != narrow && !cache.is_narrow(START));
    assert_eq!(ends(&cache), [wide; 2]);
    // A thread may stand in the old one still.
    for at in [narrow, wide] {
        assert_eq!(cache.place(at).map(|place| place.ip), Some(START));
        assert_eq!(cache.block_at(at + 1), Some(START));
    }
    // The code that each was made from is told when it changes.
    assert_eq!(cache.made(START).count(), 2);
    cache.change(START..START + 1);
    assert!(cache.fragments(|_| false).len() >= 2);
    assert_eq!(cache.made(START).count(), 0);
    cache.widen(START, &mut fetch);
    assert_eq!(cache.made(START).count(), 0, "only what is there is made wide");
}

#[test]
fn the_hash_is_that_of_the_stubs() {
    for target in [0, 1, 0x40_1234, 0x7fbc_15ee_cca1, u64::MAX] {
        // SAFETY: the stubs need SSE4.2 all the same.
        let crc = unsafe { core::arch::x86_64::_mm_crc32_u64(0, target) };
        assert_eq!(hash(target), crc & 0xffff, "{target:#x}");
    }
}
