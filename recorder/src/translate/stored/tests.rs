//! Tests that stored translations are what the translator would write at their new place.

use super::harvest::{harvest, is_what_is_translated};
use super::key::UnitKey;
use super::store::{CodeStore, EndedCache};
use super::unit::IndexedUnit;
use super::{file, unit::CodeUnit};
use crate::TranslationDirectory;
use crate::translate::block::BlockOptions;
use crate::translate::cache::Cache;
use crate::translate::cache_item::TrapCause;
use crate::translate::layout;
use crate::translate::memory::SharedMemory;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// A function with a loop, a call, a RIP-relative operand, a system call and indirect branches.
const CODE: [u8; 54] = [
    0x48, 0x8b, 0x05, 0xf9, 0x0f, 0, 0, // 0: mov rax, [rip+0xff9]
    0xff, 0xcf, // 7: dec edi
    0x75, 0xf5, // 9: jne 0
    0xe8, 0x10, 0, 0, 0, // 11: call 32
    0x85, 0xc0, // 16: test eax, eax
    0x74, 0x04, // 18: je 24
    0x0f, 0x05, // 20: syscall
    0xeb, 0xe8, // 22: jmp 0
    0xff, 0x15, 0xe2, 0x0f, 0, 0, // 24: call [rip+0xfe2]
    0xc3, 0x90, // 30: ret; nop
    0x0f, 0xa2, // 32: cpuid
    0x48, 0x01, 0xd8, // 34: add rax, rbx
    0x48, 0x89, 0x05, 0xd4, 0x0f, 0, 0, // 37: mov [rip+0xfd4], rax
    0x48, 0x03, 0x05, 0xcd, 0x0f, 0, 0, // 44: add rax, [rip+0xfcd]
    0xc3, 0x90, 0x90, // 51: ret
];
/// The addresses of blocks, which the test translates first.
const STARTS: [u64; 4] = [0, 16, 20, 32];
/// The start of the mapping and of the cache, of two processes.
const ONE: (u64, u64) = (0x5555_5555_4000, 0x5555_9000_0000);
const OTHER: (u64, u64) = (0x7fff_f7c0_0000, 0x7fff_d000_0000);

fn options() -> [BlockOptions; 4] {
    [
        (false, false, false),
        (true, false, false),
        (true, true, false),
        (true, false, true),
    ]
    .map(|(calls, superblock, values)| BlockOptions {
        calls,
        superblock,
        values,
        ..BlockOptions::default()
    })
}

fn memory(len: u64) -> SharedMemory {
    SharedMemory::map(&tempfile::tempfile().unwrap(), len).unwrap()
}

/// Reads [`CODE`] of a mapping at `ip`.
fn fetch(ip: u64) -> impl FnMut(u64, &mut [u8]) -> usize {
    move |from, out| {
        let rest = CODE.get(from.wrapping_sub(ip) as usize..).unwrap_or_default();
        out.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
        rest.len().min(out.len())
    }
}

fn cache(at: u64, options: BlockOptions) -> Cache {
    let mut cache = Cache::new(memory(layout::TABLES_SIZE), options, layout::SLAB_SIZE);
    cache.add_slab(at, memory(layout::SLAB_SIZE));
    cache
}

/// A cache with some blocks of [`CODE`].
fn translated((ip, at): (u64, u64), options: BlockOptions) -> Cache {
    let mut cache = cache(at, options);
    for start in STARTS {
        cache.lookup_or_translate(ip + start, &mut fetch(ip)).unwrap();
        cache.add_indirect_entry(ip + start).unwrap();
    }
    cache
}

fn unit(of: (u64, u64), options: BlockOptions) -> CodeUnit {
    let remains = translated(of, options).take_remains();
    harvest(&remains, &(of.0..of.0 + 0x2000)).unwrap()
}

#[test]
fn placed_blocks_are_those_that_the_translator_writes() {
    for options in options() {
        let unit = Arc::new(IndexedUnit::new(unit(ONE, options)));
        let (ip, at) = OTHER;
        let mut cache = cache(at, options);
        cache.place(&unit, ip).unwrap();
        assert!(unit.blocks.len() >= STARTS.len());
        assert!(is_what_is_translated(&unit, options));
        for block in &unit.blocks {
            let start = ip + u64::from(block.ip);
            let placed = cache
                .lookup_or_translate(start, &mut |_, _| panic!("no translation"))
                .unwrap();
            let fresh = crate::translate::block::translate(
                start,
                placed,
                BlockOptions {
                    superblock: block.superblock,
                    entries: true,
                    ..options
                },
                None,
                &mut fetch(ip),
            );
            let code = cache.bytes(placed, fresh.code.len());
            let sites = fresh.traps.iter().filter_map(|(offset, _)| {
                let cause = cache.cause(placed + u64::from(*offset));
                let expected = fresh.traps.iter().find(|(at, _)| at == offset).unwrap().1;
                assert_eq!(cause, Some(TrapCause::of(expected, placed, 0)), "{block:?}");
                match cause? {
                    TrapCause::Exit { site, .. } => Some((site - placed) as usize),
                    _ => None,
                }
            });
            // Exits are linked, so they may lead elsewhere.
            let (mut one, mut two) = (code, fresh.code.clone());
            for site in sites.collect::<Vec<_>>() {
                one[site..site + 4].fill(0);
                two[site..site + 4].fill(0);
            }
            assert_eq!(one, two, "{block:?} with {options:?}");
            for offset in 0..fresh.code.len() as u64 {
                assert_eq!(
                    cache.translation_at(placed + offset),
                    fresh.entry_at(offset as u32).copied(),
                    "{block:?} at {offset}"
                );
            }
        }
    }
}

#[test]
fn changed_code_takes_a_unit_apart() {
    let options = BlockOptions::default();
    let unit = Arc::new(IndexedUnit::new(unit(ONE, options)));
    let (ip, at) = OTHER;
    let mut cache = cache(at, options);
    cache.place(&unit, ip).unwrap();
    assert!(cache.has_code_in(ip + 32..ip + 33) && !cache.has_code_in(ip + 0x1000..ip + 0x2000));
    let before = cache.lookup_or_translate(ip, &mut fetch(ip)).unwrap();
    let trap = (0..4096)
        .find(|offset| cache.cause(before + offset).is_some())
        .unwrap();
    let cause = cache.cause(before + trap);
    cache.code_changed(ip + 32..ip + 33);
    assert_eq!(cache.cause(before + trap), cause);
    assert_eq!(cache.program_address(before), Some(ip));
    assert_eq!(cache.version(), 1);
    assert!(!cache.fragments(|_| false).is_empty());
    assert_ne!(
        cache.lookup_or_translate(ip + 32, &mut fetch(ip)).unwrap(),
        before
    );
    // Code of another version is not replaced by stored translations.
    assert_eq!(cache.place(&unit, ip), None);
}

#[test]
fn promoted_block_replaces_a_placed_one() {
    let options = BlockOptions::default();
    let unit = Arc::new(IndexedUnit::new(unit(ONE, options)));
    let (ip, at) = OTHER;
    let mut cache = cache(at, options);
    cache.place(&unit, ip).unwrap();
    let before = cache.lookup_or_translate(ip, &mut fetch(ip)).unwrap();
    assert!(cache.is_promotable(ip));
    cache.promote(ip, &mut fetch(ip));
    let after = cache.lookup_or_translate(ip, &mut fetch(ip)).unwrap();
    assert!(after != before && !cache.is_promotable(ip));
    let again = harvest(&cache.take_remains(), &(ip..ip + 0x2000)).unwrap();
    assert_eq!(again.blocks.len(), unit.blocks.len());
    assert_eq!(again.targets, unit.targets);
    let of = |unit: &CodeUnit, ip| unit.blocks.iter().find(|block| block.ip == ip).copied().unwrap();
    assert!(of(&again, 0).superblock && !of(&again, 32).superblock);
}

#[test]
fn file_has_the_unit_and_damage_is_found() {
    let unit = unit(ONE, BlockOptions::default());
    let key = UnitKey::of(&[b"test"]);
    let bytes = file::encode(key, &unit);
    assert_eq!(file::decode(key, &bytes).as_ref(), Some(&unit));
    assert_eq!(file::decode(UnitKey::of(&[b"other"]), &bytes), None);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert_eq!(file::decode(key, &damaged), None, "byte {at}");
        assert_eq!(file::decode(key, &bytes[..at]), None, "first {at} bytes");
    }
}

#[test]
fn inconsistent_units_are_refused() {
    let good = unit(ONE, BlockOptions::default());
    let broken = |change: &dyn Fn(&mut CodeUnit)| {
        let mut unit = good.clone();
        change(&mut unit);
        !unit.is_consistent()
    };
    assert!(good.is_consistent());
    assert!(broken(&|unit| unit.blocks[0].len = u32::MAX));
    assert!(broken(&|unit| unit.blocks[0].at = 4));
    assert!(broken(&|unit| unit.runs[0].0 = 0x7000_0000));
    assert!(broken(&|unit| unit.entries += 1 << 30));
    assert!(broken(&|unit| unit.targets.push(0)));
    assert!(broken(&|unit| unit.traps[0].0 = u32::MAX));
    assert!(broken(&|unit| unit.source.ranges[0].1 += 1));
}

fn ended(of: (u64, u64), key: UnitKey) -> EndedCache {
    EndedCache {
        options: BlockOptions::default(),
        remains: translated(of, BlockOptions::default()).take_remains(),
        mappings: vec![(key, of.0..of.0 + 0x2000)],
    }
}

fn store(path: &Path, limit: u64) -> CodeStore {
    let path = path.to_owned();
    CodeStore::start(Some(TranslationDirectory { path, limit })).unwrap()
}

#[test]
fn later_recordings_find_units_in_the_directory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache/translations");
    let keys = [UnitKey::of(&[b"one"]), UnitKey::of(&[b"two"])];
    let first = store(&path, 1 << 30);
    assert!(first.find(keys[0]).is_none());
    keys.iter().for_each(|key| first.add(ended(ONE, *key)));
    drop(first);
    assert!(keys.iter().all(|key| store(&path, 1 << 30).find(*key).is_some()));
    // The file that was not used for longest is removed.
    let limited = store(&path, fs::metadata(path.join(keys[1].file_name())).unwrap().len());
    assert!(limited.find(keys[1]).is_some());
    drop(limited);
    let left = store(&path, 1 << 30);
    assert!(left.find(keys[0]).is_none() && left.find(keys[1]).is_some());
}

#[test]
fn files_that_others_can_write_are_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let key = UnitKey::of(&[b"one"]);
    let first = store(folder.path(), 1 << 30);
    first.add(ended(ONE, key));
    drop(first);
    let file = folder.path().join(key.file_name());
    let finds = || store(folder.path(), 1 << 30).find(key).is_some();
    assert!(finds());
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&file, 0o666);
    assert!(!finds());
    mode(&file, 0o600);
    mode(folder.path(), 0o777);
    assert!(!finds());
    mode(folder.path(), 0o700);
    fs::rename(&file, folder.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", &file).unwrap();
    assert!(!finds());
}
