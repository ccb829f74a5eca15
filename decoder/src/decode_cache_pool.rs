//! A pool of decode caches for the next traces of the same code.

use crate::engine::native::DecodeCache;
use crate::{Config, Image};
use backtrail_pt::Pid;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keeps the caches of decoders: blocks of code, and the paths that packets select. A decoder of
/// the same code starts with them: for another thread or processor, or an earlier part of a trace.
#[derive(Default)]
pub struct DecodeCachePool {
    /// Caches not in use, least recently returned first.
    free: Mutex<Vec<(CacheScope, DecodeCache)>>,
}

/// The code and configuration that caches are valid for.
#[derive(Clone)]
pub(crate) struct CacheScope {
    /// The images of the processes, by [`CodeChange::space`](crate::CodeChange).
    images: Vec<(u32, Arc<Image>)>,
    config: Config,
}

impl CacheScope {
    /// Returns the scope of one process.
    pub fn of_process(image: &Arc<Image>, config: &Config) -> Self {
        Self {
            images: vec![(0, Arc::clone(image))],
            config: config.clone(),
        }
    }

    /// Returns the scope of all processes on a processor.
    pub fn of_all<'a>(images: impl IntoIterator<Item = (&'a Pid, &'a Arc<Image>)>, config: &Config) -> Self {
        let images = images.into_iter().map(|(pid, image)| (pid.0, Arc::clone(image)));
        Self {
            images: images.collect(),
            config: config.clone(),
        }
    }
}

impl PartialEq for CacheScope {
    fn eq(&self, other: &Self) -> bool {
        let mut images = self.images.iter().zip(&other.images);
        self.images.len() == other.images.len()
            && images.all(|((one, image), (other, its))| one == other && Arc::ptr_eq(image, its))
            && self.config == other.config
    }
}

impl DecodeCachePool {
    /// The most caches kept.
    const MAX_CACHES: usize = 64;

    /// Decodes with a cache of the pool, and returns it to the pool.
    pub(crate) fn with_cache<T>(
        &self,
        scope: CacheScope,
        decode: impl FnOnce(DecodeCache) -> (T, DecodeCache),
    ) -> T {
        let known = self.take(&scope);
        let (decoded, cache) = decode(known);
        self.put(scope, cache);
        decoded
    }

    /// Takes the largest free cache of a scope; an empty one if there is none.
    pub(crate) fn take(&self, scope: &CacheScope) -> DecodeCache {
        let mut free = self.free();
        let of_it = free.iter().enumerate().filter(|(_, (of, _))| of == scope);
        let most = of_it.max_by_key(|(_, (_, cache))| cache.paths());
        match most.map(|(at, _)| at) {
            Some(at) => free.remove(at).1,
            None => DecodeCache::new(),
        }
    }

    /// Returns a cache to the pool.
    pub(crate) fn put(&self, scope: CacheScope, cache: DecodeCache) {
        let mut free = self.free();
        if free.len() >= Self::MAX_CACHES {
            free.remove(0);
        }
        free.push((scope, cache));
    }

    fn free(&self) -> MutexGuard<'_, Vec<(CacheScope, DecodeCache)>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for DecodeCachePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DecodeCachePool {{ {} free }}", self.free().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::native::Native;
    use crate::{AddressFilter, FilterKind, HistoryBuilder, Section};
    use backtrail_pt::{Avma, Encoder, EncoderOptions, Tid};

    #[test]
    fn caches_are_given_only_for_their_scope() {
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
            CacheScope::of_process(&one, &plain),
            CacheScope::of_process(&other, &plain),
            CacheScope::of_process(&one, &filtered),
            CacheScope::of_all([(&Pid(7), &one), (&Pid(8), &other)], &plain),
            CacheScope::of_all([(&Pid(7), &one)], &plain),
        ];
        for (at, scope) in scopes.iter().enumerate() {
            let pool = DecodeCachePool::default();
            pool.with_cache(scope.clone(), |cache| ((), cache));
            for (of, wanted) in scopes.iter().enumerate() {
                let before = pool.free().len();
                pool.take(wanted);
                assert_eq!(pool.free().len() < before, at == of, "{at} for {of}");
                pool.put(scope.clone(), DecodeCache::new());
                pool.free().truncate(1);
            }
        }
    }

    /// Returns a scope, and a cache of it.
    fn cache() -> (CacheScope, DecodeCache) {
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
        let (_, cache) = Native.decode_with_cache(
            &encoder.take(),
            &*image,
            &config,
            &mut history,
            DecodeCache::new(),
        );
        (CacheScope::of_process(&image, &config), cache)
    }

    #[test]
    fn cache_with_most_paths_is_taken_first() {
        let (scope, cache) = cache();
        let (pool, paths) = (DecodeCachePool::default(), cache.paths());
        assert!(paths > 0);
        for cache in [DecodeCache::new(), cache, DecodeCache::new()] {
            pool.put(scope.clone(), cache);
        }
        let caches = [(); 4].map(|()| pool.take(&scope).paths());
        assert_eq!(caches, [paths, 0, 0, 0]);
    }

    #[test]
    fn least_recently_returned_cache_is_dropped() {
        let pool = DecodeCachePool::default();
        let config = Config::default();
        let images: Vec<_> = (0..=DecodeCachePool::MAX_CACHES)
            .map(|_| Arc::new(Image::new()))
            .collect();
        for image in &images {
            pool.put(CacheScope::of_process(image, &config), DecodeCache::new());
        }
        assert_eq!(pool.free().len(), DecodeCachePool::MAX_CACHES);
        pool.take(&CacheScope::of_process(&images[0], &config));
        assert_eq!(pool.free().len(), DecodeCachePool::MAX_CACHES);
        pool.take(&CacheScope::of_process(&images[1], &config));
        assert_eq!(pool.free().len(), DecodeCachePool::MAX_CACHES - 1);
    }
}
