//! What somebody who means no good would try: each finding of a security review, as a test that failed before it was mended.

mod adapter;
mod bundles;
mod crashes;
mod recorder;
mod soak;
mod text;
