//! The machine instructions of stubs. None of them changes a flag or the stack.
//!
//! Source: SDM volume 2. Stubs use RAX, RCX and RDX, which are spilled to the region of the thread.

use super::address_field::AddressField;
use super::layout;

/// Registers that stubs use, with their encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scratch {
    Rax = 0,
    Rcx = 1,
    Rdx = 2,
}

impl Scratch {
    /// Returns the spill slot in the region.
    pub(super) fn slot(self) -> u32 {
        match self {
            Self::Rax => layout::SAVED_RAX,
            Self::Rcx => layout::SAVED_RCX,
            Self::Rdx => layout::SAVED_RDX,
        }
    }
}

/// Registers with the arguments of a function, with their encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentRegister {
    Rdx = 2,
    Rsi = 6,
    Rdi = 7,
}

/// A buffer of machine code.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    pub(super) code: Vec<u8>,
    /// The offsets of the fields that depend on addresses.
    pub(super) fields: Vec<(u32, AddressField)>,
}

/// The size of a padded trap in bytes.
pub(super) const TRAP_LEN: u8 = 2;

impl Assembler {
    /// Builds a buffer with capacity for most blocks.
    pub(super) fn new() -> Self {
        Self {
            code: Vec::with_capacity(1 << 10),
            fields: Vec::with_capacity(16),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.code.len()
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    /// Removes all code from offset `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        self.code.truncate(len);
        self.fields.retain(|(at, _)| (*at as usize) < len);
    }

    /// Notes that the field at offset `at` depends on addresses.
    pub(super) fn note_field(&mut self, at: usize, field: AddressField) {
        self.fields.push((at as u32, field));
    }

    /// `mov gs:[slot], register`
    pub(super) fn store(&mut self, register: Scratch, slot: u32) {
        self.slot(0x89, register, slot);
    }

    /// `mov register, gs:[slot]`
    pub(super) fn load(&mut self, register: Scratch, slot: u32) {
        self.slot(0x8b, register, slot);
    }

    fn slot(&mut self, opcode: u8, register: Scratch, slot: u32) {
        self.bytes(&[0x65, 0x48, opcode, 0x04 | (register as u8) << 3, 0x25]);
        self.bytes(&slot.to_le_bytes());
    }

    /// `mov byte [rcx], value`
    pub(super) fn log_byte(&mut self, value: u8) {
        self.bytes(&[0xc6, 0x01, value]);
    }

    /// `mov word [rcx], first | second << 8`
    pub(super) fn log_bytes(&mut self, first: u8, second: u8) {
        self.bytes(&[0x66, 0xc7, 0x01, first, second]);
    }

    /// `mov [rcx+offset], rax`
    pub(super) fn log_rax(&mut self, offset: u8) {
        self.bytes(&[0x48, 0x89, 0x41, offset]);
    }

    /// `mov dword [rcx+offset+4], high; mov dword [rcx+offset], low`: the last bytes must fit
    /// first. The word is an address of the program.
    pub(super) fn log_word(&mut self, offset: u8, word: u64) {
        let [low @ .., _, _, _, _] = word.to_le_bytes();
        let [_, _, _, _, high @ ..] = word.to_le_bytes();
        self.bytes(&[0xc7, 0x41, offset + 4]);
        self.note_field(self.len(), AddressField::Halves);
        self.bytes(&high);
        self.bytes(&[0xc7, 0x41, offset]);
        self.bytes(&low);
    }

    /// `mov [rcx+offset], eax`
    pub(super) fn log_eax(&mut self, offset: u8) {
        self.bytes(&[0x89, 0x41, offset]);
    }

    /// `mov [rcx+offset], edx`
    pub(super) fn log_edx(&mut self, offset: u8) {
        self.bytes(&[0x89, 0x51, offset]);
    }

    /// `mov word [rcx+offset], first | second << 8`
    pub(super) fn log_at(&mut self, offset: u8, first: u8, second: u8) {
        self.bytes(&[0x66, 0xc7, 0x41, offset, first, second]);
    }

    /// `mov [rcx+offset], register`
    pub(super) fn log_argument(&mut self, offset: u8, register: ArgumentRegister) {
        self.bytes(&[0x48, 0x89, 0x41 | (register as u8) << 3, offset]);
    }

    /// `mov gs:[slot], register`
    pub(super) fn store_argument(&mut self, register: ArgumentRegister, slot: u32) {
        self.bytes(&[0x65, 0x48, 0x89, 0x04 | (register as u8) << 3, 0x25]);
        self.bytes(&slot.to_le_bytes());
    }

    /// `mov qword gs:[slot], value`
    pub(super) fn set_slot(&mut self, slot: u32, value: u32) {
        self.bytes(&[0x65, 0x48, 0xc7, 0x04, 0x25]);
        self.bytes(&slot.to_le_bytes());
        self.bytes(&value.to_le_bytes());
    }

    /// `lea rcx, [rsp+rcx+offset]`
    pub(super) fn add_rsp_to_rcx(&mut self, offset: u8) {
        self.bytes(&[0x48, 0x8d, 0x4c, 0x0c, offset]);
    }

    /// `lea rcx, [rcx+rax+1]`
    pub(super) fn add_rax_to_rcx_and_one(&mut self) {
        self.bytes(&[0x48, 0x8d, 0x4c, 0x01, 1]);
    }

    /// `mov rcx, rsp`
    pub(super) fn rcx_from_rsp(&mut self) {
        self.bytes(&[0x48, 0x89, 0xe1]);
    }

    /// `mov rcx, [rsp]`
    pub(super) fn rcx_from_stack(&mut self) {
        self.bytes(&[0x48, 0x8b, 0x0c, 0x24]);
    }

    /// `not rcx`, which changes no flag.
    pub(super) fn not_rcx(&mut self) {
        self.bytes(&[0x48, 0xf7, 0xd1]);
    }

    /// `jrcxz` over a jump. Returns the offset of the displacement of the jump.
    pub(super) fn jump_unless_rcx_is_zero(&mut self) -> usize {
        self.skip_if_rcx_is_zero(5);
        self.code.push(0xe9);
        self.reserve_rel32()
    }

    /// `jrcxz rel8`. Returns the offset after it.
    pub(super) fn jump_if_rcx_is_zero(&mut self) -> usize {
        self.skip_if_rcx_is_zero(0);
        self.len()
    }

    /// Lets the short jump that ends at offset `from` reach the end. `None`: it is too far.
    pub(super) fn patch_rel8(&mut self, from: usize) -> Option<()> {
        let distance = i8::try_from(self.len().checked_sub(from)?).ok()?;
        *self.code.get_mut(from.checked_sub(1)?)? = distance.cast_unsigned();
        Some(())
    }

    /// `jmp rel32` to a place in the same block. Returns the offset of the displacement.
    pub(super) fn near_jump(&mut self) -> usize {
        self.code.push(0xe9);
        self.reserve_rel32()
    }

    /// Sets RCX to zero if bits `low` to 11 of it are zero, and else to another number. Changes no
    /// flag. `low` is at least 4.
    pub(super) fn page_offset_of_rcx(&mut self, low: u32) {
        // rorx ecx, ecx, low
        self.bytes(&[0xc4, 0xe3, 0x7b, 0xf0, 0xc9, low as u8]);
        // Bits above 11 leave the low byte: lea ecx, [rcx*SCALE]
        let scale = (low.saturating_sub(4) as u8).min(3) << 6;
        self.bytes(&[0x8d, 0x0c, 0x0d | scale, 0, 0, 0, 0]);
        // movzx ecx, cl
        self.bytes(&[0x0f, 0xb6, 0xc9]);
    }

    /// If the slot holds an address, sets RDX to the word there if EDX is zero, and to zero
    /// otherwise. Changes RCX.
    pub(super) fn replace_rdx_by_out_pointer(&mut self, slot: u32) {
        self.load(Scratch::Rcx, slot);
        self.skip_if_rcx_is_zero(23);
        // mov ecx, edx; jrcxz +7
        self.bytes(&[0x89, 0xd1, 0xe3, 7]);
        // mov edx, 0; jmp +12
        self.bytes(&[0xba, 0, 0, 0, 0, 0xeb, 12]);
        self.load(Scratch::Rcx, slot);
        // mov rdx, [rcx]
        self.bytes(&[0x48, 0x8b, 0x11]);
    }

    /// `lea rcx, [rcx+len]`
    pub(super) fn advance_log(&mut self, len: u8) {
        self.bytes(&[0x48, 0x8d, 0x49, len]);
    }

    /// Copies a value of `size` bytes from a slot to `[rcx+at]`, through RDX.
    pub(super) fn copy_value(&mut self, slot: u32, size: u8, at: u32) {
        let (load, store): (&[u8], &[u8]) = match size {
            1 => (&[0x65, 0x0f, 0xb6], &[0x88]),
            2 => (&[0x65, 0x0f, 0xb7], &[0x66, 0x89]),
            4 => (&[0x65, 0x8b], &[0x89]),
            _ => (&[0x65, 0x48, 0x8b], &[0x48, 0x89]),
        };
        self.bytes(load);
        self.bytes(&[0x14, 0x25]);
        self.bytes(&slot.to_le_bytes());
        self.bytes(store);
        match i8::try_from(at) {
            Ok(at) => self.bytes(&[0x51, at.cast_unsigned()]),
            Err(_) => {
                self.code.push(0x91);
                self.bytes(&at.to_le_bytes());
            }
        }
    }

    /// `lea rcx, [rcx+len]` with a displacement of four bytes.
    pub(super) fn advance_values(&mut self, len: u32) {
        self.bytes(&[0x48, 0x8d, 0x89]);
        self.bytes(&len.to_le_bytes());
    }

    /// `rdtsc`
    pub(super) fn rdtsc(&mut self) {
        self.bytes(&[0x0f, 0x31]);
    }

    /// `mov register, address`: an address of the program.
    pub(super) fn set_address(&mut self, register: Scratch, address: u64) {
        self.set(register, address, AddressField::Word);
    }

    /// `mov register, -address`: an address of the program.
    pub(super) fn set_negated(&mut self, register: Scratch, address: u64) {
        self.set(register, address.wrapping_neg(), AddressField::Negated);
    }

    fn set(&mut self, register: Scratch, value: u64, field: AddressField) {
        self.bytes(&[0x48, 0xb8 | register as u8]);
        self.note_field(self.len(), field);
        self.bytes(&value.to_le_bytes());
    }

    /// `lea rcx, [rcx-number]`
    pub(super) fn subtract_from_rcx(&mut self, number: u32) {
        self.bytes(&[0x48, 0x8d, 0x89]);
        self.bytes(&(number as i32).wrapping_neg().to_le_bytes());
    }

    /// `mov gs:[slot], rcx; movzx ecx, byte gs:[slot+7]`: RCX becomes zero unless it is negative.
    pub(super) fn sign_of_rcx(&mut self, slot: u32) {
        self.store(Scratch::Rcx, slot);
        self.bytes(&[0x65, 0x0f, 0xb6, 0x0c, 0x25]);
        self.bytes(&(slot + 7).to_le_bytes());
    }

    /// `mov rcx, rax`
    pub(super) fn rcx_from_rax(&mut self) {
        self.bytes(&[0x48, 0x89, 0xc1]);
    }

    /// `mov rax, [rsp]`
    pub(super) fn return_address(&mut self) {
        self.bytes(&[0x48, 0x8b, 0x04, 0x24]);
    }

    /// `lea rsp, [rsp+size]`
    pub(super) fn pop(&mut self, size: u32) {
        self.bytes(&[0x48, 0x8d, 0xa4, 0x24]);
        self.bytes(&size.to_le_bytes());
    }

    /// `mov edx, 0; crc32 rdx, rax; movzx edx, dx`: the table index of the target in RAX.
    pub(super) fn hash(&mut self) {
        self.bytes(&[0xba, 0, 0, 0, 0]);
        self.bytes(&[0xf2, 0x48, 0x0f, 0x38, 0xf1, 0xd0]);
        self.bytes(&[0x0f, 0xb7, 0xd2]);
    }

    /// `jmp gs:[rdx*8+table]`
    pub(super) fn jump_by_table(&mut self, table: u64) {
        self.bytes(&[0x65, 0xff, 0x24, 0xd5]);
        self.bytes(&(table as u32).to_le_bytes());
    }

    /// `lea rcx, [rcx+rax]`
    pub(super) fn add_rax_to_rcx(&mut self) {
        self.bytes(&[0x48, 0x8d, 0x0c, 0x01]);
    }

    /// `movzx ecx, ax; movzx ecx, byte gs:[rcx+table]`
    pub(super) fn look_up_syscall(&mut self, table: u64) {
        self.bytes(&[0x0f, 0xb7, 0xc8]);
        self.look_up_byte(table);
    }

    /// `mov rcx, [rcx+offset]`, or `mov ecx, [rcx+offset]`
    pub(super) fn load_through_rcx(&mut self, offset: u8, is_wide: bool) {
        if is_wide {
            self.code.push(0x48);
        }
        self.bytes(&[0x8b, 0x49, offset]);
    }

    /// `movzx ecx, byte [rsp+1]`
    pub(super) fn second_byte_on_stack(&mut self) {
        self.bytes(&[0x0f, 0xb6, 0x4c, 0x24, 0x01]);
    }

    /// `movzx ecx, byte gs:[rcx+table]`
    pub(super) fn look_up_byte(&mut self, table: u64) {
        self.bytes(&[0x65, 0x0f, 0xb6, 0x89]);
        self.bytes(&(table as u32).to_le_bytes());
    }

    /// `jrcxz` over the next `distance` bytes.
    pub(super) fn skip_if_rcx_is_zero(&mut self, distance: u8) {
        self.bytes(&[0xe3, distance]);
    }

    /// `mov ch, cl; mov cl, dil`: adds the low byte of the first argument to a table row.
    pub(super) fn row_and_argument_to_rcx(&mut self) {
        self.bytes(&[0x88, 0xcd, 0x40, 0x88, 0xf9]);
    }

    /// `int3`
    pub(super) fn trap(&mut self) {
        self.code.push(0xcc);
    }

    /// `int3; nop`, of [`TRAP_LEN`] bytes. A thread that is killed before the recorder sees its
    /// trap is at the `nop`, and nowhere else.
    pub(super) fn padded_trap(&mut self) {
        self.bytes(&[0xcc, 0x90]);
    }

    /// `jmp rel32`, padded so that the displacement is aligned and can be patched in one store.
    /// Returns the offset of the displacement.
    pub(super) fn jump(&mut self) -> usize {
        while !(self.len() + 1).is_multiple_of(4) {
            self.code.push(0x90);
        }
        self.code.push(0xe9);
        self.reserve_rel32()
    }

    /// Reserves a displacement to be patched later, and returns its offset.
    pub(super) fn reserve_rel32(&mut self) -> usize {
        let at = self.len();
        self.bytes(&[0; 4]);
        at
    }

    /// Patches the displacement at offset `at` to reach offset `to`.
    pub(super) fn patch_rel32(&mut self, at: usize, to: usize) {
        let rel32 = (to as i64 - (at as i64 + 4)) as i32;
        if let Some(place) = self.code.get_mut(at..at + 4) {
            place.copy_from_slice(&rel32.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

    fn text(assembler: &Assembler) -> Vec<String> {
        let mut formatter = IntelFormatter::new();
        Decoder::with_ip(64, &assembler.code, 0, DecoderOptions::NONE)
            .iter()
            .map(|instruction| {
                let mut line = String::new();
                formatter.format(&instruction, &mut line);
                line
            })
            .collect()
    }

    #[test]
    fn assembler_emits_documented_instructions() {
        let mut code = Assembler::default();
        code.store(Scratch::Rcx, 16);
        code.load(Scratch::Rdx, 24);
        code.log_byte(5);
        code.log_bytes(0x80, 1);
        code.log_rax(2);
        code.log_edx(13);
        code.log_word(2, 0x1122_3344_5566_7788);
        code.advance_log(9);
        code.set_address(Scratch::Rax, 0x1122_3344_5566_7788);
        code.return_address();
        code.pop(16);
        code.subtract_from_rcx(3);
        code.sign_of_rcx(0x28);
        code.hash();
        code.jump_by_table(0x1000);
        code.add_rax_to_rcx();
        code.look_up_syscall(0x1000);
        code.row_and_argument_to_rcx();
        code.second_byte_on_stack();
        code.load_through_rcx(8, true);
        code.load_through_rcx(12, false);
        assert_eq!(
            text(&code),
            [
                "mov gs:[10h],rcx",
                "mov rdx,gs:[18h]",
                "mov byte ptr [rcx],5",
                "mov word ptr [rcx],180h",
                "mov [rcx+2],rax",
                "mov [rcx+0Dh],edx",
                "mov dword ptr [rcx+6],11223344h",
                "mov dword ptr [rcx+2],55667788h",
                "lea rcx,[rcx+9]",
                "mov rax,1122334455667788h",
                "mov rax,[rsp]",
                "lea rsp,[rsp+10h]",
                "lea rcx,[rcx-3]",
                "mov gs:[28h],rcx",
                "movzx ecx,byte ptr gs:[2Fh]",
                "mov edx,0",
                "crc32 rdx,rax",
                "movzx edx,dx",
                "jmp qword ptr gs:[rdx*8+1000h]",
                "lea rcx,[rcx+rax]",
                "movzx ecx,ax",
                "movzx ecx,byte ptr gs:[rcx+1000h]",
                "mov ch,cl",
                "mov cl,dil",
                "movzx ecx,byte ptr [rsp+1]",
                "mov rcx,[rcx+8]",
                "mov ecx,[rcx+0Ch]",
            ]
        );
    }

    #[test]
    fn allocator_stubs_are_documented_instructions() {
        let mut code = Assembler::default();
        code.log_at(18, 0x8d, 0);
        code.log_argument(10, ArgumentRegister::Rdi);
        code.log_argument(20, ArgumentRegister::Rsi);
        code.store_argument(ArgumentRegister::Rdi, 104);
        code.set_slot(48, 1);
        code.add_rsp_to_rcx(1);
        code.add_rax_to_rcx_and_one();
        code.rcx_from_rsp();
        code.rcx_from_stack();
        code.not_rcx();
        let from = code.len();
        code.replace_rdx_by_out_pointer(104);
        let end = format!("{:016X}h", code.len());
        let inner = format!("{:016X}h", from + 9 + 2 + 4 + 7);
        assert_eq!(
            text(&code),
            [
                "mov word ptr [rcx+12h],8Dh",
                "mov [rcx+0Ah],rdi",
                "mov [rcx+14h],rsi",
                "mov gs:[68h],rdi",
                "mov qword ptr gs:[30h],1",
                "lea rcx,[rsp+rcx+1]",
                "lea rcx,[rcx+rax+1]",
                "mov rcx,rsp",
                "mov rcx,[rsp]",
                "not rcx",
                "mov rcx,gs:[68h]",
                &format!("jrcxz {end}"),
                "mov ecx,edx",
                &format!("jrcxz {inner}"),
                "mov edx,0",
                &format!("jmp short {end}"),
                "mov rcx,gs:[68h]",
                "mov rdx,[rcx]",
            ]
        );
    }

    #[test]
    fn values_are_copied_in_their_size() {
        let mut code = Assembler::default();
        code.copy_value(0x1000, 1, 0);
        code.copy_value(0x1008, 2, 1);
        code.copy_value(0x1010, 4, 3);
        code.copy_value(0x1018, 8, 200);
        code.advance_values(208);
        assert_eq!(
            text(&code),
            [
                "movzx edx,byte ptr gs:[1000h]",
                "mov [rcx],dl",
                "movzx edx,word ptr gs:[1008h]",
                "mov [rcx+1],dx",
                "mov edx,gs:[1010h]",
                "mov [rcx+3],edx",
                "mov rdx,gs:[1018h]",
                "mov [rcx+0C8h],rdx",
                "lea rcx,[rcx+0D0h]",
            ]
        );
    }

    #[test]
    fn displacements_are_aligned_and_reach_target() {
        let mut code = Assembler::default();
        code.trap();
        let at = code.jump();
        let here = code.len();
        code.patch_rel32(at, here + 3);
        assert_eq!(
            (at % 4, text(&code).last().map(String::as_str)),
            (0, Some("jmp 000000000000000Bh"))
        );
    }
}
