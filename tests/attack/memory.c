/* Crashes with mappings that are expensive to whoever reads them without thinking. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void fail(int status) { _exit(status); }

/* The page offset of the executable segment of an ELF file. */
static off_t code_offset(int file)
{
	Elf64_Ehdr header;
	if (pread(file, &header, sizeof header, 0) != sizeof header)
		fail(10);
	for (int index = 0; index < header.e_phnum; index++) {
		Elf64_Phdr segment;
		off_t at = header.e_phoff + index * sizeof segment;
		if (pread(file, &segment, sizeof segment, at) != sizeof segment)
			fail(11);
		if (segment.p_type == PT_LOAD && segment.p_flags & PF_X)
			return segment.p_offset & ~4095L;
	}
	fail(12);
	return 0;
}

/* Executable memory that nobody has touched. */
static void untouched_code(int count, size_t mebibytes)
{
	for (int index = 0; index < count; index++) {
		size_t size = mebibytes << 20;
		int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
		char *area = mmap(0, size + 4096, PROT_READ | PROT_EXEC, flags, -1, 0);
		if (area == MAP_FAILED || mprotect(area + size, 4096, PROT_NONE))
			fail(13);
	}
}

/* Many mappings of this program's code. */
static void many_mappings(int count)
{
	int file = open("/proc/self/exe", O_RDONLY);
	off_t offset = code_offset(file);
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	char *area = mmap(0, (size_t)count * 8192, PROT_NONE, flags, -1, 0);
	for (int index = 0; index < count; index++)
		if (mmap(area + (size_t)index * 8192, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, offset) == MAP_FAILED)
			break;
}

/* A file whose pages the core shall have. */
static void file_pages(const char *path, size_t mebibytes)
{
	int filter = open("/proc/self/coredump_filter", O_WRONLY);
	if (write(filter, "0x7f", 4) != 4)
		fail(14);
	int file = open(path, O_RDONLY);
	if (file < 0 || mmap(0, mebibytes << 20, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, file, 0) == MAP_FAILED)
		fail(15);
}

/* Another program's code. */
static void mapped_code(const char *path)
{
	int file = open(path, O_RDONLY);
	if (file < 0 || mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, code_offset(file)) == MAP_FAILED)
		fail(16);
}

int main(int count, char **words)
{
	const char *mode = count > 1 ? words[1] : "";
	if (!strcmp(mode, "code"))
		untouched_code(atoi(words[2]), atoi(words[3]));
	else if (!strcmp(mode, "mappings"))
		many_mappings(atoi(words[2]));
	else if (!strcmp(mode, "pages"))
		file_pages(words[2], atoi(words[3]));
	else if (!strcmp(mode, "elf"))
		mapped_code(words[2]);
	*(volatile int *)0 = 1;
}
