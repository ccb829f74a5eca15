//! Call sites (DWARF 5, section 3.4), and GNU's tags for them in earlier versions.

use super::budget::Budget;
use super::entry::{Entry, budget};
use super::evaluate::sole_register;
use super::info::DebugInfo;
use crate::location::CallSite;
use gimli::AttributeValue;

/// The deepest nesting of blocks that is read.
const MAX_DEPTH: u32 = 64;

impl<'d> DebugInfo<'d> {
    /// Returns the call that returns to `at`.
    pub fn call_site(&self, at: u64) -> Option<CallSite> {
        let function = self.physical_entry(at.checked_sub(1)?)?;
        let site = find(&function, at, &budget(), 0)?;
        let target = site
            .reference(gimli::DW_AT_call_origin)
            .or_else(|| site.reference(gimli::DW_AT_abstract_origin))
            .and_then(|id| self.entry(id));
        let name = target.and_then(|target| {
            let names = target.with_origins(self).find_map(|entry| {
                entry
                    .text(gimli::DW_AT_linkage_name)
                    .or_else(|| entry.text(gimli::DW_AT_name))
            });
            Some(String::from_utf8_lossy(names?).into())
        });
        let parameters = site.children(&budget()).into_iter().filter_map(|parameter| {
            let register = parameter.value(gimli::DW_AT_location)?.exprloc_value()?;
            let register = sole_register(register, parameter.unit.unit.gimli.encoding())?;
            let value = parameter
                .value(gimli::DW_AT_call_value)
                .or_else(|| parameter.value(gimli::DW_AT_GNU_call_site_value))?;
            Some((register, parameter.location_expression(value)?))
        });
        Some(CallSite {
            target: name,
            parameters: parameters.collect(),
            frame_base: self.frame_base(&function, at - 1),
        })
    }

    /// Returns whether the function at `at` states all its tail calls, and makes none.
    pub fn makes_no_tail_calls(&self, at: u64) -> bool {
        let Some(function) = self.physical_entry(at) else {
            return false;
        };
        let mut described = function.clone().with_origins(self);
        let states_all = described.any(|entry| {
            entry.flag(gimli::DW_AT_call_all_calls)
                || entry.flag(gimli::DW_AT_GNU_all_call_sites)
                || entry.flag(gimli::DW_AT_call_all_tail_calls)
                || entry.flag(gimli::DW_AT_GNU_all_tail_call_sites)
        });
        states_all && !has_tail_call(&function, &budget(), 0)
    }
}

fn is_call_site(entry: &Entry<'_, '_>) -> bool {
    matches!(entry.tag(), gimli::DW_TAG_call_site | gimli::DW_TAG_GNU_call_site)
}

fn is_block(entry: &Entry<'_, '_>) -> bool {
    matches!(
        entry.tag(),
        gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine
    )
}

fn find<'i, 'd>(around: &Entry<'i, 'd>, at: u64, budget: &Budget, depth: u32) -> Option<Entry<'i, 'd>> {
    if depth > MAX_DEPTH {
        return None;
    }
    around.children(budget).into_iter().find_map(|child| {
        if is_block(&child) {
            return find(&child, at, budget, depth + 1);
        }
        let returns_to = child
            .value(gimli::DW_AT_call_return_pc)
            .or_else(|| child.value(gimli::DW_AT_low_pc));
        let returns_to = returns_to.filter(|_| is_call_site(&child))?;
        let address = child.sections().attr_address(&child.unit.unit.gimli, returns_to);
        (address.ok()?? == at).then_some(child)
    })
}

fn has_tail_call(around: &Entry<'_, '_>, budget: &Budget, depth: u32) -> bool {
    let is_flag = |entry: &Entry<'_, '_>, name| matches!(entry.value(name), Some(AttributeValue::Flag(true)));
    // Blocks that are nested too deep may contain one.
    depth > MAX_DEPTH
        || around.children(budget).iter().any(|child| {
            is_block(child) && has_tail_call(child, budget, depth + 1)
                || is_call_site(child)
                    && (is_flag(child, gimli::DW_AT_call_tail_call)
                        || is_flag(child, gimli::DW_AT_GNU_tail_call))
        })
}
