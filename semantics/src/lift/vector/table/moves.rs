//! Moves.

use super::{Row, fixed};
use crate::execute::vector::VectorKind as K;
use crate::lift::vector::form::Form::{Binary, Half, High, Low, Unary};
use iced_x86::Mnemonic as M;

/// The rows.
pub const ROWS: &[Row] = &[
    (
        &[
            M::Movaps,
            M::Vmovaps,
            M::Movups,
            M::Vmovups,
            M::Movdqa,
            M::Vmovdqa,
            M::Movdqu,
            M::Vmovdqu,
            M::Movntps,
            M::Vmovntps,
            M::Movntdq,
            M::Vmovntdq,
            M::Movntdqa,
            M::Vmovntdqa,
            M::Lddqu,
            M::Vlddqu,
            M::Vmovdqa32,
            M::Vmovdqu32,
        ],
        Unary,
        fixed(K::Move),
        4,
    ),
    (
        &[
            M::Movapd,
            M::Vmovapd,
            M::Movupd,
            M::Vmovupd,
            M::Movntpd,
            M::Vmovntpd,
            M::Vmovdqa64,
            M::Vmovdqu64,
        ],
        Unary,
        fixed(K::Move),
        8,
    ),
    (&[M::Vmovdqu8], Unary, fixed(K::Move), 1),
    (&[M::Vmovdqu16], Unary, fixed(K::Move), 2),
    (&[M::Movd, M::Vmovd], Unary, fixed(K::Part(4)), 4),
    (&[M::Movq, M::Vmovq], Unary, fixed(K::Part(8)), 8),
    (&[M::Movss, M::Vmovss], Low, fixed(K::Move), 4),
    (&[M::Movsd, M::Vmovsd], Low, fixed(K::Move), 8),
    (
        &[M::Movlps, M::Vmovlps, M::Movlpd, M::Vmovlpd],
        Half,
        fixed(K::Move),
        8,
    ),
    (
        &[M::Movhps, M::Vmovhps, M::Movhpd, M::Vmovhpd],
        High,
        fixed(K::MoveToHigh),
        8,
    ),
    (&[M::Movhlps, M::Vmovhlps], Binary, fixed(K::MoveHighToLow), 8),
    (&[M::Movlhps, M::Vmovlhps], Binary, fixed(K::MoveToHigh), 8),
];
