# No C library at all: int3 with a SIGTRAP handler of its own, pushf and popf (the trap flag of a
# stepping tracer must not be seen), LOOP and JRCXZ, then exit with status 0.
        .intel_syntax noprefix
        .set    SYS_rt_sigaction, 13
        .set    SYS_rt_sigreturn, 15
        .set    SYS_exit_group, 231
        .set    SIGTRAP, 5
        .set    SA_RESTORER, 0x04000000
        .set    TRAP_FLAG, 0x100

        .text
        .globl  _start
        .type   _start, @function
_start:
        mov     eax, SYS_rt_sigaction
        mov     edi, SIGTRAP
        lea     rsi, [rip + action]
        xor     edx, edx
        mov     r10d, 8
        syscall
        test    rax, rax
        jnz     fail
        int3
        cmp     dword ptr [rip + traps], 1
        jne     fail

        pushf
        pop     rbx
        test    ebx, TRAP_FLAG
        jnz     fail
        push    rbx
        popf

        mov     ecx, 5
again:  call    count
        loop    again
        jrcxz   done
fail:   mov     edi, 1
        jmp     leave
done:   cmp     dword ptr [rip + counted], 5
        jne     fail
        xor     edi, edi
leave:  mov     eax, SYS_exit_group
        syscall
        .size   _start, . - _start

        .type   count, @function
count:  inc     dword ptr [rip + counted]
        ret
        .size   count, . - count

        .type   on_trap, @function
on_trap:
        inc     dword ptr [rip + traps]
        ret
        .size   on_trap, . - on_trap

        .type   restore, @function
restore:
        mov     eax, SYS_rt_sigreturn
        syscall
        .size   restore, . - restore

        .data
        .balign 8
action: .quad   on_trap
        .quad   SA_RESTORER
        .quad   restore
        .quad   0
traps:  .long   0
counted: .long  0

        .section .note.GNU-stack, "", @progbits
