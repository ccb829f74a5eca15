//! What a file tells of variables, types and places of values.

use crate::file::SymbolFile;
use crate::place::{CallSite, FrameState, LocationExpression, Piece, Unknown};
use crate::types::{EntryId, Type};
use crate::variables::{DataSymbol, Global, Scope, Variable, VariableLocation};
use backtrail_pt::Svma;
use std::sync::Arc;

impl SymbolFile {
    /// What can be named at `at`, in the inlined copy number `level` (0 is the innermost), or beyond the copies in
    /// the physical function. For a caller, ask for the byte before its address, which belongs to the call.
    #[must_use]
    pub fn scope_at(&self, at: Svma, level: usize) -> Option<Scope> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.scope_at(at.0, level))
    }

    /// What a name that is no local variable can mean. The last components of a path are enough. Those of the unit
    /// around `near` come first; where some are called just so, the others are left out.
    #[must_use]
    pub fn globals_named(&self, name: &str, near: Option<EntryId>) -> Vec<Global> {
        self.cell.with_dependent(|_, tables| {
            tables
                .debug()
                .map(|debug| debug.globals_named(name, near))
                .unwrap_or_default()
        })
    }

    /// The type called `name`, by the same rule; `None` also where several are that are not the same.
    #[must_use]
    pub fn type_named(&self, name: &str, near: Option<EntryId>) -> Option<EntryId> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.type_named(name, near))
    }

    /// The structure, class, union or enumeration called `name`, by the same rule.
    #[must_use]
    pub fn tagged_type_named(&self, name: &str, near: Option<EntryId>) -> Option<EntryId> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.tagged_type_named(name, near))
    }

    /// A type.
    #[must_use]
    pub fn type_at(&self, entry: EntryId) -> Option<Arc<Type>> {
        self.cell.with_dependent(|_, tables| tables.type_at(entry))
    }

    /// The definition of a static member.
    #[must_use]
    pub fn definition_of(&self, declaration: EntryId) -> Option<Variable> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.definition_of(declaration))
    }

    /// Where the variable is at `at` that an implicit pointer points into, and its type.
    #[must_use]
    pub fn variable_at(&self, entry: EntryId, at: Svma) -> Option<Variable> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.variable_at(entry, at.0))
    }

    /// Where something is at `at` that has no name.
    #[must_use]
    pub fn location_at(&self, entry: EntryId, at: Svma) -> Option<VariableLocation> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.implicit_target(entry, at.0))
    }

    /// The type of the physical function around `at`.
    #[must_use]
    pub fn function_type(&self, at: Svma) -> Option<EntryId> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.function_entry_at(at.0))
    }

    /// Where the parts of a value are. `frame_base`: that of the scope.
    ///
    /// # Errors
    /// Why it is not known.
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

    /// The address of a member of the object at an address, where the member's place depends on the object.
    ///
    /// # Errors
    /// Why it is not known.
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

    /// The call that returns to `at`, as its caller describes it.
    #[must_use]
    pub fn call_site(&self, at: Svma) -> Option<CallSite> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.call_site(at.0))
    }

    /// It is certain that the function around `at` does not jump to another, or itself, at its end.
    #[must_use]
    pub fn makes_no_tail_calls(&self, at: Svma) -> bool {
        self.cell.with_dependent(|_, tables| {
            tables
                .debug()
                .is_some_and(|debug| debug.makes_no_tail_calls(at.0))
        })
    }

    /// The named data around `at`, by the symbol tables.
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

    /// The tables of virtual functions (Itanium C++ ABI, section 2.5), by the symbol tables, each with the name of its class.
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

    /// The data with this linkage name, by the symbol tables: where it starts, and its size.
    #[must_use]
    pub fn data_named(&self, name: &str) -> Option<(Svma, u64)> {
        self.cell.with_dependent(|_, tables| {
            let (start, size) = tables.objects().named(name)?;
            Some((Svma(start), size))
        })
    }

    /// The unit of a source file, by the last components of its path.
    #[must_use]
    pub fn unit_of_file(&self, file: &str) -> Option<EntryId> {
        self.cell
            .with_dependent(|_, tables| tables.debug()?.unit_of_file(file))
    }

    /// Both entries are of one unit.
    #[must_use]
    pub fn same_unit(&self, one: EntryId, other: EntryId) -> bool {
        self.cell
            .with_dependent(|_, tables| tables.debug().is_some_and(|debug| debug.same_unit(one, other)))
    }

    /// There is code at `at`.
    #[must_use]
    pub fn contains_code(&self, at: Svma) -> bool {
        self.cell.with_dependent(|_, tables| tables.contains_code(at.0))
    }

    /// How far below the thread pointer the thread-local data of an executable begins; `None`: it has none, or it is
    /// not certain.
    #[must_use]
    pub fn thread_local_block(&self) -> Option<u64> {
        self.cell.with_dependent(|_, tables| tables.thread_local_block())
    }
}
