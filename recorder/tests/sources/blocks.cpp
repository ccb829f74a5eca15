// Allocates and frees blocks in every way, and writes a log of it to the file in its argument. Each
// line is a call with its block or size in hexadecimal, or a result.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <csetjmp>
#include <fcntl.h>
#include <malloc.h>
#include <new>
#include <unistd.h>

static char log_text[1 << 20];
static size_t log_len;

static void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    log_len += vsnprintf(log_text + log_len, sizeof log_text - log_len, format, arguments);
    va_end(arguments);
}

static void *given(void *block) {
    note("result %lx\n", (unsigned long)block);
    return block;
}

static void release(void *block) {
    note("free %lx\n", (unsigned long)block);
    free(block);
}

static void *resized(void *block, size_t size) {
    note("realloc %lx\nsize %lx\n", (unsigned long)block, size);
    return given(realloc(block, size));
}

struct alignas(64) Wide {
    char bytes[192];
};

// A function that is left while an allocator function runs.
static jmp_buf back;
static void *volatile sink;
static void no_memory() { longjmp(back, 1); }

static void throwing() {
    note("operator new %lx\n", (1ul << 59) - 1);
    try {
        sink = operator new(1ul << 62);
    } catch (const std::bad_alloc &) {
    }
    std::new_handler before = std::set_new_handler(no_memory);
    if (setjmp(back) == 0) {
        note("operator new %lx\n", (1ul << 59) - 1);
        sink = operator new(1ul << 62);
    }
    std::set_new_handler(before);
}

// Chains of sizes that stay in place, move, and are mapped alone.
static void chain(int number) {
    void *block = resized(nullptr, 24);
    for (int step = 0; step < 12; step++) {
        size_t size = 16ul << ((step * 7 + number) % 15);
        block = resized(block, size);
    }
    if (number % 3 == 0) {
        block = resized(block, 1 << 22);
        block = resized(block, 1 << 23);
    }
    release(block);
}

int main(int count, char **arguments) {
    for (int number = 0; number < 20; number++) {
        note("malloc %x\n", 100 + number);
        void *plain = given(malloc(100 + number));
        note("calloc %x\n", 40 * number);
        void *zeroed = given(calloc(number, 40));
        chain(number);
        release(plain);
        release(zeroed);
    }
    void *block;
    note("posix_memalign 1f4\n");
    if (posix_memalign(&block, 64, 500) == 0) given(block);
    release(block);
    note("posix_memalign 1f4\nresult 0\n");
    if (posix_memalign(&block, 3, 500) == 0) return 1;
    note("memalign 1000\n");
    release(given(aligned_alloc(256, 4096)));
    note("memalign 30\n");
    release(given(memalign(32, 48)));
    note("malloc %lx\nresult 0\n", (1ul << 59) - 1);
    void *volatile failed = malloc(1ul << 62);
    (void)failed;
    note("operator new 7\n");
    char *volatile bytes = (char *)given(operator new(7));
    note("operator delete %lx\n", (unsigned long)bytes);
    operator delete(bytes);
    note("operator new[] 3\n");
    bytes = (char *)given(operator new[](3));
    note("operator delete[] %lx\n", (unsigned long)bytes);
    operator delete[](bytes);
    throwing();
    note("operator new c0\n");
    Wide *volatile wide = (Wide *)given(operator new(sizeof(Wide), std::align_val_t(64)));
    note("operator delete %lx\n", (unsigned long)wide);
    operator delete(wide, sizeof(Wide), std::align_val_t(64));
    note("free 0\n");
    free(nullptr);
    int file = count > 1 ? open(arguments[1], O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    return write(file, log_text, log_len) == (ssize_t)log_len ? 0 : 1;
}
