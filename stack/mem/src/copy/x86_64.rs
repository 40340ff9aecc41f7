//! The accesses on x86-64, whose faults the process can catch.
//!
//! Short copies and words are leaf routines in assembler: they push nothing, so a fault in them is
//! undone by a return with the result `FAULTED`. Long copies are calls of `memcpy`, or of the
//! routine that takes a CRC on the way, through `ironwarp_mem_call`, which saves the registers that
//! a caller expects back and leaves the address of its frame in a word of the thread. A fault
//! inside returns from that frame. [`abandon`] does either; the signal handler calls it.

use core::arch::global_asm;
use core::ffi::c_void;

use ironwarp_arch::one_pass::{CrcAndSum, Kernel};

use super::Faulted;

/// Longer copies are done by `memcpy`.
const SHORT_MAX: usize = 128;

global_asm!(
    r#"
    .pushsection .tbss.ironwarp_mem,"awT",@nobits
    .p2align 4
    .type ironwarp_mem_thread, @object
ironwarp_mem_thread:
    .zero 32
    .size ironwarp_mem_thread, 32
    .popsection

    .pushsection .text.ironwarp_mem,"ax",@progbits
    .macro ironwarp_mem_routine name
    .p2align 4
    .globl \name
    .hidden \name
    .type \name, @function
\name:
    .cfi_startproc
    .endm

    .macro ironwarp_mem_end name
    .cfi_endproc
    .size \name, . - \name
    .endm

    # Ends a short copy; a placement stores its last byte now.
    .macro ironwarp_mem_done places
    .if \places
    mov byte ptr [r9], r8b
    .endif
    xor eax, eax
    ret
    .endm

    # Copies rdx bytes, at most 128, from rsi to rdi: all are loaded before any is stored.
    .macro ironwarp_mem_short places
    cmp rdx, 32
    ja 34f
    cmp edx, 16
    jb 32f
    movups xmm0, xmmword ptr [rsi]
    movups xmm1, xmmword ptr [rsi + rdx - 16]
    movups xmmword ptr [rdi], xmm0
    movups xmmword ptr [rdi + rdx - 16], xmm1
    ironwarp_mem_done \places
32:
    cmp edx, 8
    jb 33f
    mov rax, qword ptr [rsi]
    mov rcx, qword ptr [rsi + rdx - 8]
    mov qword ptr [rdi], rax
    mov qword ptr [rdi + rdx - 8], rcx
    ironwarp_mem_done \places
33:
    cmp edx, 4
    jb 35f
    mov eax, dword ptr [rsi]
    mov ecx, dword ptr [rsi + rdx - 4]
    mov dword ptr [rdi], eax
    mov dword ptr [rdi + rdx - 4], ecx
    ironwarp_mem_done \places
35:
    test edx, edx
    jz 36f
    mov r10, rdx
    shr r10, 1
    movzx eax, byte ptr [rsi]
    movzx ecx, byte ptr [rsi + r10]
    movzx r11d, byte ptr [rsi + rdx - 1]
    mov byte ptr [rdi], al
    mov byte ptr [rdi + r10], cl
    mov byte ptr [rdi + rdx - 1], r11b
36:
    ironwarp_mem_done \places
34:
    movups xmm0, xmmword ptr [rsi]
    movups xmm1, xmmword ptr [rsi + 16]
    movups xmm2, xmmword ptr [rsi + rdx - 32]
    movups xmm3, xmmword ptr [rsi + rdx - 16]
    cmp edx, 64
    ja 37f
    movups xmmword ptr [rdi], xmm0
    movups xmmword ptr [rdi + 16], xmm1
    movups xmmword ptr [rdi + rdx - 32], xmm2
    movups xmmword ptr [rdi + rdx - 16], xmm3
    ironwarp_mem_done \places
37:
    movups xmm4, xmmword ptr [rsi + 32]
    movups xmm5, xmmword ptr [rsi + 48]
    movups xmm6, xmmword ptr [rsi + rdx - 64]
    movups xmm7, xmmword ptr [rsi + rdx - 48]
    movups xmmword ptr [rdi], xmm0
    movups xmmword ptr [rdi + 16], xmm1
    movups xmmword ptr [rdi + 32], xmm4
    movups xmmword ptr [rdi + 48], xmm5
    movups xmmword ptr [rdi + rdx - 64], xmm6
    movups xmmword ptr [rdi + rdx - 48], xmm7
    movups xmmword ptr [rdi + rdx - 32], xmm2
    movups xmmword ptr [rdi + rdx - 16], xmm3
    ironwarp_mem_done \places
    .endm

    .p2align 6
    .globl ironwarp_mem_leaves
    .hidden ironwarp_mem_leaves
ironwarp_mem_leaves:

    # Copies rdx bytes, at most 128, from rsi to rdi. Returns eax: 1 after a fault.
    ironwarp_mem_routine ironwarp_mem_copy
    ironwarp_mem_short 0
    ironwarp_mem_end ironwarp_mem_copy

    # The same with one byte more, which is stored after all others.
    ironwarp_mem_routine ironwarp_mem_place
    movzx r8d, byte ptr [rsi + rdx]
    lea r9, [rdi + rdx]
    ironwarp_mem_short 1
    ironwarp_mem_end ironwarp_mem_place

    # Words at rdi. These return the value in rax, and edx: 1 after a fault. The processor orders loads and stores as acquire
    # and release do.
    ironwarp_mem_routine ironwarp_mem_load_byte
    movzx eax, byte ptr [rdi]
    xor edx, edx
    ret
    ironwarp_mem_end ironwarp_mem_load_byte

    ironwarp_mem_routine ironwarp_mem_load_word
    mov rax, qword ptr [rdi]
    xor edx, edx
    ret
    ironwarp_mem_end ironwarp_mem_load_word

    ironwarp_mem_routine ironwarp_mem_store_word
    mov qword ptr [rdi], rsi
    xor edx, edx
    ret
    ironwarp_mem_end ironwarp_mem_store_word

    ironwarp_mem_routine ironwarp_mem_add_word
    mov rax, rsi
    lock xadd qword ptr [rdi], rax
    xor edx, edx
    ret
    ironwarp_mem_end ironwarp_mem_add_word

    ironwarp_mem_routine ironwarp_mem_swap_word
    mov rax, rsi
    xchg qword ptr [rdi], rax
    xor edx, edx
    ret
    ironwarp_mem_end ironwarp_mem_swap_word

    # Expected in rsi, new in rdx.
    ironwarp_mem_routine ironwarp_mem_exchange_word
    mov rax, rsi
    lock cmpxchg qword ptr [rdi], rdx
    mov edx, 0
    ret
    ironwarp_mem_end ironwarp_mem_exchange_word

    .globl ironwarp_mem_leaves_end
    .hidden ironwarp_mem_leaves_end
ironwarp_mem_leaves_end:

    # Where a fault in one of the routines above continues: it returns to the caller.
    ironwarp_mem_routine ironwarp_mem_leaf_faulted
    mov eax, 1
    mov edx, 1
    ret
    ironwarp_mem_end ironwarp_mem_leaf_faulted

    # Calls rcx with rdi, rsi and rdx. r8 and r9 are the first byte of the registered memory and its length. Returns eax: 1
    # after a fault. The frame: the length, the first byte, and the registers that the caller expects back.
    ironwarp_mem_routine ironwarp_mem_call
    push rbp
    .cfi_adjust_cfa_offset 8
    push rbx
    .cfi_adjust_cfa_offset 8
    push r12
    .cfi_adjust_cfa_offset 8
    push r13
    .cfi_adjust_cfa_offset 8
    push r14
    .cfi_adjust_cfa_offset 8
    push r15
    .cfi_adjust_cfa_offset 8
    push r8
    .cfi_adjust_cfa_offset 8
    push r9
    .cfi_adjust_cfa_offset 8
    mov rax, qword ptr [rip + ironwarp_mem_thread@GOTTPOFF]
    mov qword ptr fs:[rax], rsp
    sub rsp, 8
    .cfi_adjust_cfa_offset 8
    call rcx
    mov rax, qword ptr [rip + ironwarp_mem_thread@GOTTPOFF]
    mov qword ptr fs:[rax], 0
    add rsp, 72
    .cfi_adjust_cfa_offset -72
    xor eax, eax
    ret
    ironwarp_mem_end ironwarp_mem_call

    # Where a fault inside of the call continues, with the frame in rsp.
    ironwarp_mem_routine ironwarp_mem_call_faulted
    add rsp, 16
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    cld
    mov eax, 1
    ret
    ironwarp_mem_end ironwarp_mem_call_faulted

    # Returns the address of the words of the thread.
    ironwarp_mem_routine ironwarp_mem_thread_words
    mov rax, qword ptr [rip + ironwarp_mem_thread@GOTTPOFF]
    add rax, qword ptr fs:[0]
    ret
    ironwarp_mem_end ironwarp_mem_thread_words

    .purgem ironwarp_mem_routine
    .purgem ironwarp_mem_end
    .purgem ironwarp_mem_done
    .purgem ironwarp_mem_short
    .popsection
    "#
);

/// What the routines of words return.
#[repr(C)]
struct WordResult {
    value: u64,
    faulted: u64,
}

impl WordResult {
    #[inline(always)]
    fn value(self) -> Result<u64, Faulted> {
        if self.faulted as u32 == 0 { Ok(self.value) } else { Err(Faulted) }
    }
}

/// What a long access calls, as the C library's `memcpy` is declared. What it returns is not used.
type Routine = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

unsafe extern "C" {
    static ironwarp_mem_leaves: u8;
    static ironwarp_mem_leaves_end: u8;
    fn ironwarp_mem_copy(dst: *mut u8, src: *const u8, len: usize) -> u32;
    fn ironwarp_mem_place(dst: *mut u8, src: *const u8, len: usize) -> u32;
    fn ironwarp_mem_load_byte(at: *const u8) -> WordResult;
    fn ironwarp_mem_load_word(at: *const u8) -> WordResult;
    fn ironwarp_mem_store_word(at: *mut u8, value: u64) -> WordResult;
    fn ironwarp_mem_add_word(at: *mut u8, add: u64) -> WordResult;
    fn ironwarp_mem_swap_word(at: *mut u8, value: u64) -> WordResult;
    fn ironwarp_mem_exchange_word(at: *mut u8, expected: u64, value: u64) -> WordResult;
    fn ironwarp_mem_leaf_faulted();
    fn ironwarp_mem_call(
        dst: *mut u8,
        src: *const u8,
        len: usize,
        routine: Routine,
        registered: *const u8,
        bytes: usize,
    ) -> u32;
    fn ironwarp_mem_call_faulted();
    fn ironwarp_mem_thread_words() -> *mut ThreadWords;
}

#[inline(always)]
fn done(faulted: u32) -> Result<(), Faulted> {
    if faulted == 0 { Ok(()) } else { Err(Faulted) }
}

#[inline]
pub(super) unsafe fn copy_in(dst: *mut u8, src: &[u8]) -> Result<(), Faulted> {
    let Some(rest) = src.len().checked_sub(1) else { return Ok(()) };
    if rest <= SHORT_MAX {
        // SAFETY: the caller vouches for as many bytes at `dst`.
        return done(unsafe { ironwarp_mem_place(dst, src.as_ptr(), rest) });
    }
    // SAFETY: as above.
    unsafe { copy_in_long(dst, src.as_ptr(), rest) }
}

/// Places `rest` bytes and one more.
#[inline(never)]
unsafe fn copy_in_long(dst: *mut u8, src: *const u8, rest: usize) -> Result<(), Faulted> {
    // SAFETY: the caller vouches for the bytes on both sides.
    unsafe {
        done(ironwarp_mem_call(dst, src, rest, libc::memcpy, dst, rest))?;
        done(ironwarp_mem_place(dst.add(rest), src.add(rest), 0))
    }
}

#[inline]
pub(super) unsafe fn copy_out(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Faulted> {
    if len <= SHORT_MAX {
        // SAFETY: the caller vouches for the bytes on both sides.
        return done(unsafe { ironwarp_mem_copy(dst, src, len) });
    }
    // SAFETY: as above.
    done(unsafe { ironwarp_mem_call(dst, src, len, libc::memcpy, src, len) })
}

/// A copy that takes a CRC, for a call with the arguments of a copy.
struct OnePass {
    kernel: Kernel,
    crc: u32,
    dst: *mut u8,
    result: CrcAndSum,
}

#[inline]
pub(super) unsafe fn copy_in_one_pass(
    kernel: Kernel,
    crc: u32,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> Result<CrcAndSum, Faulted> {
    let mut pass = OnePass { kernel, crc, dst, result: CrcAndSum { crc: 0, sum: 0 } };
    // SAFETY: `run` gets the structure, which lives through the call; the caller vouches for the
    // bytes on both sides.
    let faulted = unsafe { ironwarp_mem_call((&raw mut pass).cast(), src, len, run_one_pass, src, len) };
    done(faulted).map(|()| pass.result)
}

/// A fault leaves this function without its return: it owns nothing that would have to be dropped.
unsafe extern "C" fn run_one_pass(pass: *mut c_void, src: *const c_void, len: usize) -> *mut c_void {
    // SAFETY: `copy_in_one_pass` passes the structure, and bytes that its caller vouches for.
    unsafe {
        let pass = &mut *pass.cast::<OnePass>();
        pass.result = pass.kernel.copy(pass.crc, src.cast(), pass.dst, len);
    }
    pass
}

pub(super) unsafe fn fill(dst: *mut u8, byte: u8, len: usize) -> Result<(), Faulted> {
    // SAFETY: the pointer to the byte lives through the call; the caller vouches for the bytes at
    // `dst`.
    done(unsafe { ironwarp_mem_call(dst, &raw const byte, len, fill_long, dst, len) })
}

/// As [`run_one_pass`], it may end in a fault.
unsafe extern "C" fn fill_long(dst: *mut c_void, byte: *const c_void, len: usize) -> *mut c_void {
    // SAFETY: `fill` passes a byte, and bytes that its caller vouches for.
    unsafe { libc::memset(dst, (*byte.cast::<u8>()).into(), len) }
}

#[inline]
pub(super) unsafe fn load_u8(src: *const u8) -> Result<u8, Faulted> {
    // SAFETY: the caller promises a valid byte.
    unsafe { ironwarp_mem_load_byte(src) }.value().map(|value| value as u8)
}

#[inline]
pub(super) unsafe fn load_u64(src: *const u8) -> Result<u64, Faulted> {
    // SAFETY: the caller promises a valid and aligned word.
    unsafe { ironwarp_mem_load_word(src) }.value()
}

#[inline]
pub(super) unsafe fn store_u64(dst: *mut u8, value: u64) -> Result<(), Faulted> {
    // SAFETY: the caller promises a valid and aligned word.
    unsafe { ironwarp_mem_store_word(dst, value) }.value().map(drop)
}

#[inline]
pub(super) unsafe fn locked_add_u64(at: *mut u8, add: u64) -> Result<u64, Faulted> {
    // SAFETY: the caller promises a valid and aligned word.
    unsafe { ironwarp_mem_add_word(at, add) }.value()
}

#[inline]
pub(super) unsafe fn locked_swap_u64(at: *mut u8, value: u64) -> Result<u64, Faulted> {
    // SAFETY: the caller promises a valid and aligned word.
    unsafe { ironwarp_mem_swap_word(at, value) }.value()
}

#[inline]
pub(super) unsafe fn locked_compare_exchange_u64(
    at: *mut u8,
    expected: u64,
    value: u64,
) -> Result<u64, Faulted> {
    // SAFETY: the caller promises a valid and aligned word.
    unsafe { ironwarp_mem_exchange_word(at, expected, value) }.value()
}

/// Words that every thread has, at a fixed address: a signal handler may use them.
#[repr(C)]
pub(crate) struct ThreadWords {
    /// The frame of the long access that is running; 0: none.
    frame: usize,
    /// For the signal handler: what it left at its last fault.
    pub(crate) mark: [usize; 3],
}

/// Returns the words of the calling thread that belong to the signal handler.
pub(crate) fn thread_mark() -> *mut [usize; 3] {
    // SAFETY: the words exist as long as the thread.
    unsafe { &raw mut (*ironwarp_mem_thread_words()).mark }
}

/// The registers of a thread that a fault interrupted.
pub(crate) struct Interrupted<'a> {
    pub(crate) instruction: &'a mut i64,
    pub(crate) stack: &'a mut i64,
    /// The address that could not be accessed.
    pub(crate) address: usize,
}

/// The system reports pages, or addresses in them.
const PAGE: usize = 4096;

/// Makes the thread continue behind the access of this module that faulted, with [`Faulted`].
/// Returns false if the fault is elsewhere. Called by a signal handler, on the thread of the fault.
pub(crate) fn abandon(at: &mut Interrupted<'_>) -> bool {
    let (first, end) = ((&raw const ironwarp_mem_leaves).addr(), (&raw const ironwarp_mem_leaves_end).addr());
    if (first..end).contains(&(*at.instruction as usize)) {
        *at.instruction = ironwarp_mem_leaf_faulted as *const () as i64;
        return true;
    }
    // SAFETY: the words exist as long as the thread, and nothing else of the thread runs.
    let words = unsafe { &mut *ironwarp_mem_thread_words() };
    if words.frame == 0 {
        return false;
    }
    // SAFETY: the frame is on this thread's stack until the access ends, and begins with these two.
    let [bytes, registered] = unsafe { *(words.frame as *const [usize; 2]) };
    let pages = registered & !(PAGE - 1)..registered.saturating_add(bytes).next_multiple_of(PAGE);
    if !pages.contains(&at.address) {
        return false;
    }
    *at.stack = words.frame as i64;
    *at.instruction = ironwarp_mem_call_faulted as *const () as i64;
    words.frame = 0;
    true
}
