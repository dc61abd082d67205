//! aarch64: branches and addresses by the bits of their encodings, registers and text as
//! yaxpeax-arm decodes them.
//!
//! All instructions have four bytes. An address is made by two of them: `adrp` loads the address of
//! a 4 KiB page, and an addition or the displacement of a load adds the rest.

mod known_values;

pub(crate) use known_values::{KnownValues, with_known_values};
pub(super) use known_values::{forms, moved_argument};

use super::flow::{Flow, RegisterUse, Registers};
use crate::elf::ElfImage;
use std::ops::Range;
use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Opcode, Operand};

/// Number of `sp` in encodings (in other operands, the zero register's).
pub(super) const STACK_POINTER: u8 = 31;
/// Number of the register with the return address.
pub(super) const LINK_REGISTER: u8 = 30;

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct A64Instruction {
    pub(super) address: u64,
    word: u32,
}

pub(super) fn decode(bytes: &[u8], address: u64) -> impl Iterator<Item = A64Instruction> {
    let (words, _) = bytes.as_chunks::<4>();
    (0..).zip(words).map(move |(index, word)| A64Instruction {
        address: address.wrapping_add(index * 4),
        word: u32::from_le_bytes(*word),
    })
}

impl A64Instruction {
    fn is(&self, mask: u32, value: u32) -> bool {
        self.word & mask == value
    }

    /// The bits from `first` on.
    fn bits(&self, first: u32, count: u32) -> u32 {
        (self.word >> first) & ((1 << count) - 1)
    }

    /// The same as a signed number.
    fn signed(&self, first: u32, count: u32) -> i64 {
        let unused = 32 - count;
        i64::from(((self.bits(first, count) << unused) as i32) >> unused)
    }

    /// The register number at these bits.
    fn register(&self, first: u32) -> u8 {
        self.bits(first, 5) as u8
    }

    /// Where execution continues.
    pub(crate) fn flow(&self) -> Flow {
        if self.is(0xfc00_0000, 0x1400_0000) {
            Flow::Jump // b
        } else if self.is(0xfc00_0000, 0x9400_0000) {
            Flow::Call // bl
        } else if self.is_conditional_jump() {
            Flow::ConditionalJump
        } else if self.is(0xfe00_0000, 0xd600_0000) {
            // With and without pointer authentication.
            match self.bits(21, 4) {
                0 | 8 => Flow::IndirectJump,
                1 | 9 => Flow::IndirectCall,
                2 => Flow::Return,
                _ => Flow::Other,
            }
        } else if self.is(0xff00_0000, 0xd400_0000) && !self.is(0xffe0_001f, 0xd400_0001)
            || self.is(0xffff_0000, 0)
        {
            Flow::Other // brk, hvc and so on, but not svc; udf
        } else {
            Flow::Next
        }
    }

    /// `b.cond`, `cbz` and `cbnz`, `tbz` and `tbnz`.
    fn is_conditional_jump(&self) -> bool {
        self.is(0xff00_0000, 0x5400_0000) || self.is(0x7c00_0000, 0x3400_0000)
    }

    /// Target of a direct jump or call.
    pub(super) fn branch_target(&self) -> Option<u64> {
        let words = if self.is(0x7c00_0000, 0x1400_0000) {
            self.signed(0, 26) // b, bl
        } else if self.is(0x7e00_0000, 0x3600_0000) {
            self.signed(5, 14) // tbz, tbnz
        } else if self.is_conditional_jump() {
            self.signed(5, 19)
        } else {
            return None;
        };
        Some(self.address.wrapping_add_signed(words * 4))
    }

    /// Address that `adr` or `adrp` loads.
    fn loaded_place(&self) -> Option<u64> {
        if !self.is(0x1f00_0000, 0x1000_0000) {
            return None;
        }
        let distance = (self.signed(5, 19) << 2) | i64::from(self.bits(29, 2));
        Some(if self.is_page() {
            (self.address & !0xfff).wrapping_add_signed(distance << 12)
        } else {
            self.address.wrapping_add_signed(distance)
        })
    }

    /// Whether it is `adrp`.
    fn is_page(&self) -> bool {
        self.is(0x9f00_0000, 0x9000_0000)
    }

    /// `add` or `sub` of 64 bits with a constant: destination, source, constant. The constant is negative for `sub`.
    pub(crate) fn addition(&self) -> Option<(u8, u8, i64)> {
        if !self.is(0xbf80_0000, 0x9100_0000) {
            return None;
        }
        let constant = i64::from(self.bits(10, 12)) << (12 * self.bits(22, 1));
        let sign = if self.bits(30, 1) == 1 { -1 } else { 1 };
        Some((self.register(0), self.register(5), sign * constant))
    }

    /// Registers that `cmp` of 64 bits compares.
    pub(crate) fn compared_registers(&self) -> Option<(u8, u8)> {
        if !self.is(0xffe0_fc1f, 0xeb00_001f) {
            return None;
        }
        Some((self.register(5), self.register(16)))
    }

    /// Register and constant that `cmp` compares.
    pub(crate) fn compared_constant(&self) -> Option<(u8, u64)> {
        if !self.is(0x7fc0_001f, 0x7100_001f) {
            return None;
        }
        Some((self.register(5), self.bits(10, 12).into()))
    }

    /// Register and constant of a `mov` of 16 bits.
    pub(crate) fn moved_constant(&self) -> Option<(u8, u32)> {
        if !self.is(0x7fe0_0000, 0x5280_0000) {
            return None;
        }
        Some((self.register(0), self.bits(5, 16)))
    }

    /// The register with the target of an indirect jump or call.
    pub(crate) fn target_register(&self) -> Option<u8> {
        if !matches!(self.flow(), Flow::IndirectJump | Flow::IndirectCall) {
            return None;
        }
        Some(self.register(5))
    }

    /// `t` of `ldr t, [n, #offset]`, where `n` is not the stack pointer.
    pub(super) fn loads_field(&self, offset: u32) -> Option<u8> {
        let is_load = self.is(0xffc0_0000, 0xf940_0000) && self.bits(10, 12) * 8 == offset;
        if is_load && self.register(5) != STACK_POINTER { Some(self.register(0)) } else { None }
    }

    /// `nop`.
    pub(super) fn is_padding(&self) -> bool {
        self.is(0xffff_ffff, 0xd503_201f)
    }

    /// Registers of 64 bits that it loads from known addresses, and those addresses.
    pub(crate) fn loads(&self, known: &KnownValues) -> impl Iterator<Item = (u8, u64)> + use<> {
        let base = known.get(self.register(5));
        let (offset, second) = if self.is(0xffc0_0000, 0xf940_0000) {
            (Some(i64::from(self.bits(10, 12)) * 8), None) // ldr
        } else if self.is(0xffc0_0000, 0xa940_0000) {
            (Some(self.signed(15, 7) * 8), Some(self.register(10))) // ldp
        } else {
            (None, None)
        };
        let mut loads = [None; 2];
        if let (Some(base), Some(offset)) = (base, offset) {
            let address = base.wrapping_add_signed(offset);
            let second = second.map(|register| (register, address.wrapping_add(8)));
            loads = [Some((self.register(0), address)), second];
        }
        loads.into_iter().flatten()
    }

    /// Whether every kernel from 5.8 on emulates the instruction
    /// (arch/arm64/kernel/probes/decode-insn.c): jumps, calls and returns without pointer
    /// authentication, `adr` and `adrp`. Loads relative to the instruction are emulated by some
    /// kernels and rejected by others; `nop` is emulated from 6.13 on.
    pub(super) fn is_emulated(&self) -> bool {
        // https://github.com/torvalds/linux/blob/v6.12/arch/arm64/kernel/probes/decode-insn.c
        let indirect = [0xd61f_0000, 0xd63f_0000, 0xd65f_0000]; // br, blr, ret
        self.branch_target().is_some() && !self.is(0xff00_0010, 0x5400_0010)
            || self.loaded_place().is_some()
            || indirect.iter().any(|value| self.is(0xffff_fc1f, *value))
    }

    /// The decoder takes each of the 2^32 words, and prints it, without a panic: all were tried,
    /// with overflow checks (yaxpeax-arm 0.5.0). It knows every instruction of the interpreters
    /// tested.
    fn decoded(&self) -> Option<yaxpeax_arm::armv8::a64::Instruction> {
        let bytes = self.word.to_le_bytes();
        InstDecoder::default().decode(&mut U8Reader::new(&bytes)).ok()
    }

    pub(super) fn text(&self) -> String {
        let Some(decoded) = self.decoded() else { return format!(".inst {:#010x}", self.word) };
        decoded.to_string()
    }

    /// Its use of `x0` to `x30` and `sp`; none for vector instructions unknown to the decoder.
    pub(super) fn register_use(&self) -> RegisterUse {
        let mut found = RegisterUse::default();
        if self.is(0xffff_f01f, 0xd503_201f) {
            // Hints. Some sign, check or strip the return address, with `sp` as the salt.
            let signs = matches!(self.bits(5, 7), 7 | 24..=31);
            let link = Registers::of(if signs { Some(LINK_REGISTER) } else { None });
            (found.read, found.changed) = (link, link);
            return found;
        }
        let Some(decoded) = self.decoded() else { return found };
        let written = written_operands(decoded.opcode);
        for (index, operand) in decoded.operands.iter().enumerate() {
            found.add(operand, written.contains(&index));
        }
        if reads_its_result(decoded.opcode) {
            found.read.0 |= found.replaced.0;
            found.replaced = Registers::default();
        }
        if matches!(self.flow(), Flow::Call | Flow::IndirectCall) {
            found.changed.0 |= Registers::of([LINK_REGISTER]).0;
        }
        found
    }
}

impl RegisterUse {
    fn add(&mut self, operand: &Operand, is_written: bool) {
        match *operand {
            Operand::Register(_, 31) => {}
            Operand::Register(_, number) | Operand::RegisterOrSP(_, number) => {
                let Registers(bit) = set(number);
                if is_written {
                    self.changed.0 |= bit;
                    self.replaced.0 |= bit;
                } else {
                    self.read.0 |= bit;
                }
            }
            Operand::RegisterPair(_, number) => {
                let pair = set(number).0 | set(number.wrapping_add(1)).0;
                self.read.0 |= pair;
                self.changed.0 |= if is_written { pair } else { 0 };
            }
            Operand::RegShift(_, _, _, number) => self.read.0 |= index_register(number).0,
            Operand::RegRegOffset(base, index, ..) => {
                self.read.0 |= set(base).0 | index_register(index).0;
            }
            Operand::RegPreIndex(base, _, writes_back) => {
                self.read.0 |= set(base).0;
                self.changed.0 |= if writes_back { set(base).0 } else { 0 };
            }
            Operand::RegPostIndex(base, _) => {
                self.read.0 |= set(base).0;
                self.changed.0 |= set(base).0;
            }
            Operand::RegPostIndexReg(base, index) => {
                self.read.0 |= set(base).0 | index_register(index).0;
                self.changed.0 |= set(base).0;
            }
            _ => {}
        }
    }
}

fn set(number: u16) -> Registers {
    Registers::of(u8::try_from(number))
}

/// As [`set`], but register 31 is the zero register.
fn index_register(number: u16) -> Registers {
    if number == 31 { Registers::default() } else { set(number) }
}

/// Indices of the operands that an instruction writes.
fn written_operands(opcode: Opcode) -> Range<usize> {
    match opcode {
        Opcode::STR
        | Opcode::STRB
        | Opcode::STRH
        | Opcode::STRW
        | Opcode::STUR
        | Opcode::STURB
        | Opcode::STURH
        | Opcode::STTR
        | Opcode::STTRB
        | Opcode::STTRH
        | Opcode::STP
        | Opcode::STNP
        | Opcode::STLR
        | Opcode::STLRB
        | Opcode::STLRH
        | Opcode::STLLR
        | Opcode::STLLRB
        | Opcode::STLLRH
        | Opcode::STLUR
        | Opcode::STLURB
        | Opcode::STLURH
        | Opcode::STG
        | Opcode::STZG
        | Opcode::ST2G
        | Opcode::STZ2G
        | Opcode::STGM
        | Opcode::STZGM
        | Opcode::CBZ
        | Opcode::CBNZ
        | Opcode::TBZ
        | Opcode::TBNZ
        | Opcode::BR
        | Opcode::BLR
        | Opcode::BRAA
        | Opcode::BRAAZ
        | Opcode::BRAB
        | Opcode::BRABZ
        | Opcode::BLRAA
        | Opcode::BLRAAZ
        | Opcode::BLRAB
        | Opcode::BLRABZ
        | Opcode::RET
        | Opcode::CCMN
        | Opcode::CCMP
        | Opcode::SETF8
        | Opcode::SETF16
        | Opcode::RMIF => 0..0,
        Opcode::LDP | Opcode::LDPSW | Opcode::LDNP | Opcode::LDXP | Opcode::LDAXP => 0..2,
        // The first operand is read, the second is the old value in memory.
        opcode if is_atomic(opcode) => 1..2,
        _ => 0..1,
    }
}

#[rustfmt::skip]
fn is_atomic(opcode: Opcode) -> bool {
    use Opcode::*;
    matches!(
        opcode,
        SWP(_) | SWPB(_) | SWPH(_)
        | LDADD(_) | LDADDB(_) | LDADDH(_) | LDCLR(_) | LDCLRB(_) | LDCLRH(_)
        | LDEOR(_) | LDEORB(_) | LDEORH(_) | LDSET(_) | LDSETB(_) | LDSETH(_)
        | LDSMAX(_) | LDSMAXB(_) | LDSMAXH(_) | LDSMIN(_) | LDSMINB(_) | LDSMINH(_)
        | LDUMAX(_) | LDUMAXB(_) | LDUMAXH(_) | LDUMIN(_) | LDUMINB(_) | LDUMINH(_)
    )
}

/// Whether the old value of the register that it writes matters.
fn reads_its_result(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::MOVK | Opcode::BFM | Opcode::CAS(_) | Opcode::CASB(_) | Opcode::CASH(_)
    )
}

/// Greatest distance from the page that `adrp` loads to the wanted data. Compilers also reach data from the shared
/// address of its neighbors (section anchors: gcc's are at most 4095 bytes away).
const FARTHEST: u64 = 0x2000;

/// Addresses of code that may form `target`: instructions that load its page, or one close before
/// it.
pub(super) fn near_loads(image: &ElfImage<'_>, target: u64) -> Vec<u64> {
    let reaches = |one: &A64Instruction| match one.loaded_place() {
        Some(place) => {
            let distance = target.wrapping_sub(place);
            distance == 0 || one.is_page() && distance < FARTHEST
        }
        None => false,
    };
    instructions_of(image, reaches)
}

/// Addresses of the direct jumps and calls to `targets`.
pub(super) fn branches(image: &ElfImage<'_>, targets: &Range<u64>) -> Vec<u64> {
    let leads_there =
        |one: &A64Instruction| matches!(one.branch_target(), Some(to) if targets.contains(&to));
    instructions_of(image, leads_there)
}

fn instructions_of(image: &ElfImage<'_>, wanted: impl Fn(&A64Instruction) -> bool) -> Vec<u64> {
    image
        .code()
        .flat_map(|(address, bytes)| decode(bytes, address))
        .filter(wanted)
        .map(|one| one.address)
        .collect()
}
