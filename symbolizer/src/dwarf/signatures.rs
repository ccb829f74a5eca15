//! Reads the types in the declarations of functions (DWARF 5, sections 3.3.2 and 5.7.7).

use super::budget::Budget;
use super::entry::Entry;
use super::info::DebugInfo;
use super::type_names::TypeNames;
use crate::code_part::Signature;
use crate::entry_id::EntryId;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The most parameters of a function that are read.
const MAX_PARAMETERS: usize = 256;

/// Reads each declaration once.
pub(super) struct Signatures<'i, 'd> {
    info: &'i DebugInfo<'d>,
    names: TypeNames<'i, 'd>,
    known: FxHashMap<EntryId, Option<Arc<Signature>>>,
}

impl<'i, 'd> Signatures<'i, 'd> {
    pub fn new(info: &'i DebugInfo<'d>) -> Self {
        Self {
            info,
            names: TypeNames::new(info),
            known: FxHashMap::default(),
        }
    }

    /// Returns the types of a function, or of the function that an inlined copy repeats.
    pub fn of(&mut self, id: EntryId) -> Option<Arc<Signature>> {
        let entry = self.info.entry(id)?;
        match entry.reference(gimli::DW_AT_abstract_origin) {
            Some(origin) => self.of_origin(origin),
            None => self.of_origin(id),
        }
    }

    /// Returns the types of a function that is not a copy. `None`: its unit states no types, so
    /// that it may have parameters.
    pub fn of_origin(&mut self, id: EntryId) -> Option<Arc<Signature>> {
        if let Some(known) = self.known.get(&id) {
            return known.clone();
        }
        let signature = self.info.entry(id).and_then(|entry| {
            let states_types = entry.unit.unit.states_types();
            let signature = self.read(entry);
            (states_types || signature != Signature::default()).then(|| Arc::new(signature))
        });
        self.known.insert(id, signature.clone());
        signature
    }

    fn read(&mut self, function: Entry<'i, 'd>) -> Signature {
        let mut result = None;
        let mut parameters: Vec<Entry<'i, 'd>> = Vec::new();
        // A definition may repeat none of the parameters that its declaration states.
        for entry in function.with_origins(self.info) {
            result = result.or_else(|| entry.reference(gimli::DW_AT_type));
            let here = parameters_of(&entry, &self.info.budget);
            if here.len() > parameters.len() {
                parameters = here;
            }
        }
        let mut signature = Signature {
            result: result.map(|result| self.names.name(Some(result))),
            ..Signature::default()
        };
        for (number, parameter) in parameters.into_iter().enumerate() {
            let (mut ty, mut name, mut artificial) = (None, None, false);
            for entry in parameter.with_origins(self.info) {
                ty = ty.or_else(|| entry.reference(gimli::DW_AT_type));
                name = name.or_else(|| entry.text(gimli::DW_AT_name));
                artificial |= entry.flag(gimli::DW_AT_artificial);
            }
            if number == 0 && artificial {
                signature.this = ty.and_then(|ty| self.names.pointed_to(ty));
                continue;
            }
            // The compiler adds others too, such as the address of a returned object.
            if artificial {
                continue;
            }
            let ty = self.names.name(ty);
            if number == 0 && name == Some(b"self".as_slice()) {
                signature.this = Some(ty.clone());
            }
            signature.parameters.push(ty);
        }
        signature
    }
}

fn parameters_of<'i, 'd>(function: &Entry<'i, 'd>, budget: &Budget) -> Vec<Entry<'i, 'd>> {
    let mut children = function.children(budget);
    children.retain(|child| child.tag() == gimli::DW_TAG_formal_parameter);
    children.truncate(MAX_PARAMETERS);
    children
}
