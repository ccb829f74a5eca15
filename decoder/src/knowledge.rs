//! What decoders learnt of the code of processes, for the next traces of it.

use crate::engine::native::Learnt;
use crate::{Config, Image};
use backtrail_pt::Pid;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Decoders learn the code of a trace: its blocks, and what packets make of them. Whoever decodes the next trace of the same
/// code, of another thread or processor, or of the time before, begins with that.
#[derive(Default)]
pub struct Knowledge {
    /// What nobody uses now, what came back last last.
    kept: Mutex<Vec<(Scope, Learnt)>>,
}

/// What something was learnt of.
#[derive(Clone)]
pub(crate) struct Scope {
    /// The processes whose code it is, by the number that [`CodeChange::space`](crate::CodeChange) has for each.
    images: Vec<(u32, Arc<Image>)>,
    config: Config,
}

impl Scope {
    /// The code of one process.
    pub fn of_process(image: &Arc<Image>, config: &Config) -> Self {
        Self {
            images: vec![(0, Arc::clone(image))],
            config: config.clone(),
        }
    }

    /// The code of all that a processor runs.
    pub fn of_all<'a>(images: impl IntoIterator<Item = (&'a Pid, &'a Arc<Image>)>, config: &Config) -> Self {
        let images = images.into_iter().map(|(pid, image)| (pid.0, Arc::clone(image)));
        Self {
            images: images.collect(),
            config: config.clone(),
        }
    }
}

impl PartialEq for Scope {
    fn eq(&self, other: &Self) -> bool {
        let mut images = self.images.iter().zip(&other.images);
        self.images.len() == other.images.len()
            && images.all(|((one, image), (other, its))| one == other && Arc::ptr_eq(image, its))
            && self.config == other.config
    }
}

impl Knowledge {
    /// How much is kept: what as many decoders learnt.
    const MOST: usize = 64;

    /// Decodes something with what was learnt of its code, and keeps that and what comes to it.
    pub(crate) fn with<T>(&self, scope: Scope, decode: impl FnOnce(Learnt) -> (T, Learnt)) -> T {
        let known = self.take(&scope);
        let (decoded, learnt) = decode(known);
        self.keep(scope, learnt);
        decoded
    }

    /// The most that was learnt of it by one and is not in use; nothing, if there is none.
    pub(crate) fn take(&self, scope: &Scope) -> Learnt {
        let mut kept = self.kept();
        let of_it = kept.iter().enumerate().filter(|(_, (of, _))| of == scope);
        let most = of_it.max_by_key(|(_, (_, learnt))| learnt.paths());
        match most.map(|(at, _)| at) {
            Some(at) => kept.remove(at).1,
            None => Learnt::new(),
        }
    }

    /// What so many engines begin with that decode one trace: the most that was learnt of it, and as good as that for each of the others.
    pub(crate) fn take_for(&self, scope: &Scope, engines: NonZeroUsize) -> Vec<Learnt> {
        let mut first = self.take(scope);
        let others = (1..engines.get()).map(|_| self.take(scope));
        let others: Vec<Learnt> = others.map(|other| first.twin(other)).collect();
        std::iter::once(first).chain(others).collect()
    }

    /// Keeps what was learnt for the next.
    pub(crate) fn keep(&self, scope: Scope, learnt: Learnt) {
        let mut kept = self.kept();
        if kept.len() >= Self::MOST {
            kept.remove(0);
        }
        kept.push((scope, learnt));
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(Scope, Learnt)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Knowledge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Knowledge {{ {} kept }}", self.kept().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::native::Native;
    use crate::{AddressFilter, FilterKind, HistoryBuilder, Section};
    use backtrail_pt::{Avma, Encoder, EncoderOptions, Tid};

    #[test]
    fn only_what_was_learnt_of_the_same_is_given() {
        let (one, other) = (Arc::new(Image::new()), Arc::new(Image::new()));
        let filtered = Config {
            filters: vec![AddressFilter {
                range: Avma(1)..Avma(2),
                kind: FilterKind::Filter,
            }],
            ..Config::default()
        };
        let plain = Config::default();
        let scopes = [
            Scope::of_process(&one, &plain),
            Scope::of_process(&other, &plain),
            Scope::of_process(&one, &filtered),
            Scope::of_all([(&Pid(7), &one), (&Pid(8), &other)], &plain),
            Scope::of_all([(&Pid(7), &one)], &plain),
        ];
        for (at, scope) in scopes.iter().enumerate() {
            let knowledge = Knowledge::default();
            knowledge.with(scope.clone(), |learnt| ((), learnt));
            for (of, wanted) in scopes.iter().enumerate() {
                let before = knowledge.kept().len();
                knowledge.take(wanted);
                assert_eq!(knowledge.kept().len() < before, at == of, "{at} for {of}");
                knowledge.keep(scope.clone(), Learnt::new());
                knowledge.kept().truncate(1);
            }
        }
    }

    /// A scope, and something that was learnt of it.
    fn learnt() -> (Scope, Learnt) {
        let (at, code) = (Avma(0x1000), [0x75, 0xfe, 0xeb, 0xfc]);
        let mut encoder = Encoder::new(EncoderOptions::default());
        encoder.start();
        encoder.enable(at);
        (0..1000).for_each(|round| encoder.conditional(round % 7 < 3));
        let mut image = Image::new();
        image.add(Section {
            start: at,
            bytes: Arc::new(code),
        });
        let (image, config) = (Arc::new(image), Config::default());
        let mut history = HistoryBuilder::new(Tid(1));
        let (_, learnt) =
            Native.decode_knowing(&encoder.take(), &*image, &config, &mut history, Learnt::new());
        (Scope::of_process(&image, &config), learnt)
    }

    #[test]
    fn the_most_that_was_learnt_is_given_first() {
        let (scope, learnt) = learnt();
        let (knowledge, paths) = (Knowledge::default(), learnt.paths());
        assert!(paths > 0);
        for learnt in [Learnt::new(), learnt, Learnt::new()] {
            knowledge.keep(scope.clone(), learnt);
        }
        let taken = [(); 4].map(|()| knowledge.take(&scope).paths());
        assert_eq!(taken, [paths, 0, 0, 0]);
    }

    #[test]
    fn engines_of_one_trace_have_in_common_what_was_learnt_before() {
        let three = NonZeroUsize::new(3).unwrap();
        let (scope, learnt) = learnt();
        let (knowledge, paths) = (Knowledge::default(), learnt.paths());
        let nothing = knowledge.take_for(&scope, three);
        assert_eq!((nothing.len(), Learnt::in_common(&nothing)), (3, 0));
        knowledge.keep(scope.clone(), Learnt::new());
        knowledge.keep(scope.clone(), learnt);
        for _ in 0..2 {
            let taken = knowledge.take_for(&scope, three);
            assert_eq!(taken.iter().map(Learnt::paths).collect::<Vec<_>>(), [paths; 3]);
            assert_eq!((knowledge.kept().len(), Learnt::in_common(&taken)), (0, paths));
            for learnt in taken {
                knowledge.keep(scope.clone(), learnt);
            }
        }
    }

    #[test]
    fn what_was_not_used_longest_is_forgotten() {
        let knowledge = Knowledge::default();
        let config = Config::default();
        let images: Vec<_> = (0..=Knowledge::MOST).map(|_| Arc::new(Image::new())).collect();
        for image in &images {
            knowledge.keep(Scope::of_process(image, &config), Learnt::new());
        }
        assert_eq!(knowledge.kept().len(), Knowledge::MOST);
        knowledge.take(&Scope::of_process(&images[0], &config));
        assert_eq!(knowledge.kept().len(), Knowledge::MOST);
        knowledge.take(&Scope::of_process(&images[1], &config));
        assert_eq!(knowledge.kept().len(), Knowledge::MOST - 1);
    }
}
