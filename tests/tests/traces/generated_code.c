/* Generates functions, runs them, and lists them in a perf map or a jitdump. Each function counts
   down its argument. Prints the share of the time that each function took, in thousandths. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* push rbp; mov rbp, rsp; mov rax, rdi; 1: dec rax; jne 1b; pop rbp; ret */
static const unsigned char CODE[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8,
                                     0x48, 0xff, 0xc8, 0x75, 0xfb, 0x5d, 0xc3};
enum { SLOT = 64, LOOP = 7 };
typedef long Function(long);

static unsigned char *slots;
static FILE *map, *dump;

static uint64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void record(uint32_t kind, const void *body, uint32_t size, const void *rest, uint32_t more) {
    uint32_t prefix[2] = {kind, 16 + size + more};
    uint64_t time = now(CLOCK_MONOTONIC);
    fwrite(prefix, 8, 1, dump);
    fwrite(&time, 8, 1, dump);
    fwrite(body, size, 1, dump);
    if (more)
        fwrite(rest, more, 1, dump);
}

static Function *generate(int slot, const char *name) {
    unsigned char *code = slots + slot * SLOT;
    memcpy(code, CODE, sizeof CODE);
    uint64_t start = (uintptr_t)code;
    if (map)
        fprintf(map, "%lx %x %s\n", start, SLOT, name);
    if (dump) {
        struct { uint64_t start, count; } lines = {start, 2};
        struct __attribute__((packed)) { uint64_t address; uint32_t line, discriminator; char file[9]; } at[2] = {
            {start, 10, 0, "source.x"}, {start + LOOP, 11, 0, "source.x"}};
        record(2, &lines, sizeof lines, at, sizeof at);
        struct { uint32_t pid, tid; uint64_t vma, start, size, index; } load = {
            getpid(), getpid(), start, start, sizeof CODE, slot};
        char rest[100];
        uint32_t length = strlen(name) + 1;
        memcpy(rest, name, length);
        memcpy(rest + length, CODE, sizeof CODE);
        record(0, &load, sizeof load, rest, length + sizeof CODE);
    }
    return (Function *)(uintptr_t)code;
}

static Function *move(Function *from, int slot) {
    unsigned char *code = slots + slot * SLOT;
    memcpy(code, CODE, sizeof CODE);
    struct { uint32_t pid, tid; uint64_t vma, old, new, size, index; } moved = {
        getpid(), getpid(), (uintptr_t)code, (uintptr_t)from, (uintptr_t)code, sizeof CODE, 1};
    record(1, &moved, sizeof moved, 0, 0);
    return (Function *)(uintptr_t)code;
}

static void open_dump(void) {
    char name[100];
    snprintf(name, sizeof name, "jit-%d.dump", getpid());
    int file = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
    struct { uint32_t magic, version, size, machine, pad, pid; uint64_t time, flags; } header = {
        0x4A695444, 1, 40, 62, 0, getpid(), now(CLOCK_MONOTONIC), 0};
    /* The mapping names the file to profilers. */
    if (file < 0 || mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED)
        exit(3);
    dump = fdopen(file, "w");
    fwrite(&header, sizeof header, 1, dump);
}

__attribute__((noinline)) static uint64_t run(Function *function, uint64_t nanos) {
    uint64_t start = now(CLOCK_PROCESS_CPUTIME_ID), time;
    do {
        function(100000);
        time = now(CLOCK_PROCESS_CPUTIME_ID) - start;
    } while (time < nanos);
    return time;
}

int main(int count, char **arguments) {
    const char *kind = count > 1 ? arguments[1] : "";
    char name[100];
    snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
    slots = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(kind, "dump"))
        open_dump();
    if (!strcmp(kind, "link")) {
        char other[100];
        snprintf(other, sizeof other, "list-%d", getpid());
        char *path = realpath(".", 0);
        char whole[5000];
        snprintf(whole, sizeof whole, "%s/%s", path, other);
        map = fopen(whole, "w");
        if (symlink(whole, name))
            return 4;
    } else if (kind[0] && !dump) {
        map = fopen(name, "w");
    }
    /* With the kind "late", the buffer is written at the end. */
    if (map && strcmp(kind, "late"))
        setvbuf(map, 0, _IOLBF, 4096);
    Function *alpha = generate(0, "alpha one"), *beta = generate(1, "beta");
    uint64_t times[4] = {run(alpha, 900000000), run(beta, 300000000)};
    if (dump) {
        Function *gamma = generate(0, "gamma");
        beta = move(beta, 2);
        times[1] += run(beta, 300000000);
        times[2] = run(gamma, 900000000);
    }
    if (dump)
        fclose(dump);
    if (map)
        fclose(map);
    printf("pid %d alpha %lu beta %lu gamma %lu\n", getpid(), times[0], times[1], times[2]);
    return 0;
}
