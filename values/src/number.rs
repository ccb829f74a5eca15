//! Numbers that arithmetic computes with.

/// A complex number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Complex {
    /// The real part.
    pub re: f64,
    /// The imaginary part.
    pub im: f64,
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Whole.
    Integer(i128),
    /// With a fraction.
    Float(f64),
    /// With an imaginary part.
    Complex(Complex),
}

/// The real part of a number.
pub fn real(number: Number) -> f64 {
    match number {
        Number::Integer(number) => number as f64,
        Number::Float(number) => number,
        Number::Complex(number) => number.re,
    }
}
