//! Downloads the bundle of a crash.

use super::upload::hexadecimal;
use super::{Error, HubClient};
use crate::ReportId;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use ureq::SendBody;
use ureq::http::Method;

/// A download.
#[derive(Clone, Copy, Debug)]
pub struct Download<'a> {
    /// The crash.
    pub id: &'a ReportId,
    /// The empty file that receives the bundle.
    pub file: &'a File,
    /// The largest accepted size in bytes.
    pub limit: u64,
}

impl HubClient {
    /// Downloads the packed bundle of a crash with all its modules, and returns its SHA-256 in
    /// hexadecimal digits. The hub states the digest too, and both must agree.
    ///
    /// `on_progress` receives the number of received bytes, and the total if known.
    /// [`ControlFlow::Break`] cancels the download.
    ///
    /// # Errors
    /// Fails if the hub cannot be reached, has no bundle of the crash, or refuses the token.
    /// Fails if the bundle is damaged or too large, if the file cannot be written, or if canceled.
    pub fn download(
        &self,
        download: Download<'_>,
        on_progress: &mut dyn FnMut(u64, Option<u64>) -> ControlFlow<()>,
    ) -> Result<String, Error> {
        let Download { id, file, limit } = download;
        let url = self.address.join(&format!("/crash/{id}.btz"));
        let answer = self.request(Method::GET, &url, &[], SendBody::none())?;
        let answer = answer.successful(&self.address)?;
        let too_large = || Error::TooLarge { limit: limit >> 20 };
        let total = answer.number("content-length");
        if total.is_some_and(|total| total > limit) {
            return Err(too_large());
        }
        let is_digest = |text: &&str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let stated = answer.header("x-content-sha256").map(str::trim).filter(is_digest);
        let stated = stated.ok_or_else(|| self.unexpected("it states no SHA-256 of the bundle"))?;
        let stated = stated.to_ascii_lowercase();
        let mut body = answer.0.into_body().into_with_config().limit(u64::MAX).reader();
        let mut digest = Sha256::new();
        let mut piece = vec![0; 1 << 16];
        let (mut done, mut out) = (0, file);
        loop {
            if on_progress(done, total).is_break() {
                return Err(Error::Canceled);
            }
            let read = body.read(&mut piece).map_err(|error| Error::Connection {
                hub: self.address.to_string(),
                problem: error.to_string(),
            })?;
            let Some(read) = piece.get(..read).filter(|read| !read.is_empty()) else {
                break;
            };
            done += read.len() as u64;
            if done > limit {
                return Err(too_large());
            }
            digest.update(read);
            out.write_all(read).map_err(Error::file("write"))?;
        }
        let found = hexadecimal(&digest.finalize());
        match found == stated {
            true => Ok(found),
            false => Err(Error::Digest {
                hub: self.address.to_string(),
                found,
                stated,
            }),
        }
    }
}
