//! Arithmetic with complex numbers (C11, section 6.5 and annex G).

use super::number::{Complex, Number, real};
use super::types::{Shape, Ty};
use backtrail_symbolizer::types::Encoding;

/// The size of one part of a complex number, or that of a real one; `None`: it is whole.
fn part_size(ty: &Ty) -> (Option<u64>, bool) {
    match ty.shape() {
        Shape::Base(base) => match base.encoding {
            Encoding::ComplexFloat => (Some(base.size / 2), true),
            Encoding::Float => (Some(base.size), false),
            _ => (None, false),
        },
        _ => (None, false),
    }
}

/// Returns the common type of two numbers of which one is complex; `None`: none is.
pub fn common(left: &Ty, right: &Ty) -> Option<Ty> {
    let ((left_size, left_complex), (right_size, right_complex)) = (part_size(left), part_size(right));
    if !left_complex && !right_complex {
        return None;
    }
    let size = left_size.max(right_size)?;
    for (ty, own, is_complex) in [
        (left, left_size, left_complex),
        (right, right_size, right_complex),
    ] {
        if is_complex && own == Some(size) {
            return Some(ty.clone());
        }
    }
    let name = if size == 4 {
        "complex float"
    } else {
        "complex double"
    };
    Some(Ty::base(name, size.saturating_mul(2), Encoding::ComplexFloat))
}

/// Computes `left sign right` for the type `ty`; `None`: it is not complex.
pub fn combined(sign: &str, left: Number, right: Number, ty: &Ty) -> Option<Result<Complex, String>> {
    let (Some(size), true) = part_size(ty) else {
        return None;
    };
    // Each operation of a float is rounded.
    let rounded = |number: f64| match size {
        4 => f64::from(number as f32),
        _ => number,
    };
    let part = |number| match number {
        Number::Complex(number) => (number.re, Some(number.im)),
        number => (real(number), None),
    };
    let ((a, b), (c, d)) = (part(left), part(right));
    let result = match (sign, b, d) {
        ("+", b, d) => (a + c, b.zip(d).map_or(b.or(d), |(b, d)| Some(b + d))),
        ("-", b, None) => (a - c, b),
        ("-", None, Some(d)) => (a - c, Some(-d)),
        ("-", Some(b), Some(d)) => (a - c, Some(b - d)),
        ("*", b, None) => (a * c, b.map(|b| b * c)),
        ("*", None, Some(d)) => (a * c, Some(a * d)),
        ("*", Some(b), Some(d)) => {
            let (re, im) = (rounded(a * c) - rounded(b * d), rounded(a * d) + rounded(b * c));
            if re.is_nan() || im.is_nan() {
                return Some(Err(
                    "the product of these complex numbers is not finite".to_owned()
                ));
            }
            (re, Some(im))
        }
        ("/", b, None) => (a / c, b.map(|b| b / c)),
        ("/", _, Some(_)) => {
            return Some(Err("division by a complex number is not supported".to_owned()));
        }
        _ => return Some(Err(format!("\"{sign}\" requires integers or real numbers"))),
    };
    Some(Ok(Complex {
        re: rounded(result.0),
        im: rounded(result.1.unwrap_or(0.0)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complex(re: f64, im: f64) -> Number {
        Number::Complex(Complex { re, im })
    }

    fn double() -> Ty {
        Ty::base("complex double", 16, Encoding::ComplexFloat)
    }

    #[test]
    fn results_are_those_of_c() {
        let make = |sign, left, right| {
            let made = combined(sign, left, right, &double()).unwrap();
            made.map(|made| (made.re, made.im))
        };
        let z = complex(-1.5, 0.25);
        assert_eq!(make("*", z, z), Ok((2.1875, -0.75)));
        assert_eq!(make("*", z, Number::Integer(2)), Ok((-3.0, 0.5)));
        assert_eq!(make("+", z, Number::Integer(1)), Ok((-0.5, 0.25)));
        assert_eq!(make("-", Number::Integer(1), z), Ok((2.5, -0.25)));
        assert_eq!(make("/", z, Number::Float(2.0)), Ok((-0.75, 0.125)));
        assert!(make("/", z, z).is_err() && make("%", z, z).is_err() && make("<", z, z).is_err());
        assert!(make("*", complex(f64::INFINITY, 0.0), complex(0.0, 1.0)).is_err());
        assert!(combined("+", z, z, &Ty::double()).is_none());
    }

    #[test]
    fn parts_of_a_float_are_rounded() {
        let float = Ty::base("complex float", 8, Encoding::ComplexFloat);
        let third = f64::from(1.0f32 / 3.0);
        let made = combined("*", complex(third, third), complex(third, third), &float);
        let expected = (1.0f32 / 3.0) * (1.0f32 / 3.0);
        assert_eq!(made.unwrap().unwrap().im, f64::from(expected + expected));
    }

    #[test]
    fn the_common_type_has_the_larger_parts() {
        let float = Ty::base("complex float", 8, Encoding::ComplexFloat);
        assert_eq!(common(&float, &Ty::int()).unwrap().name(), "complex float");
        assert_eq!(common(&float, &Ty::double()).unwrap().size(), Some(16));
        assert_eq!(common(&double(), &float).unwrap().name(), "complex double");
        assert!(common(&Ty::int(), &Ty::double()).is_none());
    }
}
