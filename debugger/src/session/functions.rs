//! Provides the decoder with the functions of a process.

use crate::module_history::ModuleHistory;
use backtrail_decoder::{Functions, Version};
use backtrail_pt::Avma;
use backtrail_symbolizer::{FunctionKind, Symbolizer};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// [`Functions`] of a process whose modules may have changed over time.
pub struct SymbolFunctions {
    stable: EpochFunctions,
    /// The modules over time, if any was replaced.
    replaced: Option<ReplacedFunctions>,
}

struct ReplacedFunctions {
    modules: Arc<ModuleHistory>,
    epochs: Vec<EpochFunctions>,
}

/// [`Functions`] out of symbols; what was asked once is kept.
struct EpochFunctions {
    symbols: Arc<Symbolizer>,
    /// By the end of the range: answers, of which the functions' ranges do not overlap.
    known: Mutex<BTreeMap<u64, KnownFunction>>,
}

#[derive(Clone)]
struct KnownFunction {
    range: Range<Avma>,
    entry: Avma,
    is_plt: bool,
    is_resolver: bool,
}

impl SymbolFunctions {
    /// Builds the functions of modules that stay mapped, without cached ones.
    #[must_use]
    pub fn new(symbols: Arc<Symbolizer>) -> Self {
        Self {
            stable: EpochFunctions::new(symbols),
            replaced: None,
        }
    }

    /// Returns those of the modules of a process.
    #[must_use]
    pub fn over_time(modules: &Arc<ModuleHistory>) -> Self {
        let epochs = modules.epochs().iter();
        let replaced = || ReplacedFunctions {
            modules: Arc::clone(modules),
            epochs: epochs
                .map(|epoch| EpochFunctions::new(Arc::clone(&epoch.symbols)))
                .collect(),
        };
        Self {
            replaced: (!modules.has_one_epoch()).then(replaced),
            ..Self::new(Arc::clone(modules.stable()))
        }
    }
}

impl EpochFunctions {
    fn new(symbols: Arc<Symbolizer>) -> Self {
        Self {
            symbols,
            known: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, KnownFunction>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<T>(&self, pc: Avma, answer: impl Fn(&KnownFunction) -> T) -> Option<T> {
        if let Some((_, known)) = self.lock().range(pc.0.saturating_add(1)..).next()
            && known.range.contains(&pc)
        {
            return Some(answer(known));
        }
        let function = self.symbols.function_at(pc)?;
        let known = KnownFunction {
            is_plt: function.kind == FunctionKind::Plt,
            is_resolver: function.name.starts_with("_dl_runtime_resolve"),
            entry: function.entry,
            range: function.range,
        };
        let answered = answer(&known);
        self.lock().insert(known.range.end.0, known);
        Some(answered)
    }
}

impl Functions for EpochFunctions {
    fn range_of(&self, pc: Avma) -> Option<Range<Avma>> {
        self.ask(pc, |known| known.range.clone())
    }

    fn entry_of(&self, pc: Avma) -> Option<Avma> {
        self.ask(pc, |known| known.entry)
    }

    fn is_plt(&self, pc: Avma) -> bool {
        self.ask(pc, |known| known.is_plt).unwrap_or(false)
    }

    fn is_resolver(&self, pc: Avma) -> bool {
        self.ask(pc, |known| known.is_resolver).unwrap_or(false)
    }
}

impl Functions for SymbolFunctions {
    fn range_of(&self, pc: Avma) -> Option<Range<Avma>> {
        self.stable.range_of(pc)
    }

    fn entry_of(&self, pc: Avma) -> Option<Avma> {
        self.stable.entry_of(pc)
    }

    fn is_plt(&self, pc: Avma) -> bool {
        self.stable.is_plt(pc)
    }

    fn is_resolver(&self, pc: Avma) -> bool {
        self.stable.is_resolver(pc)
    }

    fn replaced(&self, pc: Avma, version: Version) -> Option<(usize, &dyn Functions)> {
        let replaced = self.replaced.as_ref()?;
        let epoch = replaced.modules.mapped_since(pc, version)?;
        let functions: &dyn Functions = replaced.epochs.get(epoch)?;
        Some((epoch, functions))
    }
}
