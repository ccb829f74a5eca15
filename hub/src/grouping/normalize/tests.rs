//! Names of real programs, by language.

use super::*;

/// Checks pairs of a demangled name and its normalized form.
fn check(pairs: &[(&str, &str)]) {
    for (name, expected) in pairs {
        assert_eq!(normalize(name), *expected, "{name}");
    }
}

#[test]
fn names_of_cpp_are_normalized() {
    check(&[
        ("ns::f(int)", "ns::f"),
        ("ns::Foo::bar(int) const", "ns::Foo::bar"),
        ("ns::Foo::~Foo()", "ns::Foo::~Foo"),
        ("void largest<int>(int const*, int)", "largest<T>"),
        (
            "unsigned long ns::hash<char const*>(char const*&&) noexcept",
            "ns::hash<T>",
        ),
        (
            "std::vector<int, std::allocator<int> >::at(unsigned long)",
            "std::vector<T>::at",
        ),
        (
            "std::vector<int>::operator[](unsigned long) const",
            "std::vector<T>::operator[]",
        ),
        ("ns::Foo::operator()(int) const", "ns::Foo::operator()"),
        ("ns::Foo::operator bool() const", "ns::Foo::operator bool"),
        (
            "ns::Foo::operator std::vector<int>() const",
            "ns::Foo::operator std::vector<T>",
        ),
        (
            "ns::Foo::operator unsigned int() const &",
            "ns::Foo::operator unsigned int",
        ),
        ("operator new(unsigned long)", "operator new"),
        ("operator delete[](void*, unsigned long)", "operator delete[]"),
        (
            "bool ns::operator< <int>(ns::A<int> const&, ns::A<int> const&)",
            "ns::operator<<T>",
        ),
        (
            "std::basic_ostream<char, std::char_traits<char> >& std::operator<< <std::char_traits<char> >(std::basic_ostream<char, std::char_traits<char> >&, char const*)",
            "std::operator<<<T>",
        ),
        ("ns::operator->*(ns::A&, int)", "ns::operator->*"),
        ("ns::Ptr::operator->() const", "ns::Ptr::operator->"),
        ("ns::operator<=>(ns::A const&, ns::A const&)", "ns::operator<=>"),
        ("ns::operator\"\" _km(long double)", "ns::operator\"\" _km"),
    ]);
}

#[test]
fn local_names_and_copies_of_cpp_are_normalized() {
    check(&[
        ("(anonymous namespace)::local()", "(anonymous namespace)::local"),
        (
            "ns::(anonymous namespace)::Foo<int>::bar()",
            "ns::(anonymous namespace)::Foo<T>::bar",
        ),
        (
            "main::{lambda(int)#1}::operator()(int) const",
            "main::{lambda}::operator()",
        ),
        (
            "post(int)::{lambda()#2}::operator()() const",
            "post::{lambda}::operator()",
        ),
        (
            "Foo::post(int) const::{lambda()#2}::operator()() const",
            "Foo::post::{lambda}::operator()",
        ),
        (
            "post(int)::$_0::operator()(char) const",
            "post::{lambda}::operator()",
        ),
        (
            "post(int)::'lambda'(char)::operator()(char) const",
            "post::{lambda}::operator()",
        ),
        ("post(int)::'lambda0'()::__invoke()", "post::{lambda}::__invoke"),
        ("post()::Local::run()", "post::Local::run"),
        ("ns::make[abi:cxx11](int)", "ns::make"),
        (
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_create(unsigned long&, unsigned long)",
            "std::basic_string<T>::_M_create",
        ),
        (
            "std::__1::vector<int, std::__1::allocator<int>>::push_back[abi:v15006](int&&)",
            "std::vector<T>::push_back",
        ),
        ("non-virtual thunk to ns::Foo::bar(int)", "ns::Foo::bar"),
        ("virtual thunk to ns::Foo::~Foo()", "ns::Foo::~Foo"),
        ("guard variable for ns::instance()::one", "ns::instance::one"),
        ("decltype(auto) ns::visit<int>(int)", "ns::visit<T>"),
        ("decltype ((a)+(b)) ns::add<int>(int, int)", "ns::add<T>"),
        ("void (*ns::handler<int>(int))(char)", "ns::handler<T>"),
        ("ns::f(int) [clone .cold]", "ns::f"),
        ("ns::f(int) [clone .isra.0] [clone .part.3]", "ns::f"),
        ("ns::f(int) (.cold.1)", "ns::f"),
        ("ns::f(int) (.llvm.1234)", "ns::f"),
        (
            "std::function<void (int)>::operator()(int) const",
            "std::function<T>::operator()",
        ),
        (
            "void std::__invoke_impl<void, void (ns::Foo::*)(int), ns::Foo*>(std::__invoke_memfun_deref, void (ns::Foo::*&&)(int), ns::Foo*&&)",
            "std::__invoke_impl<T>",
        ),
        ("ns::A<(ns::E)1>::f()", "ns::A<T>::f"),
        ("ns::A<(1 > 2), &ns::B::operator< >::f()", "ns::A<T>::f"),
        ("ns::A<&ns::B::operator()>::f(int)", "ns::A<T>::f"),
        ("ns::co(ns::co()::_Z2cov.Frame*) [clone .resume]", "ns::co"),
        ("cls::operatorName(int)", "cls::operatorName"),
        ("Foo::my_operator(int)", "Foo::my_operator"),
        ("ns::f<int>", "ns::f<T>"),
        ("ns::f", "ns::f"),
        ("<lambda(int)>::operator()(int) const", "{lambda}::operator()"),
        ("char const* ns::name<ns::A>()", "ns::name<T>"),
    ]);
}

#[test]
fn names_of_rust_are_normalized() {
    check(&[
        ("core::panicking::panic_fmt", "core::panicking::panic_fmt"),
        ("ledger::post::h0123456789abcdef", "ledger::post"),
        ("ledger::main::{{closure}}", "ledger::main::{closure}"),
        ("ledger::main::{closure#0}", "ledger::main::{closure}"),
        (
            "ledger::main::{closure#0}::{closure#3}",
            "ledger::main::{closure}::{closure}",
        ),
        ("ledger::{impl#7}::post", "ledger::{impl}::post"),
        ("ledger::load::{async_fn_env#0}", "ledger::load::{async_fn_env}"),
        (
            "<alloc::vec::Vec<T,A> as core::ops::index::Index<I>>::index",
            "<alloc::vec::Vec<T> as core::ops::index::Index<T>>::index",
        ),
        (
            "<alloc::vec::Vec<u8> as std::io::Write>::write_all::h0123456789abcdef",
            "<alloc::vec::Vec<T> as std::io::Write>::write_all",
        ),
        ("<ledger::Account>::post", "<ledger::Account>::post"),
        (
            "<ledger::Account as core::fmt::Display>::fmt",
            "<ledger::Account as core::fmt::Display>::fmt",
        ),
        (
            "<&mut T as core::fmt::Debug>::fmt",
            "<&mut T as core::fmt::Debug>::fmt",
        ),
        (
            "<&'a str as ledger::Parse>::parse",
            "<&'a str as ledger::Parse>::parse",
        ),
        (
            "<[A] as core::slice::cmp::SlicePartialEq<B>>::equal",
            "<[A] as core::slice::cmp::SlicePartialEq<T>>::equal",
        ),
        ("<(A,B) as ledger::Pair>::swap", "<(A,B) as ledger::Pair>::swap"),
        (
            "<fn(i32) -> u32 as ledger::Call<i32>>::call",
            "<fn(i32) -> u32 as ledger::Call<T>>::call",
        ),
        (
            "<<ledger::A as ledger::B>::C as ledger::D<i32>>::run",
            "<<ledger::A as ledger::B>::C as ledger::D<T>>::run",
        ),
        (
            "core::fmt::num::<impl core::fmt::Display for u32>::fmt",
            "core::fmt::num::<impl core::fmt::Display for u32>::fmt",
        ),
        (
            "alloc::slice::<impl [T]>::to_vec",
            "alloc::slice::<impl [T]>::to_vec",
        ),
        (
            "core::ptr::drop_in_place<alloc::string::String>",
            "core::ptr::drop_in_place<T>",
        ),
        (
            "core::ptr::drop_in_place::<dyn ledger::Store + core::marker::Send>",
            "core::ptr::drop_in_place<T>",
        ),
        ("ledger::sum::<i32, [u8; 4]>", "ledger::sum<T>"),
        (
            "core[846817f741e54dfd]::panicking::panic",
            "core::panicking::panic",
        ),
        (
            "core::ops::function::FnOnce::call_once{{vtable.shim}}",
            "core::ops::function::FnOnce::call_once",
        ),
        (
            "core::ops::function::FnOnce::call_once{{vtable.shim}}::h0123456789abcdef",
            "core::ops::function::FnOnce::call_once",
        ),
        (
            "std::sys::backtrace::__rust_begin_short_backtrace",
            "std::sys::backtrace::__rust_begin_short_backtrace",
        ),
    ]);
}

#[test]
fn names_of_c_and_go_are_normalized() {
    check(&[
        ("main", "main"),
        ("post.cold", "post"),
        ("post.constprop.0.isra.0", "post"),
        ("__memmove_evex_unaligned_erms", "memmove"),
        ("__GI_raise", "raise"),
        ("malloc@plt", "malloc"),
        ("net/http.(*conn).serve", "net/http.(*conn).serve"),
        ("main.(*Server).handle.func1.2", "main.(*Server).handle.func"),
        ("main.Map[go.shape.int]", "main.Map[T]"),
        ("-[Account post:with:]", "-[Account post:with:]"),
        ("_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault"),
        ("  main  ", "main"),
        ("", ""),
    ]);
}

#[test]
fn normal_form_is_stable() {
    for name in [
        "std::vector<T>::at",
        "<alloc::vec::Vec<T> as core::ops::index::Index<T>>::index",
        "post::{lambda}::operator()",
        "ledger::main::{closure}",
        "main.(*Server).handle.func",
        "(anonymous namespace)::local",
        "ns::operator<<T>",
    ] {
        assert_eq!(normalize(name), name);
    }
}

#[test]
fn hostile_names_take_bounded_time() {
    let started = std::time::Instant::now();
    for part in [
        "<",
        ">",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "a<",
        "a(",
        "a::<",
        "'lambda",
        "operator<",
        "operator ",
        "::",
        ".cold",
        ".0",
        " [clone ",
        "::h0123456789abcdef",
        "decltype(",
        "$_",
        "<a as ",
        "{{",
        "<lambda(",
        "@",
        "\u{202e}",
        "ü",
        " ",
        "a.b",
        "[abi:",
        "func1.",
    ] {
        let name = part.repeat((1 << 20) / part.len());
        assert!(normalize(&name).len() <= MAX_NAME, "{part}");
        let _ = normalize(&format!("{name}f(int)"));
    }
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn unprintable_characters_are_replaced() {
    assert_eq!(normalize("a\nb\u{202e}"), "a?b?");
}

proptest::proptest! {
    #[test]
    fn any_text_gives_a_bounded_name(text in "[ -~]{0,60}") {
        let name = normalize(&text);
        proptest::prop_assert!(name.len() <= MAX_NAME);
        proptest::prop_assert_eq!(&name, &normalize(&text));
    }

    #[test]
    fn nested_brackets_never_fail(text in "([<>()\\[\\]{}a:& ,'$_0-]|operator|::|lambda|\\.cold){0,40}") {
        proptest::prop_assert!(normalize(&text).len() <= MAX_NAME);
    }
}
