//! The first screens of the crashes of Debian's programs fit a terminal.

use crate::debian::{orders, python, redis, sqlite};
use crate::first_screen::{MAX_LINES, first_screen};

#[test]
fn first_screen_of_debian_crashes_fits_a_terminal() {
    let crashes = [
        ("orders", Some(orders::crash())),
        ("python3", python::crash()),
        ("redis-server", redis::crash()),
        ("sqlite3", sqlite::crash()),
    ];
    for (name, crash) in crashes {
        let Some(crash) = crash else { continue };
        let screen = first_screen(&crash.bundle);
        println!("{name}: {} lines", screen.lines().count());
        assert!(screen.lines().count() <= MAX_LINES, "{name}:\n{screen}");
        assert!(screen.contains(" crashed: SIG"), "{screen}");
        assert!(screen.contains("Next: "), "{screen}");
    }
}
