//! A registry of object stores that has only that of the profiles.

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreRegistry;
use object_store::ObjectStore;
use std::sync::Arc;
use url::Url;

/// The registry. Plans cannot reach the file system or the network through it.
#[derive(Debug)]
pub(crate) struct OnlyStore {
    url: Url,
    store: Arc<dyn ObjectStore>,
}

impl OnlyStore {
    /// Builds the registry of one store.
    pub(crate) fn new(url: Url, store: Arc<dyn ObjectStore>) -> Self {
        Self { url, store }
    }
}

impl ObjectStoreRegistry for OnlyStore {
    /// Ignores the store: the registry has one.
    fn register_store(&self, _: &Url, _: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        None
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        let is_same = url.scheme() == self.url.scheme() && url.host_str() == self.url.host_str();
        match is_same {
            true => Ok(Arc::clone(&self.store)),
            false => plan_err!("{}:// is no store of profiles", url.scheme()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;

    #[test]
    fn file_system_is_not_in_the_registry() {
        let url = Url::parse("profiles://store").unwrap();
        let registry = OnlyStore::new(url.clone(), Arc::new(InMemory::new()));
        assert!(registry.get_store(&url).is_ok());
        let file = Url::parse("file:///").unwrap();
        registry.register_store(&file, Arc::new(InMemory::new()));
        assert!(registry.get_store(&file).is_err());
    }
}
