//! Hashes of stacks by their content: the same stack has the same hash in every segment.
//!
//! A hash is the first 16 bytes of SHA-256 over the caller's hash and the innermost frame. The
//! empty stack's hash is zero. A frame is its kind and its fields. Texts have their length in
//! front, and numbers are little-endian.

use backtrail_profile::{Frame, FrameId, Id, Profile, StackId};
use sha2::{Digest, Sha256};

/// The hash of a stack.
pub(crate) type StackHash = [u8; 16];

/// The hashes of a profile's stacks. They are computed as stacks are added.
#[derive(Clone, Debug)]
pub(crate) struct StackHashes {
    frames: Vec<StackHash>,
    stacks: Vec<StackHash>,
}

impl Default for StackHashes {
    fn default() -> Self {
        Self {
            frames: Vec::new(),
            stacks: vec![StackHash::default()],
        }
    }
}

impl StackHashes {
    /// Computes the hashes of stacks that the profile has since the last call.
    pub(crate) fn extend(&mut self, profile: &Profile) {
        for (_, frame) in profile.frames.iter().skip(self.frames.len()) {
            self.frames.push(of_frame(profile, frame));
        }
        // The list has the empty stack too.
        for (_, caller, frame) in profile.stacks.iter().skip(self.stacks.len() - 1) {
            let mut hash = Sha256::new();
            hash.update(self.of(caller));
            hash.update(self.of_frame(frame));
            self.stacks.push(first_half(hash));
        }
    }

    /// Returns the hash of a stack.
    pub(crate) fn of(&self, stack: StackId) -> StackHash {
        self.stacks.get(stack.index()).copied().unwrap_or_default()
    }

    fn of_frame(&self, frame: FrameId) -> StackHash {
        self.frames.get(frame.index()).copied().unwrap_or_default()
    }
}

fn first_half(hash: Sha256) -> StackHash {
    let digest = hash.finalize();
    let mut half = StackHash::default();
    for (to, from) in half.iter_mut().zip(digest.iter()) {
        *to = *from;
    }
    half
}

fn of_frame(profile: &Profile, frame: &Frame) -> StackHash {
    let mut hash = Sha256::new();
    match *frame {
        Frame::Code { module, offset } => {
            match profile.modules.get(module) {
                Some(module) => match &module.build_id {
                    Some(build_id) => add(&mut hash, b"code", build_id.as_bytes()),
                    None => add(&mut hash, b"path", profile.text(module.path).as_bytes()),
                },
                None => add(&mut hash, b"path", b""),
            }
            hash.update(offset.0.to_le_bytes());
        }
        Frame::Address(address) => add(&mut hash, b"address", &address.to_le_bytes()),
        Frame::Function { function, line } => {
            if let Some(function) = profile.functions.get(function) {
                add(&mut hash, b"function", profile.text(function.name).as_bytes());
                add(&mut hash, b"", profile.text(function.linkage_name).as_bytes());
                let file = function.file.map_or("", |file| profile.text(file));
                add(&mut hash, b"", file.as_bytes());
                hash.update(function.start_line.to_le_bytes());
            }
            hash.update(line.to_le_bytes());
        }
        _ => add(&mut hash, b"lost", b""),
    }
    first_half(hash)
}

/// Adds a kind, and a field with its length.
fn add(hash: &mut Sha256, kind: &[u8], field: &[u8]) {
    hash.update(kind);
    hash.update((field.len() as u64).to_le_bytes());
    hash.update(field);
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_profile::Module;
    use backtrail_pt::{BuildId, FileOffset};

    /// Returns a profile with a stack of two frames, and the stack.
    fn profile(first: u8, offset: u64, texts_before: usize) -> (Profile, StackId) {
        let mut profile = Profile::default();
        for number in 0..texts_before {
            profile.string(&number.to_string()).unwrap();
        }
        let path = profile.string("/usr/bin/server").unwrap();
        let build_id = BuildId::new(&[first, 2, 3]);
        let module = profile.modules.intern(Module { build_id, path }).unwrap();
        let offset = FileOffset(offset);
        let outer = profile.frames.intern(Frame::Code { module, offset }).unwrap();
        let inner = profile.frames.intern(Frame::Address(77)).unwrap();
        let caller = profile.stacks.push(StackId::EMPTY, outer).unwrap();
        let stack = profile.stacks.push(caller, inner).unwrap();
        (profile, stack)
    }

    fn hash(profile: &(Profile, StackId)) -> StackHash {
        let mut hashes = StackHashes::default();
        hashes.extend(&profile.0);
        hashes.of(profile.1)
    }

    #[test]
    fn hash_depends_on_the_content_only() {
        assert_eq!(hash(&profile(1, 64, 0)), hash(&profile(1, 64, 5)));
        assert_ne!(hash(&profile(1, 64, 0)), hash(&profile(2, 64, 0)));
        assert_ne!(hash(&profile(1, 64, 0)), hash(&profile(1, 65, 0)));
    }

    #[test]
    fn hashes_of_later_stacks_are_those_of_a_new_computation() {
        let (mut profile, stack) = profile(1, 64, 0);
        let mut hashes = StackHashes::default();
        hashes.extend(&profile);
        let frame = profile.frames.intern(Frame::Lost).unwrap();
        let longer = profile.stacks.push(stack, frame).unwrap();
        hashes.extend(&profile);
        let mut again = StackHashes::default();
        again.extend(&profile);
        assert_eq!(hashes.of(longer), again.of(longer));
        assert_ne!(hashes.of(longer), hashes.of(stack));
    }
}
