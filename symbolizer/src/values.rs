//! Queries for variables, types and locations of values.

use crate::entry_id::EntryId;
use crate::file::SymbolFile;
use crate::location::{CallSite, FrameState, LocationExpression, Piece, Unknown};
use crate::types::Type;
use crate::variables::{DataSymbol, Global, Scope, Variable, VariableLocation};
use backtrail_pt::Svma;
use std::collections::BTreeSet;
use std::sync::Arc;

impl SymbolFile {
    /// Returns the scope at `at` in the inlined copy number `level`, 0 being the innermost. Beyond
    /// the copies, it is the scope of the physical function. For a return address, pass the address
    /// of the byte before it, which belongs to the call.
    #[must_use]
    pub fn scope_at(&self, at: Svma, level: usize) -> Option<Scope> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.scope_at(at.0, level))
    }

    /// Returns the globals that a name can mean; the last components of a path are sufficient.
    /// Those of the unit around `near` come first. If some have exactly this name, the others are
    /// omitted.
    #[must_use]
    pub fn globals_named(&self, name: &str, near: Option<EntryId>) -> Vec<Global> {
        self.cell.with_dependent(|_, tables| {
            tables
                .debug()
                .map(|debug| debug.globals_named(name, near))
                .unwrap_or_default()
        })
    }

    /// Returns the names of global variables and enumerators that begin with `prefix`, at most
    /// `limit`. Namespaces are left out if the name itself begins so.
    #[must_use]
    pub fn global_names(&self, prefix: &str, limit: usize) -> BTreeSet<String> {
        self.cell.with_dependent(|_, tables| {
            let debug = tables.debug();
            debug
                .map(|debug| debug.global_names(prefix, limit))
                .unwrap_or_default()
        })
    }

    /// Returns the type called `name`, by the same rule. Returns `None` if several different types
    /// match.
    #[must_use]
    pub fn type_named(&self, name: &str, near: Option<EntryId>) -> Option<EntryId> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.type_named(name, near))
    }

    /// Returns the structure, class, union or enumeration called `name`, by the same rule.
    #[must_use]
    pub fn tagged_type_named(&self, name: &str, near: Option<EntryId>) -> Option<EntryId> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.tagged_type_named(name, near))
    }

    /// Returns the type of an entry.
    #[must_use]
    pub fn type_at(&self, entry: EntryId) -> Option<Arc<Type>> {
        self.cell.with_dependent(|_, tables| tables.type_at(entry))
    }

    /// Returns the definition of a static member.
    #[must_use]
    pub fn definition_of(&self, declaration: EntryId) -> Option<Variable> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.definition_of(declaration))
    }

    /// Returns the variable that an implicit pointer points into, with its location at `at`.
    #[must_use]
    pub fn variable_at(&self, entry: EntryId, at: Svma) -> Option<Variable> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.variable_at(entry, at.0))
    }

    /// Returns the location of an unnamed value at `at`.
    #[must_use]
    pub fn location_at(&self, entry: EntryId, at: Svma) -> Option<VariableLocation> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.implicit_target(entry, at.0))
    }

    /// Returns the type of the physical function around `at`.
    #[must_use]
    pub fn function_type(&self, at: Svma) -> Option<EntryId> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.function_entry_at(at.0))
    }

    /// Returns the locations of a value's pieces. `frame_base` belongs to the scope.
    ///
    /// # Errors
    /// The reason why they are unknown.
    pub fn evaluate(
        &self,
        expression: &LocationExpression,
        frame_base: Option<&LocationExpression>,
        frame: &dyn FrameState,
    ) -> Result<Vec<Piece>, Unknown> {
        self.cell.with_dependent(|_, tables| {
            let debug = tables.debug().ok_or("the file has no DWARF")?;
            debug.evaluate(expression, frame_base, frame)
        })
    }

    /// Returns the same for an expression that computes the value itself, and not its location.
    ///
    /// # Errors
    /// The reason why the value is unknown.
    pub fn evaluate_value(
        &self,
        expression: &LocationExpression,
        frame_base: Option<&LocationExpression>,
        frame: &dyn FrameState,
    ) -> Result<Vec<Piece>, Unknown> {
        self.cell.with_dependent(|_, tables| {
            let debug = tables.debug().ok_or("the file has no DWARF")?;
            debug.evaluate_value(expression, frame_base, frame)
        })
    }

    /// Returns the address of a member whose location depends on the object.
    ///
    /// # Errors
    /// The reason why it is unknown.
    pub fn member_at(
        &self,
        expression: &LocationExpression,
        object: u64,
        frame: &dyn FrameState,
    ) -> Result<u64, Unknown> {
        self.cell.with_dependent(|_, tables| {
            let debug = tables.debug().ok_or("the file has no DWARF")?;
            debug.member_at(expression, object, frame)
        })
    }

    /// Returns the call site that returns to `at`.
    #[must_use]
    pub fn call_site(&self, at: Svma) -> Option<CallSite> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.call_site(at.0))
    }

    /// Returns whether the function around `at` certainly makes no tail calls.
    #[must_use]
    pub fn makes_no_tail_calls(&self, at: Svma) -> bool {
        self.cell.with_dependent(|_, tables| {
            tables
                .debug()
                .is_some_and(|debug| debug.makes_no_tail_calls(at.0))
        })
    }

    /// Returns the data symbol that contains `at`.
    #[must_use]
    pub fn data_at(&self, at: Svma) -> Option<DataSymbol<Svma>> {
        self.cell.with_dependent(|_, tables| {
            let (name, start, size) = tables.objects().at(at.0)?;
            Some(DataSymbol {
                name,
                start: Svma(start),
                size,
            })
        })
    }

    /// Returns the virtual tables (Itanium C++ ABI, section 2.5) in the symbol tables, each with
    /// the name of its class.
    #[must_use]
    pub fn vtables(&self) -> Vec<DataSymbol<Svma>> {
        let table = |(name, start, size)| DataSymbol {
            name,
            start: Svma(start),
            size,
        };
        self.cell
            .with_dependent(|_, tables| tables.objects().vtables().map(table).collect())
    }

    /// Returns the address and size of the data symbol with this linkage name.
    #[must_use]
    pub fn data_named(&self, name: &str) -> Option<(Svma, u64)> {
        self.cell.with_dependent(|_, tables| {
            let (start, size) = tables.objects().named(name)?;
            Some((Svma(start), size))
        })
    }

    /// Returns the unit of a source file, by the last components of its path.
    #[must_use]
    pub fn unit_of_file(&self, file: &str) -> Option<EntryId> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.unit_of_file(file))
    }

    /// Returns whether both entries belong to the same unit.
    #[must_use]
    pub fn same_unit(&self, one: EntryId, other: EntryId) -> bool {
        self.cell
            .with_dependent(|_, tables| tables.debug().is_some_and(|debug| debug.same_unit(one, other)))
    }

    /// Returns whether there is code at `at`.
    #[must_use]
    pub fn contains_code(&self, at: Svma) -> bool {
        self.cell.with_dependent(|_, tables| tables.contains_code(at.0))
    }

    /// Returns how far below the thread pointer the executable's thread-local data begins. Returns
    /// `None` if there is none, or if it is not certain.
    #[must_use]
    pub fn thread_local_block(&self) -> Option<u64> {
        self.cell.with_dependent(|_, tables| tables.thread_local_block())
    }

    /// Copies bytes at `at` that the file contains and that no program may write. Returns their
    /// number.
    pub fn read_constant(&self, at: Svma, out: &mut [u8]) -> usize {
        self.cell.with_dependent(|_, tables| {
            let found = tables.constants().from(at.0).unwrap_or_default();
            let length = found.len().min(out.len());
            if let (Some(to), Some(from)) = (out.get_mut(..length), found.get(..length)) {
                to.copy_from_slice(from);
            }
            length
        })
    }
}
