//! `iptr-edge-analyzer`, measured with its caches on; it counts basic blocks.

#[cfg(not(feature = "edges"))]
pub use without::run;

#[cfg(feature = "edges")]
pub use with::run;

#[cfg(not(feature = "edges"))]
mod without {
    use crate::Failure;
    use crate::arguments::Arguments;
    use serde_json::Value;

    /// It is not there.
    pub fn run(_arguments: &Arguments) -> Result<Value, Failure> {
        Err("built without the feature `edges`".to_owned())
    }
}

#[cfg(feature = "edges")]
mod with {
    use crate::Failure;
    use crate::arguments::Arguments;
    use crate::code::{self, Piece};
    use crate::report::{joined, memory, seconds, timed};
    use crate::stream::Stream;
    use iptr_decoder::{DecodeOptions, decode};
    use iptr_edge_analyzer::{ControlFlowTransitionKind, EdgeAnalyzer, HandleControlFlow, ReadMemory};
    use serde_json::{Value, json};
    use std::convert::Infallible;

    /// The whole stream, by one analyzer for all runs: its caches are warm after the first.
    pub fn run(arguments: &Arguments) -> Result<Value, Failure> {
        let stream = Stream::open_cold(&arguments.bundle, arguments.bytes)?;
        let code = Code {
            pieces: code::pieces(&stream.image),
            last: 0,
        };
        let mut analyzer = EdgeAnalyzer::new(Counter::default(), code);
        let mut runs = Vec::new();
        for _ in 0..arguments.runs.max(1) {
            let (result, seconds) = timed(|| decode(stream.bytes(), DecodeOptions::default(), &mut analyzer));
            result.map_err(|error| format!("{error}: {error:?}"))?;
            runs.push(seconds);
        }
        let counted = json!({
            "bytes": stream.bytes().len(),
            "blocks": analyzer.handler().blocks,
            "seconds": seconds(&runs),
        });
        Ok(joined([counted, memory()]))
    }

    /// Counts the blocks; what the analyzer caches of a sequence of branches is how many it has.
    #[derive(Default)]
    struct Counter {
        blocks: u64,
        sequence: u64,
    }

    impl HandleControlFlow for Counter {
        type Error = Infallible;
        type CachedKey = u64;

        fn at_decode_begin(&mut self) -> Result<(), Infallible> {
            *self = Self::default();
            Ok(())
        }

        #[inline]
        fn on_new_block(
            &mut self,
            _block: u64,
            _kind: ControlFlowTransitionKind,
            cache: bool,
        ) -> Result<(), Infallible> {
            self.blocks += 1;
            self.sequence += u64::from(cache);
            Ok(())
        }

        fn cache_prev_cached_key(&mut self, key: u64) -> Result<(), Infallible> {
            self.sequence += key;
            Ok(())
        }

        fn take_cache(&mut self) -> Result<Option<u64>, Infallible> {
            Ok(Some(std::mem::take(&mut self.sequence)))
        }

        fn clear_current_cache(&mut self) -> Result<(), Infallible> {
            self.sequence = 0;
            Ok(())
        }

        #[inline]
        fn on_reused_cache(&mut self, key: &u64, _next: u64) -> Result<(), Infallible> {
            self.blocks += key;
            Ok(())
        }

        fn should_clear_all_cache(&mut self) -> Result<bool, Infallible> {
            Ok(false)
        }
    }

    /// The code it reads.
    struct Code {
        pieces: Vec<Piece>,
        last: usize,
    }

    /// There is no code at the address.
    #[derive(Debug, thiserror::Error)]
    #[error("there is no code at {0:#x}")]
    struct NoCode(u64);

    impl ReadMemory for Code {
        type Error = NoCode;

        fn at_decode_begin(&mut self) -> Result<(), NoCode> {
            Ok(())
        }

        fn read_memory<T>(
            &mut self,
            address: u64,
            size: usize,
            callback: impl FnOnce(&[u8]) -> T,
        ) -> Result<T, NoCode> {
            let holds = |piece: &Piece| {
                let skip = address.checked_sub(piece.start);
                skip.is_some_and(|skip| skip < piece.bytes.len() as u64)
            };
            if !self.pieces.get(self.last).is_some_and(holds) {
                self.last = self.pieces.iter().position(holds).ok_or(NoCode(address))?;
            }
            let piece = self.pieces.get(self.last).ok_or(NoCode(address))?;
            let skip = (address - piece.start) as usize;
            let rest = piece.bytes.get(skip..).unwrap_or_default();
            Ok(callback(rest.get(..size).unwrap_or(rest)))
        }
    }
}
