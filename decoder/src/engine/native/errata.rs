//! The errata of processors that the decoder works around.
//!
//! Source: Intel's specification updates of the processors named, by the erratum's number. The list
//! of models follows libipt's `pt_cpu_errata`.

use backtrail_pt::CpuModel;
use backtrail_pt::cpu::Vendor;

/// A set of errata, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Errata {
    /// The packet of a branch right before an aborted transaction may be wrong.
    pub bdm64: bool,
    /// A PSB+ right before TIP.PGE may have a FUP although tracing is disabled.
    pub bdm70: bool,
    /// The second byte of a CYC before OVF may be lost: the rest reads as two CYC.
    pub skd007: bool,
    /// The FUP or TIP.PGE that an OVF binds to may be dropped.
    pub skd010: bool,
    /// VMLAUNCH and VMRESUME may disable tracing as if they had been interrupted.
    pub skd022: bool,
    /// TIP.PGD has no address where a direct branch leaves the filter's range.
    pub skl014: bool,
    /// CYC right before PSB may be dropped.
    pub skl168: bool,
    /// TMA may be corrupt in virtual machines.
    pub skz84: bool,
    /// An extra TIP.PGD may follow OVF.
    pub apl11: bool,
    /// An OVF that resolves while tracing is disabled may have a FUP.
    pub apl12: bool,
}

impl Errata {
    const NONE: Self = Self {
        bdm64: false,
        bdm70: false,
        skd007: false,
        skd010: false,
        skd022: false,
        skl014: false,
        skl168: false,
        skz84: false,
        apl11: false,
        apl12: false,
    };

    /// Returns the errata of a processor; `None` for an Intel processor outside the table.
    pub fn of(cpu: CpuModel) -> Option<Self> {
        if cpu.vendor != Vendor::Intel {
            return Some(Self::NONE);
        }
        let common = Self {
            bdm70: true,
            skd022: true,
            ..Self::NONE
        };
        Some(match (cpu.family, cpu.model) {
            // Broadwell.
            (6, 0x3d | 0x47 | 0x4f | 0x56) => Self {
                bdm64: true,
                bdm70: true,
                ..Self::NONE
            },
            // Skylake, Kaby Lake, Comet Lake.
            (6, 0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6) => Self {
                skd007: true,
                skd010: true,
                skl014: true,
                skl168: true,
                ..common
            },
            // Skylake and Ice Lake for servers.
            (6, 0x55 | 0x6a | 0x6c) => Self {
                skl014: true,
                skz84: true,
                ..common
            },
            // Sapphire, Emerald and Granite Rapids, Diamond Rapids.
            (6, 0x8f | 0xcf | 0xad | 0xae) | (0x13, 0x01) => Self {
                skz84: true,
                ..common
            },
            // Cannon Lake, Ice Lake, Tiger Lake, Rocket Lake.
            (6, 0x66 | 0x7d | 0x7e | 0x8c | 0x8d | 0xa7 | 0xa8) => Self {
                skl014: true,
                ..common
            },
            // Alder, Raptor, Meteor, Arrow, Lunar, Panther, Wildcat and Nova Lake.
            (6, 0x97 | 0x9a | 0xb5 | 0xb7 | 0xba | 0xbf | 0xc5 | 0xc6 | 0xaa | 0xac | 0xbd | 0xcc | 0xd5)
            | (0x12, 0x01 | 0x03) => Self {
                apl11: true,
                ..common
            },
            // Goldmont.
            (6, 0x5c | 0x5f) => Self {
                apl11: true,
                apl12: true,
                ..Self::NONE
            },
            // Goldmont Plus, Tremont, Gracemont, Crestmont, Darkmont.
            (6, 0x7a | 0x86 | 0x96 | 0x9c | 0xb6 | 0xaf | 0xdd) => Self {
                apl11: true,
                ..Self::NONE
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Errata> {
        Errata::of(text.parse().unwrap())
    }

    #[test]
    fn models_have_their_errata_and_unknown_ones_none() {
        assert!(of("6/79/1").unwrap().bdm64);
        assert!(of("6/94/3").unwrap().skd010);
        assert!(of("6/85/4").unwrap().skz84 && !of("6/85/4").unwrap().skd010);
        assert!(of("6/92/9").unwrap().apl12);
        assert!(of("19/1/0").unwrap().skd022);
        for nova_or_wildcat in ["18/1/0", "18/3/1", "6/213/0"] {
            let errata = of(nova_or_wildcat).unwrap();
            assert!(errata.apl11 && errata.skd022 && errata.bdm70 && !errata.apl12);
        }
        assert_eq!(of("18/2/0"), None);
        assert_eq!(of("6/1/0"), None);
        let software = CpuModel {
            vendor: Vendor::Other,
            ..("6/94/3".parse().unwrap())
        };
        assert_eq!(Errata::of(software), Some(Errata::NONE));
    }
}
