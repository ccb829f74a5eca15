//! Types have the same contents in type units of DWARF 4 and 5 as in the unit that uses them.

use crate::support::{CLASSES, build, have, run};
use backtrail_symbolizer::types::{Access, MemberLocation, Record, Type, TypeKind};
use backtrail_symbolizer::{DebugSearch, SymbolFile};
use std::sync::Arc;

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
fn classes_are_read_from_any_unit() {
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
            base.is_virtual && matches!(base.location, MemberLocation::Computed(_)),
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

/// Checks the class in split DWARF.
fn look_at_duck(symbols: &SymbolFile, case: &str) {
    let duck = named(symbols, "ns::Duck");
    assert_eq!(duck.size, Some(32), "{case}");
    assert_eq!(
        record(&duck).members.iter().filter(|member| member.base).count(),
        1
    );
    let age = symbols.functions_named("ns::Duck::age");
    assert_eq!(age.len(), 1, "{case}");
    let scope = symbols.scope_at(age[0].entry, 0).unwrap();
    assert_eq!(&*scope.parameters[0].name, "this", "{case}");
    assert!(
        symbols.line_at(age[0].entry).unwrap().file.ends_with("source.cc"),
        "{case}"
    );
    let made = symbols.globals_named("ns::Animal::made", None);
    assert_eq!(made.len(), 1, "{case}");
    assert_eq!(symbols.debug_gap(), None, "{case}");
}

#[test]
fn split_dwarf_is_found() {
    for arguments in [
        &["-gdwarf-4", "-gsplit-dwarf", "-Wl,--build-id"][..],
        &["-gdwarf-5", "-gsplit-dwarf", "-Wl,--build-id"],
        &[
            "-gdwarf-4",
            "-gsplit-dwarf",
            "-Wl,--build-id",
            "-fdebug-types-section",
        ],
        &[
            "-gdwarf-5",
            "-gsplit-dwarf",
            "-Wl,--build-id",
            "-fdebug-types-section",
        ],
        &["-gdwarf-5", "-gsplit-dwarf", "-Wl,--build-id", "-gz=zlib"],
    ] {
        let case = format!("{arguments:?}");
        let Some(built) = build("c++", "cc", CLASSES, arguments) else {
            return;
        };
        look_at_duck(&built.open(), &case);
        let bytes = Arc::new(std::fs::read(&built.program).unwrap());
        let below = |root: &str| DebugSearch {
            roots: vec![built.path(root)],
            ..DebugSearch::none()
        };
        look_at_duck(
            &SymbolFile::from_bytes(bytes.clone(), &below(".")).unwrap(),
            &case,
        );

        // A package with the name of the program or of its build id.
        let split = built.path("program-source.dwo");
        // binutils' tool only supports DWARF 4.
        let tool = arguments.contains(&"-gdwarf-4").then_some("dwp");
        if let Some(tool) = tool.filter(|tool| have(tool)) {
            run(&built, tool, &["-e", "program", "-o", "program.dwp"]);
            std::fs::remove_file(&split).unwrap();
            look_at_duck(&built.open(), &case);
            let id = built.open().build_id().unwrap().to_string();
            let directory = built.path("root/.build-id").join(&id[..2]);
            std::fs::create_dir_all(&directory).unwrap();
            let package = directory.join(format!("{}.dwp", &id[2..]));
            std::fs::rename(built.path("program.dwp"), package).unwrap();
            look_at_duck(
                &SymbolFile::from_bytes(bytes.clone(), &below("root")).unwrap(),
                &case,
            );
        }

        // Without the file, lines are still found, and the gap is reported.
        let _ = std::fs::remove_file(&split);
        let symbols = built.open();
        let gap = symbols.debug_gap().unwrap();
        assert!(gap.contains(".dwo files of"), "{gap}");
        assert!(symbols.type_named("ns::Duck", None).is_none());
        let entry = symbols.functions_named("main")[0].entry;
        assert!(symbols.line_at(entry).is_some(), "{case}");
    }
}

/// Split files of another build are recognized by their id.
#[test]
fn split_dwarf_of_another_build_is_refused() {
    let arguments = ["-gdwarf-5", "-gsplit-dwarf"];
    let Some(built) = build("c++", "cc", CLASSES, &arguments) else {
        return;
    };
    let changed = CLASSES.replace("Duck", "Swan");
    let Some(other) = build("c++", "cc", &changed, &arguments) else {
        return;
    };
    std::fs::copy(other.path("program-source.dwo"), built.path("program-source.dwo")).unwrap();
    let symbols = built.open();
    assert!(symbols.debug_gap().is_some());
    assert!(symbols.type_named("ns::Swan", None).is_none());
}
