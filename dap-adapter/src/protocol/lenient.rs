//! Integers as JSON has them: a number with a fraction of nothing is one too.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// An identifier of either kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntegerOrString {
    /// A number.
    #[serde(deserialize_with = "read")]
    Integer(i64),
    /// A text.
    String(String),
}

impl Default for IntegerOrString {
    fn default() -> Self {
        Self::Integer(0)
    }
}

/// For `deserialize_with` of a field that holds integers.
pub(super) fn read<'de, D: Deserializer<'de>, T: FromInteger<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::read(deserializer)
}

/// A type that contains integers.
pub(super) trait FromInteger<'de>: Sized {
    fn read<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

impl<'de> FromInteger<'de> for i64 {
    fn read<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Integer::deserialize(deserializer)?.0)
    }
}

impl<'de> FromInteger<'de> for Option<i64> {
    fn read<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let integer: Option<Integer> = Deserialize::deserialize(deserializer)?;
        Ok(integer.map(|integer| integer.0))
    }
}

impl<'de> FromInteger<'de> for Vec<i64> {
    fn read<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let integers: Vec<Integer> = Deserialize::deserialize(deserializer)?;
        Ok(integers.into_iter().map(|integer| integer.0).collect())
    }
}

impl<'de> FromInteger<'de> for Option<Vec<i64>> {
    fn read<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let integers: Option<Vec<Integer>> = Deserialize::deserialize(deserializer)?;
        Ok(integers.map(|integers| integers.into_iter().map(|integer| integer.0).collect()))
    }
}

struct Integer(i64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntegerVisitor).map(Integer)
    }
}

struct IntegerVisitor;

impl Visitor<'_> for IntegerVisitor {
    type Value = i64;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an integer")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<i64, E> {
        Ok(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<i64, E> {
        i64::try_from(value).map_err(|_| E::custom("an integer of more than 63 bits"))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<i64, E> {
        // All that is whole and smaller is exact.
        const LIMIT: f64 = 9_007_199_254_740_992.0;
        if value.fract() == 0.0 && value.abs() <= LIMIT {
            Ok(value as i64)
        } else {
            Err(E::custom(format!("{value} is not an integer")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::{
        Breakpoint, Module, SetFunctionBreakpointsArguments, StackTraceArguments, StoppedEventBody,
        StoppedEventReason,
    };
    use super::*;
    use serde_json::json;

    #[test]
    fn a_whole_number_with_a_point_is_an_integer() {
        let arguments: StackTraceArguments =
            serde_json::from_value(json!({"threadId": 3.0, "startFrame": 1e3, "levels": null})).unwrap();
        assert_eq!(
            (arguments.thread_id, arguments.start_frame, arguments.levels),
            (3, Some(1000), None)
        );
        for wrong in [json!(3.5), json!(1e300), json!(u64::MAX), json!("3"), json!(null)] {
            let arguments = json!({"threadId": wrong});
            assert!(
                serde_json::from_value::<StackTraceArguments>(arguments).is_err(),
                "{wrong}"
            );
        }
        let body: StoppedEventBody =
            serde_json::from_value(json!({"reason": "step", "hitBreakpointIds": [1.0, 2]})).unwrap();
        assert_eq!(body.hit_breakpoint_ids, Some(vec![1, 2]));
        let module: Module = serde_json::from_value(json!({"id": 7.0, "name": "a"})).unwrap();
        assert_eq!(module.id, IntegerOrString::Integer(7));
    }

    #[test]
    fn what_is_not_known_does_no_harm() {
        let arguments: SetFunctionBreakpointsArguments = serde_json::from_value(
            json!({"breakpoints": [{"name": "main", "condition": null, "colour": "red"}], "more": 1}),
        )
        .unwrap();
        assert_eq!(arguments.breakpoints[0].name, "main");
        assert_eq!(arguments.breakpoints[0].condition, None);
        let body: StoppedEventBody = serde_json::from_value(json!({"reason": "edge of history"})).unwrap();
        assert_eq!(
            body.reason,
            StoppedEventReason::Other("edge of history".to_owned())
        );
        assert_eq!(
            serde_json::to_value(&body).unwrap(),
            json!({"reason": "edge of history"})
        );
    }

    #[test]
    fn names_follow_the_protocol_and_absent_fields_are_omitted() {
        let breakpoint = Breakpoint {
            verified: true,
            end_line: Some(7),
            ..Breakpoint::default()
        };
        assert_eq!(
            serde_json::to_value(&breakpoint).unwrap(),
            json!({"verified": true, "endLine": 7})
        );
    }
}
