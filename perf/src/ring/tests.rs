//! Tests of the readers, on synthetic memory and on rings of the kernel.

use super::*;
use crate::attr::{Attr, SAMPLE_TYPE};
use crate::event::Target;
use crate::record::{Record, RecordEvent};
use crate::switch::Direction;
use backtrail_pt::{Cpu, Pid};
use proptest::prelude::*;
use std::process::Command;

fn reader(ring: &[u8]) -> impl FnMut(usize, &mut [u8]) -> Option<()> + '_ {
    |from, to: &mut [u8]| {
        to.copy_from_slice(ring.get(from..)?.get(..to.len())?);
        Some(())
    }
}

/// Builds a record of `size` bytes whose body contains its number.
fn record(number: u8, size: usize) -> Vec<u8> {
    let mut bytes = vec![number; size];
    bytes[..4].copy_from_slice(&9u32.to_le_bytes());
    bytes[4..6].copy_from_slice(&0u16.to_le_bytes());
    bytes[6..8].copy_from_slice(&(size as u16).to_le_bytes());
    bytes
}

#[test]
fn records_are_joined_across_the_ring_end() {
    const SIZE: usize = 256;
    let sent: Vec<u8> = (1..=6)
        .flat_map(|number| record(number, 8 * usize::from(number)))
        .collect();
    for tail in (0..SIZE as u64).chain([u64::MAX - 7, u64::MAX - SIZE as u64 + 1]) {
        let mut ring = [0xee; SIZE];
        for (index, byte) in sent.iter().enumerate() {
            ring[(tail.wrapping_add(index as u64) % SIZE as u64) as usize] = *byte;
        }
        let mut bytes = vec![1, 2, 3];
        let head = tail.wrapping_add(sent.len() as u64);
        assert_eq!(
            copy_ring(tail, head, SIZE, &mut bytes, reader(&ring)),
            Ok(sent.len())
        );
        assert_eq!(bytes[3..], sent, "{tail}");
        let bodies: Vec<_> = records(&bytes[3..])
            .map(|record| record.unwrap().body.to_vec())
            .collect();
        assert_eq!(bodies.len(), 6);
        assert_eq!(bodies[5], [6; 40]);
    }
}

#[test]
fn invalid_head_takes_nothing() {
    let ring = [0; 64];
    for (tail, head) in [(0, 65), (10, 9), (0, u64::MAX), (64, 0)] {
        let mut bytes = vec![7];
        let error = copy_ring(tail, head, 64, &mut bytes, reader(&ring)).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("it has more unread bytes than its size"),
            "{error}"
        );
        assert_eq!(bytes, [7]);
    }
    // The ring is shorter than its header says.
    let mut bytes = Vec::new();
    assert!(copy_ring(0, 100, 128, &mut bytes, reader(&ring)).is_err());
    assert!(bytes.is_empty());
}

#[test]
fn incomplete_record_ends_the_iteration() {
    let bytes = [record(1, 16), record(2, 24)].concat();
    for end in 17..bytes.len() {
        let read: Vec<_> = records(&bytes[..end]).collect();
        assert!(read[0].is_ok());
        assert!(
            matches!(read[1], Err(Error::Truncated { offset: 16, .. })),
            "{end}"
        );
        assert_eq!(read.len(), 2);
    }
}

#[test]
fn record_shorter_than_its_header_does_not_loop() {
    for size in 0..8u16 {
        let mut bytes = record(1, 16);
        bytes[6..8].copy_from_slice(&size.to_le_bytes());
        let read: Vec<_> = records(&bytes).collect();
        assert!(
            matches!(read[..], [Err(Error::Invalid { offset: 0, .. })]),
            "{size}"
        );
    }
}

#[test]
fn unwrapped_area_returns_written_bytes() {
    let mut area = [0u8; 64];
    for (index, byte) in area.iter_mut().take(40).enumerate() {
        *byte = index as u8 + 1;
    }
    let mut buffer = [0xff; 80];
    let copy = linearize(40, 64, &mut buffer, reader(&area)).unwrap();
    assert!(!copy.wrapped);
    assert_eq!(buffer[copy.range], area[..40]);
    // Nothing was ever written.
    let copy = linearize(0, 64, &mut buffer, reader(&[0; 64])).unwrap();
    assert_eq!((copy.range, copy.wrapped), (64..64, false));
    assert_eq!(linearize(0, 64, &mut [0; 63], reader(&[0; 64])), None);
}

proptest! {
    /// The last bytes that fit are returned in order, except for padding at the start, whether the
    /// driver's head wraps or not.
    #[test]
    fn aux_area_returns_last_bytes_in_order(
        written in prop::collection::vec(any::<u8>(), 0..200),
        counts_on in any::<bool>(),
    ) {
        const SIZE: usize = 64;
        let mut area = [0u8; SIZE];
        for (index, byte) in written.iter().enumerate() {
            area[index % SIZE] = *byte;
        }
        let head = if counts_on { written.len() } else { written.len() % SIZE } as u64;
        let mut buffer = [0; SIZE];
        let copy = linearize(head, SIZE, &mut buffer, reader(&area)).unwrap();
        let kept = &written[written.len().saturating_sub(SIZE)..];
        let got = &buffer[copy.range];
        // An area that was filled exactly once looks wrapped, because its head is at the start
        // again.
        let padding = kept.len() - got.len();
        prop_assert_eq!(got, &kept[padding..]);
        prop_assert!(kept[..padding].iter().all(|byte| *byte == 0));
        prop_assert!(!copy.wrapped || written.len() >= SIZE);
    }
}

/// Returns the rings of a sideband event on all processors.
fn rings() -> Option<Vec<(Event, Ring)>> {
    let cpus = crate::cpu_list::online(std::path::Path::new("/sys")).unwrap();
    let open = |cpu: &Cpu| {
        let event = Event::open(
            "the sideband",
            &Attr::sideband(0),
            Target::Everyone,
            Some(*cpu),
            None,
        )?;
        let ring = Ring::map(&event, 64)?;
        event.enable()?;
        Ok((event, ring))
    };
    match cpus.iter().map(open).collect::<Result<_, Error>>() {
        Ok(rings) => Some(rings),
        Err(
            error @ Error::Open {
                refusal: crate::event::Refusal::NotAllowed,
                ..
            },
        ) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn drain(rings: &mut [(Event, Ring)]) -> Vec<Record> {
    let mut found = Vec::new();
    for (_, ring) in rings {
        let mut bytes = Vec::new();
        ring.take(&mut bytes).unwrap();
        for raw in records(&bytes) {
            found.extend(Record::parse(&raw.unwrap(), SAMPLE_TYPE).unwrap());
        }
    }
    found
}

#[test]
fn child_is_recorded_from_start_to_exit() {
    let Some(mut rings) = rings() else { return };
    let mut child = Command::new("/bin/true").spawn().unwrap();
    let pid = Pid(child.id());
    child.wait().unwrap();
    let records = drain(&mut rings);
    let of_child = |wanted: fn(&RecordEvent) -> Option<Pid>| {
        records
            .iter()
            .filter(move |record| wanted(&record.event) == Some(pid))
    };
    let forks = of_child(|event| match event {
        RecordEvent::Fork { pid, .. } => Some(*pid),
        _ => None,
    });
    assert_eq!(forks.count(), 1);
    let names = of_child(|event| match event {
        RecordEvent::Comm {
            pid,
            exec: true,
            name,
            ..
        } if name == "true" => Some(*pid),
        _ => None,
    });
    assert_eq!(names.count(), 1);
    let exits = of_child(|event| match event {
        RecordEvent::Exit { pid, .. } => Some(*pid),
        _ => None,
    });
    assert_eq!(exits.count(), 1);
    let mut code = records.iter().filter_map(|record| match &record.event {
        RecordEvent::Mmap(mmap) if mmap.pid == pid && mmap.executable => Some(mmap),
        _ => None,
    });
    let program = code.find(|mmap| mmap.path.ends_with("/true")).unwrap();
    assert!(program.build_id.is_some(), "{program:?}");
    let switches: Vec<_> = records
        .iter()
        .filter_map(|record| match &record.event {
            RecordEvent::Switch(switch) if switch.pid == pid => Some(switch),
            _ => None,
        })
        .collect();
    assert!(switches.iter().any(|switch| switch.direction == Direction::In));
    assert!(switches.iter().any(|switch| switch.direction != Direction::In));
    for record in &records {
        assert!(record.id.time.is_some() && record.id.cpu.is_some() && record.id.id.is_some());
    }
}

#[test]
fn unread_ring_drops_and_counts_records() {
    let Some(rings) = rings() else { return };
    drop(rings);
    let cpu = crate::cpu_list::online(std::path::Path::new("/sys")).unwrap()[0];
    let event = Event::open(
        "a small ring",
        &Attr::sideband(0),
        Target::Everyone,
        Some(cpu),
        None,
    )
    .unwrap();
    let mut ring = Ring::map(&event, 1).unwrap();
    event.enable().unwrap();
    // A comm record has 64 bytes, so 4096 bytes hold 64 of them.
    let here = std::thread::spawn(move || {
        // SAFETY: a processor set is plain data, and the call reads it.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu.0 as usize, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &set);
        }
        for _ in 0..200 {
            // SAFETY: the text ends with a NUL and is short enough.
            unsafe { libc::prctl(libc::PR_SET_NAME, c"backtrail-test".as_ptr()) };
        }
    });
    here.join().unwrap();
    assert!(ring.waiting() > 3000, "{}", ring.waiting());
    let mut bytes = Vec::new();
    ring.take(&mut bytes).unwrap();
    assert_eq!(ring.waiting() as usize % 8, 0);
    // The count of lost records precedes the next record that fits.
    std::thread::spawn(move || {
        // SAFETY: as above.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu.0 as usize, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &set);
            libc::prctl(libc::PR_SET_NAME, c"backtrail-test".as_ptr())
        };
    })
    .join()
    .unwrap();
    bytes.clear();
    ring.take(&mut bytes).unwrap();
    let lost: u64 = records(&bytes)
        .filter_map(
            |raw| match Record::parse(&raw.unwrap(), SAMPLE_TYPE).unwrap()?.event {
                RecordEvent::Lost { count } => Some(count),
                _ => None,
            },
        )
        .sum();
    assert!(lost >= 100, "{lost}");
}

#[test]
fn open_errors_are_explained() {
    let page = |event: &Event| Ring::map(event, 3).unwrap_err().to_string();
    let event = Event::open(
        "a dummy",
        &Attr::sideband(0),
        Target::Thread(backtrail_pt::Tid(0)),
        None,
        None,
    )
    .unwrap();
    assert!(page(&event).contains("not a power of two"));
    let ring = Ring::map(&event, 1).unwrap();
    // A software event has no AUX area.
    assert!(ring.map_aux(&event, 4096).is_err());
    assert!(
        ring.map_aux(&event, 5000)
            .unwrap_err()
            .to_string()
            .contains("power of two")
    );
    let gone = Event::open(
        "a dummy",
        &Attr::sideband(0),
        Target::Thread(backtrail_pt::Tid(0x7fff_fff0)),
        None,
        None,
    );
    let text = gone.unwrap_err().to_string();
    assert!(
        text.contains("cannot open a dummy: the thread has ended"),
        "{text}"
    );
}

#[test]
fn mmap_page_layout_matches_kernel() {
    let event = Event::open(
        "a dummy",
        &Attr::sideband(0),
        Target::Thread(backtrail_pt::Tid(0)),
        None,
        None,
    )
    .unwrap();
    let ring = Ring::map(&event, 2).unwrap();
    event.reset().unwrap();
    let word = |offset| ring.page.word(offset).load(Ordering::Relaxed);
    // `cap_bit0_is_deprecated` is set by every kernel since 3.12.
    let capabilities = word(offset_of!(perf_event_mmap_page, __bindgen_anon_1));
    assert_eq!(capabilities & 0b11, 0b10);
    assert_eq!(word(offset_of!(perf_event_mmap_page, data_offset)), PAGE as u64);
    assert_eq!(word(offset_of!(perf_event_mmap_page, data_size)), 2 * PAGE as u64);
    // Bit 3 is cap_user_time, which comes with bit 4 unless the event has its own clock.
    assert_eq!(ring.tsc_conversion().is_some(), capabilities >> 3 & 1 != 0);
}

#[test]
fn timer_counts_with_adjustable_period() {
    let attr = Attr::timer(1_000_000, crate::attr::AuxAction::Resume);
    // Without the trace that it is to resume, the kernel refuses it, or does not support it.
    assert!(Event::open("a timer", &attr, Target::Thread(backtrail_pt::Tid(0)), None, None).is_err());
    let event = Event::open(
        "a dummy",
        &Attr::sideband(0),
        Target::Thread(backtrail_pt::Tid(0)),
        None,
        None,
    )
    .unwrap();
    event.set_period(1000).unwrap();
    assert_ne!(event.id().unwrap(), 0);
    assert_eq!(event.count().unwrap(), 0);
    let text = event.set_filter("sig == 11").unwrap_err().to_string();
    assert!(text.contains("sig == 11"), "{text}");
}
