//! Interned values with typed indexes.

use crate::{Error, Result};
use indexmap::{Equivalent, IndexSet};
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

/// The index of a value in a [`Table`].
pub trait Id: Copy {
    /// Returns the id with an index.
    fn from_index(index: u32) -> Self;

    /// Returns the index.
    fn index(self) -> usize;
}

macro_rules! table_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $crate::table::Id for $name {
            fn from_index(index: u32) -> Self {
                Self(index)
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}
pub(crate) use table_id;

/// Distinct values in the order in which they were added. Equal values have one id.
///
/// The hash function is keyed, because profiles come from elsewhere.
pub struct Table<I, T> {
    values: IndexSet<T>,
    id: PhantomData<fn() -> I>,
}

impl<I: Id, T: Hash + Eq> Table<I, T> {
    /// Returns the id of a value, and adds the value if it is new.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if the table has 2^32 − 1 values.
    pub fn intern(&mut self, value: T) -> Result<I> {
        let (index, _) = self.values.insert_full(value);
        id_of(index)
    }

    /// Returns the same for a value that is only built if it is new.
    ///
    /// # Errors
    ///
    /// As [`Table::intern`].
    pub fn intern_with<Q>(&mut self, key: &Q, build: impl FnOnce() -> T) -> Result<I>
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        match self.values.get_index_of(key) {
            Some(index) => id_of(index),
            None => self.intern(build()),
        }
    }

    /// Replaces the value that is equal to this one, and keeps its id.
    pub(crate) fn replace(&mut self, value: T) {
        self.values.replace(value);
    }

    /// Returns the id of a value that the table has.
    pub fn find<Q>(&self, key: &Q) -> Option<I>
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        id_of(self.values.get_index_of(key)?).ok()
    }

    /// Returns a value.
    #[must_use]
    pub fn get(&self, id: I) -> Option<&T> {
        self.values.get_index(id.index())
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the values with their ids, in the order of the ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (I, &T)> {
        let values = self.values.iter().enumerate();
        values.map(|(index, value)| (I::from_index(index as u32), value))
    }
}

fn id_of<I: Id>(index: usize) -> Result<I> {
    let index = u32::try_from(index).ok().filter(|index| *index < u32::MAX);
    index.map(I::from_index).ok_or(Error::Full)
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Self {
            values: IndexSet::default(),
            id: PhantomData,
        }
    }
}

impl<I, T: Clone> Clone for Table<I, T> {
    fn clone(&self) -> Self {
        Self {
            values: self.values.clone(),
            id: PhantomData,
        }
    }
}

impl<I, T: fmt::Debug> fmt::Debug for Table<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}
