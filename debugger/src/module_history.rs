//! The modules of a process over time: which one was mapped at an address in a version of the code.

use backtrail_decoder::Version;
use backtrail_pt::Avma;
use backtrail_symbolizer::{Module, Symbolizer};
use std::ops::Range;
use std::sync::Arc;

/// The symbols of the modules of a process, by address and version of the code.
///
/// Most processes have one epoch. If different modules were mapped at one address, as after
/// `dlclose`, each epoch has the symbols of those that were mapped in it.
pub struct ModuleHistory {
    stable: Arc<Symbolizer>,
    /// In order of time; at least one.
    epochs: Vec<ModuleEpoch>,
    /// The addresses at which modules were replaced: disjoint, ascending.
    replaced: Vec<Range<Avma>>,
}

/// A period in which the same modules were mapped.
pub struct ModuleEpoch {
    /// Its number among the epochs of the process.
    pub number: u32,
    /// The first version of the code in it.
    pub from: Version,
    /// The symbols of the modules that were mapped then.
    pub symbols: Arc<Symbolizer>,
}

impl From<Symbolizer> for ModuleHistory {
    /// Modules that are mapped all the time.
    fn from(stable: Symbolizer) -> Self {
        Self::new(stable, Vec::new(), Vec::new())
    }
}

impl ModuleHistory {
    /// Returns the history with these epochs, by their first version of the code. `stable` are the
    /// symbols that hold in all of them; they have none at the addresses in `replaced`.
    pub(crate) fn new(
        stable: Symbolizer,
        epochs: Vec<(Version, Symbolizer)>,
        mut replaced: Vec<Range<Avma>>,
    ) -> Self {
        let stable = Arc::new(stable);
        let mut epochs: Vec<ModuleEpoch> = (0..)
            .zip(epochs)
            .map(|(number, (from, symbols))| ModuleEpoch {
                number,
                from,
                symbols: Arc::new(symbols),
            })
            .collect();
        if epochs.is_empty() {
            epochs.push(ModuleEpoch {
                number: 0,
                from: Version::default(),
                symbols: Arc::clone(&stable),
            });
        }
        replaced.sort_unstable_by_key(|range| range.start);
        replaced.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        Self {
            stable,
            epochs,
            replaced,
        }
    }

    /// Returns the symbols that hold in all versions of the code.
    #[must_use]
    pub fn stable(&self) -> &Arc<Symbolizer> {
        &self.stable
    }

    /// Returns the epochs, in order of time.
    #[must_use]
    pub fn epochs(&self) -> &[ModuleEpoch] {
        &self.epochs
    }

    /// Returns whether the same modules were mapped all the time.
    #[must_use]
    pub fn has_one_epoch(&self) -> bool {
        self.epochs.len() == 1
    }

    /// Returns the number of the epoch with a version of the code.
    #[must_use]
    pub fn epoch_at(&self, version: Version) -> usize {
        let next = self.epochs.partition_point(|epoch| epoch.from <= version);
        next.saturating_sub(1)
    }

    /// Returns the symbols of the modules that were mapped in a version of the code.
    #[must_use]
    pub fn symbols_at(&self, version: Version) -> &Arc<Symbolizer> {
        let epoch = self.epochs.get(self.epoch_at(version));
        epoch.map_or(&self.stable, |epoch| &epoch.symbols)
    }

    /// Returns whether different modules were mapped at an address.
    #[must_use]
    pub fn is_replaced(&self, at: Avma) -> bool {
        let next = self.replaced.partition_point(|range| range.start <= at);
        let before = next.checked_sub(1).and_then(|before| self.replaced.get(before));
        before.is_some_and(|range| range.contains(&at))
    }

    /// Returns the number of the epoch in which the module at an address was mapped there, of those
    /// before a version of the code. Returns `None` if no module at the address was replaced.
    #[must_use]
    pub fn mapped_since(&self, at: Avma, version: Version) -> Option<usize> {
        if !self.is_replaced(at) {
            return None;
        }
        let module = |epoch: usize| self.epochs.get(epoch)?.symbols.module_at(at);
        let mut epoch = self.epoch_at(version);
        let here = module(epoch);
        while let Some(before) = epoch.checked_sub(1)
            && is_same(here, module(before))
        {
            epoch = before;
        }
        Some(epoch)
    }
}

fn is_same(one: Option<&Module>, other: Option<&Module>) -> bool {
    let file = |module: &Module| module.file.as_ref().map(Arc::as_ptr);
    match (one, other) {
        (Some(one), Some(other)) => {
            one.range == other.range
                && one.bias == other.bias
                && one.name == other.name
                && file(one) == file(other)
        }
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(names: &[(u64, &str)]) -> Symbolizer {
        let mut symbols = Symbolizer::new();
        for &(start, name) in names {
            symbols.add_module(Avma(start)..Avma(start + 0x1000), start, name, None);
        }
        symbols
    }

    #[test]
    fn each_version_has_the_module_that_was_mapped() {
        let epochs = vec![
            (Version(0), symbols(&[(0x1000, "main"), (0x5000, "first")])),
            (Version(3), symbols(&[(0x1000, "main"), (0x5000, "second")])),
            (Version(4), symbols(&[(0x1000, "main"), (0x5000, "second")])),
            (Version(9), symbols(&[(0x1000, "main"), (0x5000, "first")])),
        ];
        let replaced = vec![Avma(0x5000)..Avma(0x6000), Avma(0x5000)..Avma(0x6000)];
        let history = ModuleHistory::new(symbols(&[(0x1000, "main")]), epochs, replaced);
        let name = |version| {
            let module = history.symbols_at(Version(version)).module_at(Avma(0x5004));
            module.map(|module| module.name.to_string())
        };
        for (version, expected) in [
            (0, "first"),
            (2, "first"),
            (3, "second"),
            (8, "second"),
            (70, "first"),
        ] {
            assert_eq!(name(version).as_deref(), Some(expected), "{version}");
        }
        let since = |version| history.mapped_since(Avma(0x5004), Version(version));
        assert_eq!([0, 3, 4, 9].map(since), [Some(0), Some(1), Some(1), Some(3)]);
        assert_eq!(history.mapped_since(Avma(0x1004), Version(9)), None);
        assert!(history.is_replaced(Avma(0x5fff)) && !history.is_replaced(Avma(0x6000)));
    }

    #[test]
    fn modules_that_stay_have_one_epoch() {
        let history = ModuleHistory::from(symbols(&[(0x1000, "main")]));
        assert!(history.has_one_epoch());
        assert_eq!(history.symbols_at(Version(7)).modules().len(), 1);
        assert_eq!(history.mapped_since(Avma(0x1000), Version(7)), None);
    }
}
