//! Checks and stores debug files and executables. A child process decides what a file is good for.

use super::debug_id::{is_file_hash, is_of};
use crate::analysis::{AnalysisError, ElfContents};
use crate::clock;
use crate::database::blobs::{self, BuildFile, FileKind};
use crate::database::jobs::{self, JobKind};
use crate::database::symbols;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::objects::{self, blocking};
use backtrail_profile::file_hash_id;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::AnyConnection;
use std::fs::File;
use std::path::Path;

/// The longest name of a file, in characters.
const MAX_NAME: usize = 200;

/// The identifier that a file must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected<'a> {
    /// Any build id.
    Any,
    /// This build id.
    BuildId(&'a str),
    /// A build id with this debug identifier.
    DebugId(&'a str),
}

/// The reason for which a file is not stored.
#[derive(Debug)]
pub enum Refusal {
    /// The file is at fault. The sender sees the sentence.
    File(String),
    /// The hub is at fault, and tries again.
    Hub(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(text) | Error::TooLarge(text) => Self::File(text),
            other => Self::Hub(other),
        }
    }
}

/// A file in the object store. Beside it is this description, from which the index can be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// The build id.
    pub build_id: String,
    /// The parts of the file.
    pub contents: ElfContents,
    /// The SHA-256.
    pub sha256: String,
    /// The size in bytes.
    pub size: u64,
    /// The name.
    pub name: String,
    /// `upload` or `upstream`.
    pub origin: String,
    /// The path of a source file of the build. `None`: it is an ELF file.
    #[serde(default)]
    pub source: Option<String>,
}

impl StoredFile {
    fn row(&self, kind: FileKind, size: i64) -> BuildFile {
        BuildFile {
            build_id: self.build_id.clone(),
            kind,
            sha256: self.sha256.clone(),
            name: self.name.clone(),
            size,
            origin: self.origin.clone(),
            detail: self.contents.detail(),
            created: clock::now(),
        }
    }
}

/// Checks a file in a child process, and writes it to the object store.
///
/// # Errors
/// Fails if the file is no ELF file, has another build id, or is good for nothing.
pub async fn put(
    hub: &Hub,
    path: &Path,
    name: &str,
    origin: &str,
    expected: Expected<'_>,
) -> std::result::Result<StoredFile, Refusal> {
    let contents = match hub.supervisor()?.inspect(path).await {
        Ok(contents) => contents,
        Err(AnalysisError::Refused(reason)) => return Err(Refusal::File(reason)),
        Err(AnalysisError::System(source)) => {
            return Err(Refusal::Hub(Error::system("run a child process")(source)));
        }
        Err(other) => return Err(Refusal::File(other.to_string())),
    };
    let build_id = match (contents.build_id.clone(), expected) {
        (Some(build_id), _) => build_id,
        // A reader compares the ids of its units with those of the program.
        (None, Expected::BuildId(wanted)) if contents.is_dwarf_package => wanted.to_owned(),
        (None, _) if contents.is_dwarf_package => {
            let text = "a package of split DWARF does not say its build; send it with its program by \
                        backtrail push-symbols";
            return Err(Refusal::File(text.to_owned()));
        }
        (None, _) if contents.has_code => file_hash(path).await?,
        (None, _) => {
            let text = "the file has neither a build id nor code; link the program with --build-id";
            return Err(Refusal::File(text.to_owned()));
        }
    };
    let is_expected = match expected {
        Expected::Any => true,
        Expected::BuildId(wanted) => wanted == build_id,
        // Clients make debug identifiers of files without a build id in other ways.
        Expected::DebugId(wanted) => is_file_hash(&build_id) || is_of(wanted, &build_id),
    };
    if !is_expected {
        return Err(Refusal::File(format!(
            "the file has another build id: {build_id}"
        )));
    }
    if !contents.has_code && contents.detail() == 0 && !contents.is_dwarf_package {
        let text = "the file has neither code nor symbols nor debug information";
        return Err(Refusal::File(text.to_owned()));
    }
    let (sha256, size) = put_blob(hub, path).await?;
    let file = StoredFile {
        build_id,
        contents,
        sha256,
        size,
        name: plain_name(name),
        origin: origin.to_owned(),
        source: None,
    };
    describe(hub, &file).await?;
    Ok(file)
}

/// Returns the id made of the contents of a file without a build id.
async fn file_hash(path: &Path) -> Result<String> {
    let path = path.to_owned();
    blocking(move || {
        let hashed = File::open(&path).and_then(|mut file| file_hash_id(&mut file));
        Ok(hashed.map_err(Error::file("read", &path))?.to_string())
    })
    .await
}

/// Writes a source file of a build to the object store. Its content cannot be checked.
///
/// # Errors
/// Fails if the object store or the database fails.
pub async fn put_source(hub: &Hub, path: &Path, build_id: &str, source: &str) -> Result<StoredFile> {
    let (sha256, size) = put_blob(hub, path).await?;
    let file = StoredFile {
        build_id: build_id.to_owned(),
        contents: ElfContents::default(),
        sha256,
        size,
        name: plain_name(source),
        origin: "upstream".to_owned(),
        source: Some(source.to_owned()),
    };
    describe(hub, &file).await?;
    Ok(file)
}

/// Writes the description of a file. The same content can be several source files.
async fn describe(hub: &Hub, file: &StoredFile) -> Result<()> {
    let text = serde_json::to_vec(file).map_err(|error| Error::Invalid(error.to_string()))?;
    let name = objects::hexadecimal(&Sha256::digest(&text));
    hub.objects
        .put(&objects::build_file(&file.build_id, &name), text)
        .await
}

/// Stores a file as a blob that garbage collection keeps for a day, until a row names it.
///
/// # Errors
/// Fails if the object store or the database fails.
pub async fn put_blob(hub: &Hub, path: &Path) -> Result<(String, u64)> {
    let (sha256, size) = objects::digest_of(path).await?;
    hub.database
        .reserve_blob(&sha256, clock::now() + clock::DAY)
        .await?;
    hub.objects.put_file_as(path, &sha256, size).await?;
    Ok((sha256, size))
}

/// Makes a stored file visible. If it says more of functions than the hub knew, jobs read again the
/// bundles that lack it. Returns the number of stack keys among them.
///
/// # Errors
/// Fails if the database fails.
pub async fn record(connection: &mut AnyConnection, file: &StoredFile) -> Result<usize> {
    let size = i64::try_from(file.size).unwrap_or(i64::MAX);
    blobs::note(connection, &file.sha256, size).await?;
    if let Some(source) = &file.source {
        let row = file.row(FileKind::source(source), size);
        let _ = blobs::use_in_build(connection, &row).await?;
        return Ok(0);
    }
    let detail = file.contents.detail();
    let mut is_news = false;
    let mut needs_index = false;
    let kinds = [
        (FileKind::Executable, file.contents.has_code),
        // A stripped file would hide a better one of an upstream server.
        (FileKind::Debuginfo, detail > 0),
        (FileKind::SplitDwarf, file.contents.is_dwarf_package),
    ];
    for (kind, is_good) in kinds {
        if !is_good {
            continue;
        }
        let is_debuginfo = kind == FileKind::Debuginfo;
        let row = file.row(kind, size);
        let is_more = blobs::use_in_build(connection, &row).await?;
        is_news |= is_more && is_debuginfo;
        needs_index |= is_more;
    }
    if needs_index {
        jobs::add(connection, JobKind::Index, &file.build_id, clock::now()).await?;
    }
    if is_news {
        symbols::analyze_again(connection, &file.build_id).await
    } else {
        Ok(0)
    }
}

/// Returns a file's name without its folders and without characters that a header cannot have.
#[must_use]
pub fn plain_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain = last
        .chars()
        .filter(|letter| letter.is_ascii_graphic() || *letter == ' ');
    plain.take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_folders_and_no_controls() {
        assert_eq!(plain_name("/usr/lib/libledger.so.1"), "libledger.so.1");
        assert_eq!(plain_name("../../etc/pass\r\nwd\u{202e}"), "passwd");
        assert_eq!(plain_name("C:\\a\\b.exe"), "b.exe");
        assert_eq!(plain_name(&"x".repeat(1000)).len(), MAX_NAME);
    }
}
