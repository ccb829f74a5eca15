//! Types as they are read: the same in units of their own, of DWARF 4 and 5, as in the unit that uses them.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking, its helpers too.

mod support;

use backtrail_symbolizer::SymbolFile;
use backtrail_symbolizer::types::{Access, MemberPlace, Record, Type, TypeKind};
use std::sync::Arc;
use support::{CLASSES, build};

fn named(symbols: &SymbolFile, name: &str) -> Arc<Type> {
    let entry = symbols
        .type_named(name, None)
        .unwrap_or_else(|| panic!("no {name}"));
    symbols.type_at(entry).unwrap()
}

fn record(described: &Type) -> &Record {
    match &described.kind {
        TypeKind::Record(record) => record,
        other => panic!("{other:?}"),
    }
}

#[test]
fn classes_in_any_unit() {
    for arguments in [
        &["-gdwarf-4"][..],
        &["-gdwarf-5"],
        &["-gdwarf-4", "-fdebug-types-section"],
        &["-gdwarf-5", "-fdebug-types-section"],
    ] {
        let Some(built) = build("c++", "cc", CLASSES, arguments) else {
            return;
        };
        let symbols = built.open();
        let duck = named(&symbols, "ns::Duck");
        assert_eq!(duck.name.as_deref(), Some("ns::Duck"), "{arguments:?}");
        assert_eq!(duck.size, Some(32), "{arguments:?}");
        let record = record(&duck);
        let base = record.members.iter().find(|member| member.base).unwrap();
        assert!(
            base.is_virtual && matches!(base.place, MemberPlace::Computed(_)),
            "{base:?}"
        );
        let animal = symbols.type_at(base.entry.unwrap()).unwrap();
        assert_eq!(animal.name.as_deref(), Some("ns::Animal"), "{arguments:?}");

        let methods: Vec<_> = record
            .methods
            .iter()
            .filter(|method| !method.artificial)
            .collect();
        let names: Vec<&str> = methods.iter().map(|method| &*method.name).collect();
        assert_eq!(names, ["age", "make"], "{arguments:?}");
        assert!(methods.iter().all(|method| method.access == Access::Public));
        let first = symbols.type_at(methods[0].entry).unwrap();
        let TypeKind::Function { parameters, .. } = &first.kind else {
            panic!("{first:?}")
        };
        assert!(parameters[0].artificial && parameters.len() == 1);
        assert_eq!(&*record.typedefs[0].name, "Age");
        assert!(record.nested);

        let own = record
            .members
            .iter()
            .find(|member| member.name.as_deref() == Some("own"));
        assert_eq!(own.unwrap().access, Access::Private);
        let nest = record
            .members
            .iter()
            .find(|member| member.name.as_deref() == Some("nest"));
        let nest = symbols.type_at(nest.unwrap().entry.unwrap()).unwrap();
        assert_eq!(nest.name.as_deref(), Some("ns::Duck::Nest"), "{arguments:?}");
        assert_eq!(nest.size, Some(4));
    }
}
