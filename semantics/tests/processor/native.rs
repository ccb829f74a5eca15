//! Executes one instruction on the processor, with all registers set before and read afterwards.

use super::region::{SIZE, START};
use backtrail_semantics::State;
use std::arch::{global_asm, x86_64::__cpuid_count};
use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::ptr;

/// The address of the page with the instruction.
pub const CODE: u64 = 0x3000_0000;
/// The address of the instruction.
pub const INSTRUCTION: u64 = CODE + 0x800;
/// The distance from the next instruction to the target of branches.
pub const TAKEN: u64 = 0x20;
/// The components of the state: x87, SSE, AVX, and those of AVX-512.
const COMPONENTS: u64 = 0xe7;
/// The component of AVX, and those of AVX-512.
const AVX: u64 = 4;
const AVX_512: u64 = 0xe0;
/// The base of GS, which the C library does not use.
pub const GS_BASE: u64 = 0x110;
/// The code of `arch_prctl` that sets it.
const ARCH_SET_GS: libc::c_int = 0x1001;
/// Bit 1 of the flags is always one, and interrupts are enabled.
const FIXED_FLAGS: u64 = 0x202;
/// The flags that the comparison sets and reads.
pub const FLAGS: u64 = backtrail_semantics::flag::STATUS | backtrail_semantics::flag::DIRECTION;

/// The registers between the test and the assembler code.
#[repr(C, align(64))]
struct Context {
    general: [u64; 16],
    flags: u64,
    target: u64,
    host_stack: u64,
    taken: u64,
    fault: u64,
    components: u64,
}

#[repr(C, align(64))]
struct Area([u8; 8192]);

#[repr(transparent)]
struct Shared<T>(UnsafeCell<T>);

// SAFETY: one thread at a time uses these, under the lock of the caller.
unsafe impl<T> Sync for Shared<T> {}

#[unsafe(no_mangle)]
static BT_CONTEXT: Shared<Context> = Shared(UnsafeCell::new(Context {
    general: [0; 16],
    flags: 0,
    target: 0,
    host_stack: 0,
    taken: 0,
    fault: 0,
    components: 0,
}));
#[unsafe(no_mangle)]
static BT_AREA: Shared<Area> = Shared(UnsafeCell::new(Area([0; 8192])));

global_asm!(
    ".globl bt_run",
    "bt_run:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rip + {context} + {host}], rsp",
    "mov rax, [rip + {context} + {components}]",
    "xor edx, edx",
    "xrstor [rip + {area}]",
    "push qword ptr [rip + {context} + {flags}]",
    "popfq",
    "mov rax, [rip + {context}]",
    "mov rcx, [rip + {context} + 8]",
    "mov rdx, [rip + {context} + 16]",
    "mov rbx, [rip + {context} + 24]",
    "mov rsp, [rip + {context} + 32]",
    "mov rbp, [rip + {context} + 40]",
    "mov rsi, [rip + {context} + 48]",
    "mov rdi, [rip + {context} + 56]",
    "mov r8, [rip + {context} + 64]",
    "mov r9, [rip + {context} + 72]",
    "mov r10, [rip + {context} + 80]",
    "mov r11, [rip + {context} + 88]",
    "mov r12, [rip + {context} + 96]",
    "mov r13, [rip + {context} + 104]",
    "mov r14, [rip + {context} + 112]",
    "mov r15, [rip + {context} + 120]",
    "jmp [rip + {context} + {target}]",
    ".globl bt_taken",
    "bt_taken:",
    "mov byte ptr [rip + {context} + {taken}], 1",
    ".globl bt_done",
    "bt_done:",
    "mov [rip + {context}], rax",
    "mov [rip + {context} + 8], rcx",
    "mov [rip + {context} + 16], rdx",
    "mov [rip + {context} + 24], rbx",
    "mov [rip + {context} + 32], rsp",
    "mov [rip + {context} + 40], rbp",
    "mov [rip + {context} + 48], rsi",
    "mov [rip + {context} + 56], rdi",
    "mov [rip + {context} + 64], r8",
    "mov [rip + {context} + 72], r9",
    "mov [rip + {context} + 80], r10",
    "mov [rip + {context} + 88], r11",
    "mov [rip + {context} + 96], r12",
    "mov [rip + {context} + 104], r13",
    "mov [rip + {context} + 112], r14",
    "mov [rip + {context} + 120], r15",
    "mov rsp, [rip + {context} + {host}]",
    "pushfq",
    "pop qword ptr [rip + {context} + {flags}]",
    "cld",
    "mov rax, [rip + {context} + {components}]",
    "xor edx, edx",
    "xsave [rip + {area}]",
    "vzeroupper",
    "fninit",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    context = sym BT_CONTEXT,
    area = sym BT_AREA,
    components = const offset_of!(Context, components),
    flags = const offset_of!(Context, flags),
    target = const offset_of!(Context, target),
    host = const offset_of!(Context, host_stack),
    taken = const offset_of!(Context, taken),
);

unsafe extern "C" {
    fn bt_run();
    fn bt_done();
    fn bt_taken();
}

/// The end of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The next instruction is at this address.
    Next(u64),
    /// A signal.
    Fault(i32),
}

/// The processor. There can be one.
pub struct Processor {
    /// The components that this processor and its kernel have.
    components: u64,
    /// The offsets of the components in the saved state.
    offsets: [usize; 8],
}

impl Processor {
    /// Maps the pages and installs the handler of faults.
    pub fn new() -> Self {
        map(START, SIZE, libc::PROT_READ | libc::PROT_WRITE);
        map(CODE, 4096, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
        install_handler();
        // SAFETY: nothing in this process uses GS.
        let set = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, GS_BASE) };
        assert_eq!(set, 0);
        let components = supported() & COMPONENTS;
        let offsets = std::array::from_fn(|component| {
            let leaf = __cpuid_count(0xd, component as u32);
            leaf.ebx as usize
        });
        Self { components, offsets }
    }

    /// Returns the number of vector registers, and their size in bytes.
    pub fn vectors(&self) -> (usize, usize) {
        match (self.components & AVX, self.components & AVX_512) {
            (_, AVX_512) => (32, 64),
            (AVX, _) => (16, 32),
            _ => (16, 16),
        }
    }

    /// Returns the bytes of the page.
    pub fn page(&mut self) -> &mut [u8; SIZE] {
        // SAFETY: `new` mapped the page, nothing else refers to it, and any bytes are valid.
        unsafe { &mut *(START as *mut [u8; SIZE]) }
    }

    /// Executes an instruction.
    pub fn run(&mut self, bytes: &[u8], state: &mut State) -> Outcome {
        let next = INSTRUCTION + bytes.len() as u64;
        // SAFETY: the page is mapped writable, and no code runs in it now.
        let code = unsafe { &mut *(CODE as *mut [u8; 4096]) };
        let at = (INSTRUCTION - CODE) as usize;
        code[at..at + bytes.len()].copy_from_slice(bytes);
        put_jump(code, at + bytes.len(), bt_done as *const () as u64);
        put_jump(
            code,
            at + bytes.len() + TAKEN as usize,
            bt_taken as *const () as u64,
        );
        self.put(state);
        // SAFETY: the code saves and restores all registers that the caller keeps. The instruction
        // can write to the page, and faults elsewhere.
        unsafe { bt_run() };
        self.get(state).map_or(Outcome::Next(next), |taken| match taken {
            Ok(()) => Outcome::Next(next + TAKEN),
            Err(signal) => Outcome::Fault(signal),
        })
    }

    fn put(&mut self, state: &State) {
        // SAFETY: see `Shared`. No instruction runs now.
        let (context, area) = unsafe { (&mut *BT_CONTEXT.0.get(), &mut *BT_AREA.0.get()) };
        context.general = state.general;
        context.flags = state.flags & FLAGS | FIXED_FLAGS;
        context.target = INSTRUCTION;
        context.taken = 0;
        context.fault = 0;
        context.components = self.components;
        let area = &mut area.0;
        area[..576].fill(0);
        // The control words of x87 and SSE, and the components in the header.
        area[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        area[24..28].copy_from_slice(&state.mxcsr.to_le_bytes());
        area[512..520].copy_from_slice(&self.components.to_le_bytes());
        for (number, vector) in state.vectors.iter().enumerate() {
            for (part, range) in self.places(number) {
                area[range.clone()].copy_from_slice(&vector[part..part + range.len()]);
            }
        }
        for (number, mask) in state.masks.iter().enumerate().take(self.mask_count()) {
            let at = self.offsets[5] + 8 * number;
            area[at..at + 8].copy_from_slice(&mask.to_le_bytes());
        }
    }

    /// Reads the registers. Returns whether the branch was taken, or the signal.
    fn get(&mut self, state: &mut State) -> Option<Result<(), i32>> {
        // SAFETY: see `Shared`. No instruction runs now.
        let (context, area) = unsafe { (&*BT_CONTEXT.0.get(), &*BT_AREA.0.get()) };
        state.general = context.general;
        state.flags = context.flags & FLAGS;
        for (number, vector) in state.vectors.iter_mut().enumerate() {
            for (part, range) in self.places(number) {
                vector[part..part + range.len()].copy_from_slice(&area.0[range]);
            }
        }
        for (number, mask) in state.masks.iter_mut().enumerate().take(self.mask_count()) {
            let at = self.offsets[5] + 8 * number;
            *mask = u64::from_le_bytes(std::array::from_fn(|byte| area.0[at + byte]));
        }
        if context.fault != 0 {
            return Some(Err(context.fault as i32));
        }
        (context.taken != 0).then_some(Ok(()))
    }

    /// Returns the parts of a vector register: the first byte, and the place in the saved state.
    fn places(&self, number: usize) -> Vec<(usize, std::ops::Range<usize>)> {
        let (count, size) = self.vectors();
        if number >= count {
            return Vec::new();
        }
        if number >= 16 {
            let at = self.offsets[7] + 64 * (number - 16);
            return vec![(0, at..at + 64)];
        }
        let (low, middle) = (160 + 16 * number, self.offsets[2] + 16 * number);
        let high = self.offsets[6] + 32 * number;
        let mut places = vec![
            (0, low..low + 16),
            (16, middle..middle + 16),
            (32, high..high + 32),
        ];
        places.retain(|(part, _)| *part < size);
        places
    }

    /// Returns the number of mask registers.
    pub fn mask_count(&self) -> usize {
        if self.vectors().1 == 64 { 8 } else { 0 }
    }
}

/// Returns the components of the state that the kernel has enabled.
fn supported() -> u64 {
    // Without XSAVE, the components of old processors.
    if !std::is_x86_feature_detected!("xsave") {
        return 3;
    }
    // SAFETY: the processor has the instruction, and the kernel has enabled it.
    unsafe { xgetbv() }
}

/// Returns the register XCR0.
#[target_feature(enable = "xsave")]
fn xgetbv() -> u64 {
    // SAFETY: register 0 exists wherever the instruction does.
    unsafe { std::arch::x86_64::_xgetbv(0) }
}

/// Writes a jump that changes no register.
fn put_jump(code: &mut [u8; 4096], at: usize, target: u64) {
    code[at..at + 6].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
    code[at + 6..at + 14].copy_from_slice(&target.to_le_bytes());
}

fn map(address: u64, size: usize, access: i32) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping at an address where there is none.
    let mapped = unsafe { libc::mmap(address as *mut _, size, access, flags, -1, 0) };
    assert_eq!(
        mapped as u64,
        address,
        "mmap: {}",
        std::io::Error::last_os_error()
    );
}

/// Continues after the instruction that faulted.
extern "C" fn on_fault(signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a context, and the instruction's thread waits in this handler.
    let (context, shared) = unsafe { (&mut *context.cast::<libc::ucontext_t>(), &mut *BT_CONTEXT.0.get()) };
    let rip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    let is_ours = (*rip as u64).wrapping_sub(CODE) < 4096;
    if !is_ours && !is_target(*rip as u64) {
        // SAFETY: the page is mapped.
        let code = unsafe { std::slice::from_raw_parts(INSTRUCTION as *const u8, 15) };
        eprintln!("signal {signal} at {rip:#x} after {code:02x?}");
        // SAFETY: the default action ends the process with the signal when it comes again.
        let _ = unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    shared.fault = signal as u64;
    *rip = bt_done as *const () as i64;
}

/// Returns whether a jump to this address of the page made the fault.
fn is_target(rip: u64) -> bool {
    rip.wrapping_sub(START) < SIZE as u64
}

fn install_handler() {
    const STACK: usize = 256 << 10;
    // SAFETY: the stack is never freed, and the handler is a function of the right type.
    unsafe {
        let stack = libc::stack_t {
            ss_sp: Box::leak(vec![0_u8; STACK].into_boxed_slice())
                .as_mut_ptr()
                .cast(),
            ss_flags: 0,
            ss_size: STACK,
        };
        assert_eq!(libc::sigaltstack(&stack, ptr::null_mut()), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        for signal in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
        ] {
            assert_eq!(libc::sigaction(signal, &action, ptr::null_mut()), 0);
        }
    }
}
