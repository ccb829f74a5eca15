//! The three ways of following the flow, from the fastest to the slowest.
//!
//! [`cached`] applies paths of the packet cache. [`fast`] reads TNT and TIP packets directly and
//! applies paths of the branch cache. [`block`] follows block by block, and is the only one that
//! handles every packet.

mod block;
mod cached;
mod fast;
