//! `show`: the values of settings.

use super::Context;
use crate::output::Output;
use backtrail_debugger::disassembly::Flavor;
use backtrail_debugger::navigator::{FrameArguments, Navigator};
use backtrail_debugger::{Error, Result};

/// Does `show [SETTING]`.
pub(super) fn show(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let wanted = arguments.split_whitespace().collect::<Vec<_>>().join(" ");
    let all = settings(context.navigator);
    let shown: Vec<String> = all
        .iter()
        .filter(|(name, _)| name.starts_with(&wanted))
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    if shown.is_empty() {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        return Err(Error::Cannot(format!(
            "\"{wanted}\" is not a setting; the settings are {}",
            names.join(", ")
        )));
    }
    Ok(Output::lines(shown.join("\n")))
}

/// Returns all settings and their values.
fn settings(navigator: &Navigator) -> Vec<(&'static str, String)> {
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    let paths = navigator.sources.substitutions.iter();
    let paths: Vec<String> = paths.map(|(from, to)| format!("{from} -> {to}")).collect();
    let arguments = match navigator.frame_arguments {
        FrameArguments::None => "none",
        FrameArguments::Scalars => "scalars",
        FrameArguments::All => "all",
    };
    let flavor = match navigator.flavor {
        Flavor::Att => "att",
        Flavor::Intel => "intel",
    };
    vec![
        ("disassembly-flavor", flavor.to_owned()),
        ("just-my-code", switch(navigator.just_my_code)),
        ("pager", switch(navigator.pager)),
        ("print elements", navigator.elements.to_string()),
        ("print frame-arguments", arguments.to_owned()),
        ("print pretty", switch(navigator.pretty)),
        ("scheduler-locking", switch(navigator.scheduler_locking)),
        (
            "substitute-path",
            match paths.is_empty() {
                true => "none".to_owned(),
                false => crate::output::visible(&paths.join(", ")).into_owned(),
            },
        ),
    ]
}
