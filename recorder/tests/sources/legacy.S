# A 32-bit program: exits with 0.
    .code32
    .globl _start
_start:
    movl $1, %eax
    xorl %ebx, %ebx
    int $0x80
    .section .note.GNU-stack,"",@progbits
