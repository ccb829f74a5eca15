//! The statements of random programs. Each function returns the maximum number of instructions.

use super::{FOREIGN, Function, Generator, Kind, NOPS, PTWRITE};
use crate::engines::assembler::Label;

/// Straight-line instructions: they change `rax`, `rdx`, `rsi`, `rdi`, `r8`, `r9`, vector registers
/// and flags, and write below the stack.
const STRAIGHT: &[&[u8]] = &[
    &[0x90],
    &[0x66, 0x90],
    &[0xf3, 0x90],
    &[0x48, 0x89, 0xc2],
    &[0x48, 0x01, 0xd0],
    &[0x31, 0xd2],
    &[0x4d, 0x31, 0xc0],
    &[0x49, 0xff, 0xc1],
    &[0x0f, 0xaf, 0xc2],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
    &[0x48, 0x8d, 0x44, 0x02, 0x08],
    &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],
    &[0xb8, 0xc3, 0xc3, 0xeb, 0xfe],
    &[0x0f, 0x94, 0xc0],
    &[0x48, 0x0f, 0x44, 0xc2],
    &[0x89, 0x44, 0x24, 0xf0],
    &[0x8b, 0x44, 0x24, 0xf0],
    &[0xf0, 0x48, 0x01, 0x44, 0x24, 0xf0],
    &[0x0f, 0x57, 0xc0],
    &[0x66, 0x0f, 0xef, 0xc0],
    &[0xf2, 0x0f, 0x58, 0xc1],
    &[0x48, 0xc7, 0x44, 0x24, 0xe8, 0x0f, 0x05, 0x0f, 0x05],
    &[0x66, 0xc7, 0x44, 0x24, 0xf0, 1, 2],
    &[0x48, 0x8d, 0x35, 0, 0, 0, 0],
];

/// System calls that only return a number: getpid, getuid, getgid, getppid, gettid, sched_yield.
const SYSTEM_CALLS: &[u8] = &[39, 102, 104, 110, 186, 24];

/// Conditions, as in the opcodes of Jcc: e, ne, l, ge, s, ns, b, a.
const CONDITIONS: &[u8] = &[4, 5, 0xc, 0xd, 8, 9, 2, 7];

impl Generator {
    /// Writes statements that execute about `budget` instructions at most.
    pub(super) fn body(&mut self, budget: usize, nesting: usize) -> usize {
        let mut cost = 0;
        for _ in 0..=self.random.below(6) {
            cost += self.statement(budget.saturating_sub(cost), nesting);
        }
        cost
    }

    /// Writes a statement, or straight-line code for a small budget.
    pub(super) fn statement(&mut self, budget: usize, nesting: usize) -> usize {
        if budget < 16 {
            let count = self.random.below(4);
            return self.straight(count);
        }
        let deep = nesting >= 4;
        match self.random.below(24) {
            0 | 1 => self.mix(),
            2..=5 if !deep => self.either(budget, nesting),
            6..=8 if !deep => self.repeat(budget, nesting),
            9 if !deep => self.switch(budget, nesting),
            10..=14 => self.call(budget),
            15 => self.read_pc(),
            16 => self.pushed_return(),
            17 => self.skipped_return(),
            18 => self.jumps(),
            19 => self.string(),
            20 if budget > 40 => self.system_call(),
            21 => self.flags(),
            22 => self.placeholder(),
            23 if self.random.once_in(4) => {
                let count = budget.min(400);
                self.straight(count)
            }
            _ => {
                let count = 1 + self.random.below(8);
                self.straight(count)
            }
        }
    }

    fn straight(&mut self, count: usize) -> usize {
        for _ in 0..count {
            let bytes = self.random.pick(STRAIGHT);
            self.assembler.put(bytes);
        }
        count
    }

    /// Writes code that puts the next random number into `rbx`.
    fn mix(&mut self) -> usize {
        for shift in [&[0xe0, 13], &[0xe8, 7], &[0xe0, 17]] {
            // mov rax, rbx; shl or shr rax, n; xor rbx, rax
            self.assembler.put(&[0x48, 0x89, 0xd8, 0x48, 0xc1]);
            self.assembler.put(shift);
            self.assembler.put(&[0x48, 0x31, 0xc3]);
        }
        9
    }

    /// Sets flags from random bits, and returns a condition on them.
    fn condition(&mut self) -> u8 {
        match self.random.below(3) {
            // test bl, imm8
            0 => {
                let mask = self.random.next() as u8 | 1;
                self.assembler.put(&[0xf6, 0xc3, mask]);
            }
            // cmp bl, imm8
            1 => {
                let value = self.random.next() as u8;
                self.assembler.put(&[0x80, 0xfb, value]);
            }
            // test ebx, imm32
            _ => {
                let mask = 1u32 << self.random.below(32);
                self.assembler.put(&[0xf7, 0xc3]);
                self.assembler.put(&mask.to_le_bytes());
            }
        }
        self.random.pick(CONDITIONS)
    }

    /// A conditional branch over a part, or to one of two parts.
    fn either(&mut self, budget: usize, nesting: usize) -> usize {
        let condition = self.condition();
        let end = self.assembler.label();
        if self.random.once_in(3) {
            self.assembler.near(&[0x70 | condition], end);
            let count = self.random.below(4);
            let cost = self.straight(count);
            self.assembler.bind(end);
            return 2 + cost;
        }
        let other = self.assembler.label();
        self.assembler.relative(&[0x0f, 0x80 | condition], other);
        let first = self.body((budget - 4) / 2, nesting + 1);
        let mut second = 0;
        if self.random.once_in(2) {
            self.assembler.relative(&[0xe9], end);
            self.assembler.bind(other);
            second = self.body((budget - 4) / 2, nesting + 1);
        } else {
            self.assembler.bind(other);
        }
        self.assembler.bind(end);
        3 + first.max(second)
    }

    /// A loop with a fixed or random number of iterations.
    fn repeat(&mut self, budget: usize, nesting: usize) -> usize {
        let most = self.random.pick(&[2, 5, 20]);
        let rounds = 1 + self.random.below(most.min(budget / 12));
        if rounds >= 4 && self.random.once_in(3) {
            // mov ecx, ebx; and ecx, 3; inc ecx
            self.assembler.put(&[0x89, 0xd9, 0x83, 0xe1, 0x03, 0xff, 0xc1]);
        } else {
            self.assembler.put(&[0xb9]);
            self.assembler.put(&(rounds as u32).to_le_bytes());
        }
        let top = self.assembler.bound();
        // push rcx
        self.assembler.put(&[0x51]);
        let left = (budget / rounds).saturating_sub(6);
        let mut cost = self.body(left, nesting + 1);
        if self.random.once_in(2) && left > 10 {
            cost += self.mix();
        }
        // pop rcx
        self.assembler.put(&[0x59]);
        if self.random.once_in(3) && self.assembler.is_near(top) {
            // loop
            self.assembler.near(&[0xe2], top);
        } else {
            // dec ecx; jnz
            self.assembler.put(&[0xff, 0xc9]);
            if self.assembler.is_near(top) {
                self.assembler.near(&[0x75], top);
            } else {
                self.assembler.relative(&[0x0f, 0x85], top);
            }
        }
        3 + rounds * (cost + 4)
    }

    /// A jump through a table, in one of four forms.
    fn switch(&mut self, budget: usize, nesting: usize) -> usize {
        let (table, end) = (self.assembler.label(), self.assembler.label());
        self.index_table(table);
        if self.random.once_in(2) {
            // jmp [rdx + rax*8]
            self.assembler.put(&[0xff, 0x24, 0xc2]);
        } else {
            // mov rax, [rdx + rax*8]; jmp rax
            self.assembler.put(&[0x48, 0x8b, 0x04, 0xc2, 0xff, 0xe0]);
        }
        let cases: Vec<Label> = (0..4).map(|_| self.assembler.label()).collect();
        self.assembler.bind(table);
        for &case in &cases {
            self.assembler.absolute(case);
        }
        let mut most = 0;
        for case in cases {
            self.assembler.bind(case);
            most = most.max(self.body((budget - 8) / 4, nesting + 1));
            self.assembler.relative(&[0xe9], end);
        }
        self.assembler.bind(end);
        7 + most
    }

    /// Puts a table's address into `rdx`, and a random number below 4 into `rax`.
    fn index_table(&mut self, table: Label) {
        self.assembler.relative(&[0x48, 0x8d, 0x15], table);
        // mov eax, ebx; and eax, 3
        self.assembler.put(&[0x89, 0xd8, 0x83, 0xe0, 0x03]);
    }

    fn call(&mut self, budget: usize) -> usize {
        let affordable: Vec<Function> = self
            .functions
            .iter()
            .filter(|function| function.cost * 2 + 12 < budget)
            .copied()
            .collect();
        if affordable.is_empty() {
            return self.straight(3);
        }
        let function = self.random.pick(&affordable);
        if function.kind != Kind::Plain {
            return self.call_deep(function, budget);
        }
        if self.random.once_in(4) {
            let plain: Vec<Function> = affordable
                .into_iter()
                .filter(|function| function.kind == Kind::Plain)
                .collect();
            return self.call_by_table(&plain);
        }
        self.call_to(function) + function.cost
    }

    /// Writes the call, direct if possible.
    fn call_to(&mut self, function: Function) -> usize {
        if function.segment == self.assembler.segment() && !self.random.once_in(4) {
            self.assembler.relative(&[0xe8], function.label);
            return 1;
        }
        // movabs rax, label; call rax
        self.assembler.put(&[0x48, 0xb8]);
        self.assembler.absolute(function.label);
        self.assembler.put(&[0xff, 0xd0]);
        2
    }

    fn call_by_table(&mut self, functions: &[Function]) -> usize {
        let (table, end) = (self.assembler.label(), self.assembler.label());
        self.index_table(table);
        // call [rdx + rax*8]
        self.assembler.put(&[0xff, 0x14, 0xc2]);
        self.assembler.relative(&[0xe9], end);
        self.assembler.bind(table);
        let mut most = 0;
        for _ in 0..4 {
            let function = self.random.pick(functions);
            most = most.max(function.cost);
            self.assembler.absolute(function.label);
        }
        self.assembler.bind(end);
        5 + most
    }

    /// Calls a function that calls itself, sometimes more often than any return stack is deep.
    fn call_deep(&mut self, function: Function, budget: usize) -> usize {
        let most = self.random.pick(&[3, 10, 66, 100]);
        let depth = 1 + self.random.below(most.min(budget / (function.cost + 3)));
        // push r12, r13, r14; mov r14d, depth
        self.assembler
            .put(&[0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0xbe]);
        self.assembler.put(&(depth as u32).to_le_bytes());
        // mov r12, rsp; lea r13, [rip + back]
        let back = self.assembler.label();
        self.assembler.put(&[0x49, 0x89, 0xe4]);
        self.assembler.relative(&[0x4c, 0x8d, 0x2d], back);
        let cost = self.call_to(function);
        self.assembler.bind(back);
        // pop r14, r13, r12
        self.assembler.put(&[0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c]);
        9 + cost + (depth + 1) * function.cost
    }

    /// Writes the body of a function that calls itself while `r14` is not 0.
    pub(super) fn recursive(&mut self, label: Label, kind: Kind) -> usize {
        let (deeper, done) = (self.assembler.label(), self.assembler.label());
        // test r14, r14
        self.assembler.put(&[0x4d, 0x85, 0xf6]);
        if kind == Kind::Escaping {
            self.assembler.relative(&[0x0f, 0x85], deeper);
            // mov rsp, r12; jmp r13
            self.assembler.put(&[0x4c, 0x89, 0xe4, 0x41, 0xff, 0xe5]);
            self.assembler.bind(deeper);
        } else {
            self.assembler.relative(&[0x0f, 0x84], done);
        }
        // dec r14
        self.assembler.put(&[0x49, 0xff, 0xce]);
        let budget = self.random.pick(&[6, 6, 20]);
        let mut cost = self.body(budget, 3);
        self.assembler.relative(&[0xe8], label);
        cost += self.body(6, 3);
        self.assembler.bind(done);
        self.assembler.put(&[0xc3]);
        cost + 6
    }

    /// The end of a function: a return, an equivalent sequence, or a jump to another function.
    pub(super) fn leave_function(&mut self, segment: usize) -> usize {
        let others: Vec<Function> = self
            .functions
            .iter()
            .filter(|function| function.kind == Kind::Plain && function.segment == segment)
            .copied()
            .collect();
        match self.random.below(8) {
            // ret 0
            0 => self.assembler.put(&[0xc2, 0x00, 0x00]),
            // pop rsi; jmp rsi
            1 => self.assembler.put(&[0x5e, 0xff, 0xe6]),
            // pop rsi; push rsi; ret
            2 => self.assembler.put(&[0x5e, 0x56, 0xc3]),
            // rep ret
            3 => self.assembler.put(&[0xf3, 0xc3]),
            4 | 5 if !others.is_empty() => {
                let other = self.random.pick(&others);
                self.assembler.relative(&[0xe9], other.label);
                return other.cost + 1;
            }
            _ => self.assembler.put(&[0xc3]),
        }
        3
    }

    /// A call of the next instruction, then pop rax.
    fn read_pc(&mut self) -> usize {
        self.assembler.put(&[0xe8, 0, 0, 0, 0, 0x58]);
        2
    }

    /// A jump by push and return, over bytes that are not code.
    fn pushed_return(&mut self) -> usize {
        let end = self.assembler.label();
        // lea rax, [rip + end]; push rax; ret
        self.assembler.relative(&[0x48, 0x8d, 0x05], end);
        self.assembler.put(&[0x50, 0xc3]);
        self.junk();
        self.assembler.bind(end);
        3
    }

    /// A call that returns to another address than the next instruction.
    fn skipped_return(&mut self) -> usize {
        let function = self.assembler.label();
        self.assembler.relative(&[0xe8], function);
        let from = self.assembler.here();
        self.junk();
        // As if it were another function: jmp over.
        let end = self.assembler.label();
        let skip = (self.assembler.here() - from) as u8;
        self.assembler.relative(&[0xe9], end);
        self.assembler.bind(function);
        // add qword [rsp], skip; ret
        self.assembler.put(&[0x48, 0x83, 0x04, 0x24, skip, 0xc3]);
        self.assembler.bind(end);
        4
    }

    fn junk(&mut self) {
        for _ in 0..self.random.below(12) {
            let byte = self.random.next() as u8;
            self.assembler.put(&[byte]);
        }
    }

    /// Direct jumps forward and backward.
    fn jumps(&mut self) -> usize {
        let places: Vec<Label> = (0..3 + self.random.below(5))
            .map(|_| self.assembler.label())
            .collect();
        let end = self.assembler.label();
        // The target of each jump is fixed, its address is random.
        let mut order: Vec<usize> = (0..places.len()).collect();
        for at in 1..order.len() {
            let other = self.random.below(at + 1);
            order.swap(at, other);
        }
        self.assembler.near(&[0xeb], places[0]);
        for at in order {
            self.assembler.bind(places[at]);
            let to = places.get(at + 1).copied().unwrap_or(end);
            if self.random.once_in(2) {
                self.assembler.near(&[0xeb], to);
            } else {
                self.assembler.relative(&[0xe9], to);
            }
        }
        self.assembler.bind(end);
        places.len() + 1
    }

    /// A repeated string instruction on the stack.
    fn string(&mut self) -> usize {
        // sub rsp, 128; mov rdi, rsp; mov rsi, rsp; mov ecx, ebx; and ecx, 15
        self.assembler.put(&[0x48, 0x83, 0xc4, 0x80, 0x48, 0x89, 0xe7]);
        self.assembler
            .put(&[0x48, 0x89, 0xe6, 0x89, 0xd9, 0x83, 0xe1, 0x0f]);
        // rep stosb, rep movsb, rep movsq, repne scasb, repe cmpsb, rep lodsb
        let instruction = self.random.pick(&[
            &[0xf3, 0xaa][..],
            &[0xf3, 0xa4],
            &[0xf3, 0x48, 0xa5],
            &[0xf2, 0xae],
            &[0xf3, 0xa6],
            &[0xf3, 0xac],
        ]);
        self.assembler.put(instruction);
        // lea rsp, [rsp + 128]
        self.assembler.put(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
        7
    }

    fn system_call(&mut self) -> usize {
        let number = self.random.pick(SYSTEM_CALLS);
        self.assembler.put(&[0xb8, number, 0, 0, 0, 0x0f, 0x05]);
        2
    }

    /// Consecutive branches on `rcx`.
    fn flags(&mut self) -> usize {
        let (first, second) = (self.assembler.label(), self.assembler.label());
        // mov ecx, ebx; and ecx, 1; jrcxz; nop; loopne
        self.assembler.put(&[0x89, 0xd9, 0x83, 0xe1, 0x01]);
        self.assembler.near(&[0xe3], first);
        self.assembler.put(&[0x90]);
        self.assembler.bind(first);
        self.assembler.near(&[0xe0], second);
        self.assembler.put(&[0x90]);
        self.assembler.bind(second);
        6
    }

    /// A NOP in place of another decoded instruction.
    fn placeholder(&mut self) -> usize {
        let at = self.assembler.here();
        let ptwrite = self.random.once_in(2);
        let bytes = self.random.pick(if ptwrite { PTWRITE } else { FOREIGN });
        if ptwrite {
            self.ptwrites.push(at);
        }
        self.replaced.push((at, bytes));
        self.assembler.put(NOPS[bytes.len() - 3]);
        1
    }
}
