/*
 * A FUSE file system of one file whose pages never come (linux/fuse.h), and COUNT processes that map it, want it in their cores, and
 * crash. DEVICE is /dev/fuse, PLACE an empty directory. It serves for SECONDS, and says "ready" once the processes were started.
 * OPENS: how often opening the file is answered; as often as it is asked, unless given.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int device;
static int opens = 1 << 30;

static void answer(__u64 request, int error, const void *data, size_t size)
{
	char bytes[4096];
	struct fuse_out_header head = { .len = sizeof head + size, .error = error, .unique = request };
	memcpy(bytes, &head, sizeof head);
	if (size)
		memcpy(bytes + sizeof head, data, size);
	if (write(device, bytes, head.len) < 0)
		_exit(20);
}

static struct fuse_attr attributes(int is_root)
{
	struct fuse_attr attr = { .ino = is_root ? 1 : 2, .nlink = 1, .blksize = 4096 };
	attr.mode = is_root ? S_IFDIR | 0755 : S_IFREG | 0755;
	attr.size = is_root ? 0 : 1 << 20;
	return attr;
}

static void serve(const struct fuse_in_header *in)
{
	struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096 };
	struct fuse_entry_out entry = { .nodeid = 2, .attr_valid = 100, .entry_valid = 100, .attr = attributes(0) };
	struct fuse_attr_out attr = { .attr_valid = 100, .attr = attributes(in->nodeid == 1) };
	struct fuse_open_out opened = { .open_flags = FOPEN_KEEP_CACHE };
	switch (in->opcode) {
	case FUSE_INIT: return answer(in->unique, 0, &init, sizeof init);
	case FUSE_LOOKUP: return answer(in->unique, 0, &entry, sizeof entry);
	case FUSE_GETATTR: return answer(in->unique, 0, &attr, sizeof attr);
	case FUSE_OPEN:
		if (opens-- > 0)
			answer(in->unique, 0, &opened, sizeof opened);
		return;
	case FUSE_READ: case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: return;
	case FUSE_FLUSH: case FUSE_RELEASE: return answer(in->unique, 0, 0, 0);
	default: return answer(in->unique, -ENOSYS, 0, 0);
	}
}

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	if (file < 0 || write(file, text, strlen(text)) < 0)
		_exit(21);
	close(file);
}

static void crash(const char *place)
{
	char path[512];
	snprintf(path, sizeof path, "%s/file", place);
	close(device);
	sleep(1);
	put("/proc/self/coredump_filter", "0x7f");
	int file = open(path, O_RDONLY);
	if (file < 0 || mmap(0, 1 << 20, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED)
		_exit(22);
	*(volatile int *)0 = 1;
}

int main(int words, char **word)
{
	if (words < 5)
		return 2;
	uid_t user = getuid();
	gid_t group = getgid();
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return 77;
	char map[64], options[128];
	if (words > 5)
		opens = atoi(word[5]);
	put("/proc/self/setgroups", "deny");
	snprintf(map, sizeof map, "0 %d 1", user);
	put("/proc/self/uid_map", map);
	snprintf(map, sizeof map, "0 %d 1", group);
	put("/proc/self/gid_map", map);
	device = open(word[1], O_RDWR | O_CLOEXEC);
	if (device < 0)
		return 77;
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	if (mount("silent", word[2], "fuse", MS_NODEV | MS_NOSUID, options))
		return 77;
	for (int index = 0; index < atoi(word[4]); index++)
		if (!fork())
			crash(word[2]);
	puts("ready");
	fflush(stdout);
	static char bytes[1 << 20];
	for (time_t end = time(0) + atoi(word[3]); time(0) < end;) {
		struct pollfd ready = { device, POLLIN, 0 };
		if (poll(&ready, 1, 200) > 0 && read(device, bytes, sizeof bytes) > 0)
			serve((const struct fuse_in_header *)bytes);
	}
	return 0;
}
