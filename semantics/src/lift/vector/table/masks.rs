//! Tests, signs and masks.

use super::{Row, fixed};
use crate::execute::vector::VectorKind as K;
use crate::lift::vector::form::Form::{Binary, Flags, Nothing, Unary};
use iced_x86::Mnemonic as M;

/// The rows.
pub const ROWS: &[Row] = &[
    (&[M::Movmskps, M::Vmovmskps], Unary, fixed(K::Signs), 4),
    (&[M::Movmskpd, M::Vmovmskpd], Unary, fixed(K::Signs), 8),
    (&[M::Pmovmskb, M::Vpmovmskb], Unary, fixed(K::Signs), 1),
    (&[M::Vpmovb2m], Unary, fixed(K::MaskFromSigns), 1),
    (&[M::Vpmovm2b], Unary, fixed(K::SignsFromMask), 1),
    (&[M::Vpcmpb], Binary, fixed(K::CompareToMask(true)), 1),
    (&[M::Vpcmpub], Binary, fixed(K::CompareToMask(false)), 1),
    (&[M::Vptestmb], Binary, fixed(K::TestToMask(false)), 1),
    (&[M::Vptestnmb], Binary, fixed(K::TestToMask(true)), 1),
    (&[M::Vpmovw2m], Unary, fixed(K::MaskFromSigns), 2),
    (&[M::Vpmovm2w], Unary, fixed(K::SignsFromMask), 2),
    (&[M::Vpcmpw], Binary, fixed(K::CompareToMask(true)), 2),
    (&[M::Vpcmpuw], Binary, fixed(K::CompareToMask(false)), 2),
    (&[M::Vptestmw], Binary, fixed(K::TestToMask(false)), 2),
    (&[M::Vptestnmw], Binary, fixed(K::TestToMask(true)), 2),
    (&[M::Vpmovd2m], Unary, fixed(K::MaskFromSigns), 4),
    (&[M::Vpmovm2d], Unary, fixed(K::SignsFromMask), 4),
    (&[M::Vpcmpd], Binary, fixed(K::CompareToMask(true)), 4),
    (&[M::Vpcmpud], Binary, fixed(K::CompareToMask(false)), 4),
    (&[M::Vptestmd], Binary, fixed(K::TestToMask(false)), 4),
    (&[M::Vptestnmd], Binary, fixed(K::TestToMask(true)), 4),
    (&[M::Vpmovq2m], Unary, fixed(K::MaskFromSigns), 8),
    (&[M::Vpmovm2q], Unary, fixed(K::SignsFromMask), 8),
    (&[M::Vpcmpq], Binary, fixed(K::CompareToMask(true)), 8),
    (&[M::Vpcmpuq], Binary, fixed(K::CompareToMask(false)), 8),
    (&[M::Vptestmq], Binary, fixed(K::TestToMask(false)), 8),
    (&[M::Vptestnmq], Binary, fixed(K::TestToMask(true)), 8),
    (&[M::Ptest, M::Vptest], Flags, fixed(K::TestBits), 8),
    (&[M::Vtestps], Flags, fixed(K::TestSigns), 4),
    (&[M::Vtestpd], Flags, fixed(K::TestSigns), 8),
    (&[M::Vzeroupper], Nothing, fixed(K::Zero(16)), 8),
    (&[M::Vzeroall], Nothing, fixed(K::Zero(0)), 8),
];
