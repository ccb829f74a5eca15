//! `print`, `info locals`, `info args`, `ptype`, `whatis`.

use super::Context;
use super::evaluate::evaluated;
use super::format_argument::format_of;
use crate::output::Output;
use backtrail_debugger::evaluation::with_context;
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::{Error, Result};
use backtrail_symbolizer::Variable;
use backtrail_values::{
    EvalContext, Evaluated, Expression, Failure, FormattedMember, FormattedValue, ValueFormatter, parse,
};

/// `print/FORMAT EXPRESSION`.
pub(super) fn print(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let (format, expression) = format_of(arguments);
    let expression = if expression.is_empty() { "$" } else { expression };
    let (value, mut shown) = with_context(context.navigator, context.watch, |eval| {
        evaluated(eval, format, expression)
    })?;
    add_values_at_crash(context, format, [(expression, &mut shown)])?;
    if context.navigator.pretty {
        shown.text = shown.pretty_text();
    }
    // As GDB, only what is a value is numbered.
    let number = value.map(|value| {
        context.navigator.printed.push(value);
        context.navigator.printed.len()
    });
    Ok(Output::Value {
        number,
        expression: expression.to_owned(),
        value: shown,
    })
}

fn shown(eval: &EvalContext<'_>, variable: &Variable, pretty: bool) -> FormattedMember {
    let mut value = match &eval.here {
        Some(here) => ValueFormatter::new(eval, None).show(&eval.value_of(variable, here), 0),
        None => FormattedValue::default(),
    };
    value.origins = eval.source.origins();
    if pretty {
        value.text = value.pretty_text();
    }
    FormattedMember::new(variable.name.to_string(), value)
}

/// Returns the scope of the selected frame; an error without debug information.
pub(super) fn locals_of(context: &Context<'_>) -> Result<Vec<FormattedMember>> {
    let pretty = context.navigator.pretty;
    with_context(context.navigator, context.watch, |eval| {
        let blocks = eval.scope.iter().flat_map(|scope| scope.blocks.iter().flatten());
        let variables = blocks.filter(|variable| !variable.is_internal());
        Ok(variables.map(|variable| shown(eval, variable, pretty)).collect())
    })
}

/// `info locals`.
pub(super) fn locals(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let pretty = context.navigator.pretty;
    let mut variables: Vec<FormattedMember> = with_context(context.navigator, context.watch, |eval| {
        let variables = scope(eval)?.blocks.iter().flatten();
        let variables = variables.filter(|variable| !variable.is_internal());
        Ok(variables.map(|variable| shown(eval, variable, pretty)).collect())
    })?;
    add_hints(context, &mut variables)?;
    Ok(Output::Variables {
        variables,
        none: "No locals.",
    })
}

fn add_hints(context: &mut Context<'_>, variables: &mut [FormattedMember]) -> Result<()> {
    let named = variables.iter_mut();
    let named = named.map(|variable| (&*variable.name, &mut variable.value));
    add_values_at_crash(context, "", named)
}

/// Adds to each value that is unknown here the value of its expression at the crash, with a format.
fn add_values_at_crash<'v>(
    context: &mut Context<'_>,
    format: &str,
    values: impl IntoIterator<Item = (&'v str, &'v mut FormattedValue)>,
) -> Result<()> {
    let watch = context.watch;
    let evaluate = |navigator: &Navigator, expression: &str| {
        let evaluate = |eval: &EvalContext<'_>| evaluated(eval, format, expression);
        with_context(navigator, watch, evaluate).map(|(_, shown)| shown)
    };
    context.navigator.add_values_at_crash(values, watch, evaluate)
}

/// `info args`.
pub(super) fn arguments(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let pretty = context.navigator.pretty;
    let mut variables: Vec<FormattedMember> = with_context(context.navigator, context.watch, |eval| {
        let parameters = scope(eval)?.parameters.iter();
        Ok(parameters.map(|variable| shown(eval, variable, pretty)).collect())
    })?;
    add_hints(context, &mut variables)?;
    Ok(Output::Variables {
        variables,
        none: "No arguments.",
    })
}

fn scope<'a>(eval: &'a EvalContext<'_>) -> Result<&'a backtrail_symbolizer::Scope> {
    eval.scope.as_ref().ok_or_else(|| {
        Error::Cannot(
            "no debug information describes the variables here; `info sharedlibrary` shows which modules have it"
                .to_owned(),
        )
    })
}

/// The type that an expression, or the name of a type, has.
fn type_of(eval: &EvalContext<'_>, expression: &str) -> Evaluated<(backtrail_values::Ty, bool)> {
    match parse(expression, eval)? {
        Expression::Type(name) => Ok((eval.resolved(&name)?, true)),
        parsed => Ok((eval.evaluate(&parsed)?.ty, false)),
    }
}

fn typed(
    context: &Context<'_>,
    arguments: &str,
    show: impl FnOnce(&backtrail_values::Ty, bool) -> String,
) -> Result<Output> {
    with_context(context.navigator, context.watch, |eval| {
        let (_, expression) = format_of(arguments);
        let expression = if expression.is_empty() { "$" } else { expression };
        match type_of(eval, expression) {
            Ok((ty, named)) => Ok(Output::Type {
                expression: expression.to_owned(),
                text: show(&ty, named),
            }),
            Err(Failure::Error(error)) => Err(error.into()),
            Err(Failure::Unavailable(cause)) => Err(Error::UnknownValue {
                name: expression.to_owned(),
                why: cause
                    .text()
                    .trim_matches(['<', '>'])
                    .trim_start_matches("unknown: ")
                    .to_owned(),
            }),
        }
    })
}

/// `ptype`: what a type is made of.
pub(super) fn ptype(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    typed(context, arguments, |ty, _| backtrail_values::ptype(ty))
}

/// `whatis`: the name of a type. For the name of a typedef, the type that it refers to.
pub(super) fn whatis(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    typed(context, arguments, |ty, named| match ty.below() {
        Some((None, below)) if named => below.name(),
        _ => ty.name(),
    })
}
