//! Places with names.

use crate::failure::{Failure, Result};
use crate::session::ClientSession;
use backtrail_decoder::{Position, Watch};
use serde::{Deserialize, Serialize};

/// A place with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bookmark {
    /// The name.
    pub name: String,
    /// The place, as `goto` takes it.
    pub position: String,
}

/// The arguments of `backtrail/bookmarks`.
#[derive(Debug, Deserialize)]
pub struct BookmarksArguments {
    #[serde(default)]
    set: Vec<Bookmark>,
    #[serde(default)]
    remove: Vec<String>,
}

/// All of them.
#[derive(Debug, Serialize)]
pub struct BookmarkList {
    bookmarks: Vec<Bookmark>,
}

/// `backtrail/bookmarks`.
pub fn bookmarks(
    client: &mut ClientSession,
    arguments: BookmarksArguments,
    _: &Watch<'_>,
) -> Result<BookmarkList> {
    let navigator = &mut client.debuggee()?.navigator;
    let mut set = Vec::new();
    for Bookmark { name, position } in arguments.set {
        let wrong = || Failure::Cannot(format!("\"{position}\" is not a position"));
        let parsed: Position = position.parse().map_err(|_| wrong())?;
        navigator.session().thread(parsed.tid())?;
        set.push((name, parsed));
    }
    let changes = !set.is_empty() || !arguments.remove.is_empty();
    navigator.bookmarks.extend(set);
    for name in &arguments.remove {
        navigator.bookmarks.remove(name);
    }
    if changes {
        send_event(client)?;
    }
    all(client)
}

fn all(client: &mut ClientSession) -> Result<BookmarkList> {
    let bookmarks = client.debuggee()?.navigator.bookmarks.iter();
    let bookmarks = bookmarks.map(|(name, position)| Bookmark {
        name: name.clone(),
        position: position.to_string(),
    });
    Ok(BookmarkList {
        bookmarks: bookmarks.collect(),
    })
}

/// Reports changed bookmarks to the client.
///
/// # Errors
///
/// If no trace is open.
pub fn send_event(client: &mut ClientSession) -> Result<()> {
    let all = all(client)?;
    client.outbox.event("backtrail/bookmarksChanged", all);
    Ok(())
}
