//! A page that shows a profile or a comparison, in one file without network access.
//!
//! The page is the component of `web/`. `cargo xtask web` bundles it into `html/page.html`, and
//! this module adds the data.

mod time_axis;
mod view_calls;
mod view_data;

pub use view_calls::ViewCalls;
pub use view_data::{ComparedProfile, EventPair, ViewData};

use crate::Result;
use std::io::{self, Write};

/// The page, with marks where the title and the data belong.
const PAGE: &str = include_str!("html/page.html");
const TITLE: &str = "{{title}}";
const DATA: &str = "{{data}}";

/// Writes a page.
///
/// # Errors
///
/// Those of `out`.
pub fn write(data: &ViewData, out: &mut dyn Write) -> Result<()> {
    let (start, rest) = PAGE.split_once(TITLE).unwrap_or((PAGE, ""));
    let (middle, end) = rest.split_once(DATA).unwrap_or((rest, ""));
    out.write_all(start.as_bytes())?;
    out.write_all(escaped(&data.title()).as_bytes())?;
    out.write_all(middle.as_bytes())?;
    serde_json::to_writer(ScriptText(&mut *out), data)?;
    out.write_all(end.as_bytes())?;
    Ok(())
}

/// Writes the data of a page as JSON.
///
/// # Errors
///
/// Those of `out`.
pub fn write_data(data: &ViewData, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer(&mut *out, data)?;
    writeln!(out)?;
    Ok(())
}

/// Returns a text as the content of an element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// JSON inside a `script` element. `<` is only part of texts, and is written as an escape, so that
/// no text ends the element or begins a comment.
struct ScriptText<'a>(&'a mut dyn Write);

impl Write for ScriptText<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (index, part) in bytes.split(|byte| *byte == b'<').enumerate() {
            if index > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::folded;
    use crate::function_profile::FunctionProfile;
    use crate::profile::Profile;

    fn page(name: &str, profile: &Profile) -> String {
        let functions = FunctionProfile::new(profile).unwrap();
        let (event, _) = profile.events.iter().next().unwrap();
        let data = ViewData::of_profile(name, profile, &functions, event);
        let mut out = Vec::new();
        write(&data, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Returns the text of the data element, as a browser finds it.
    fn data_of(page: &str) -> &str {
        let (_, rest) = page
            .split_once("<script type=\"application/json\" id=\"data\">")
            .unwrap();
        rest.split_once("</script>").unwrap().0
    }

    #[test]
    fn texts_do_not_end_their_element() {
        let hostile = [
            "</script><script>alert(1)</script>",
            "<!--<script>",
            "</SCRIPT >",
            "&lt;/script&gt;",
            "\u{2028}\"\\</title>",
        ];
        for name in hostile {
            let mut profile = Profile::default();
            let event = profile.event(name, name, 1).unwrap();
            let function = profile.function(name).unwrap();
            let frame = profile
                .frames
                .intern(crate::Frame::Function { function, line: 0 })
                .unwrap();
            let stack = profile.stacks.push(crate::StackId::EMPTY, frame).unwrap();
            profile.add(event, 5, stack).unwrap();
            profile.notes.push(name.to_owned());
            let page = page(name, &profile);
            let data = data_of(&page);
            assert!(!data.contains('<'), "{data}");
            let data: serde_json::Value = serde_json::from_str(data).unwrap();
            assert_eq!(data["names"][0], name);
            assert_eq!(data["events"][0]["name"], name);
            assert_eq!(data["notes"][0], name);
            let text = data["functions"]["name"][0].as_u64().unwrap() as usize;
            assert_eq!(data["strings"][text], name);
            // The tags are those of the page without data.
            let tags = |text: &str| text.matches('<').count();
            assert_eq!(tags(&page), tags(PAGE));
        }
    }

    #[test]
    fn page_loads_nothing_and_has_the_data() {
        let profile = folded::read("main;f 30\nmain 10\n".as_bytes()).unwrap();
        let page = page("a & b", &profile);
        assert!(page.contains("default-src 'none'"));
        assert!(page.contains("<title>a &amp; b</title>"));
        for mark in [TITLE, DATA, " src=", "<link", "http://", "https://"] {
            assert!(!page.contains(mark), "{mark}");
        }
    }
}
