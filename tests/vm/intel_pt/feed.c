// SPDX-License-Identifier: GPL-2.0
/* The feed: packets from tests, kept until their task leaves user code. */

#include "stand_in.h"

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <asm/msr.h>

/* A piece as written to the device: this header, the offsets of TSC payloads, the packets. */
struct piece_header {
	__u32 task;
	/* The number of bytes of packets. */
	__u32 length;
	/* The number of 32-bit offsets of 7-byte TSC payloads, which are set to the time of feeding. */
	__u32 times;
	__u32 reserved;
};

#define TSC_PAYLOAD 7
#define MAX_LENGTH (16u << 20)
#define MAX_TIMES (1u << 20)

struct piece {
	struct list_head entry;
	u32 length, times;
	u32 *offsets;
	u8 *bytes;
};

struct feed {
	struct list_head entry;
	pid_t task;
	/* The recording does not have code before the program's own instructions. */
	bool started;
	struct list_head pieces;
	unsigned long fed_pieces, fed_bytes, lost_bytes, left_pieces;
};

static LIST_HEAD(feeds);
static DEFINE_RAW_SPINLOCK(feeds_lock);

static struct feed *find_feed(pid_t task)
{
	struct feed *feed;

	list_for_each_entry(feed, &feeds, entry)
		if (feed->task == task)
			return feed;
	return NULL;
}

/* Feeds the task's next piece, or all that are left. Pieces are freed when the device is closed. */
void feed_current(bool all)
{
	struct feed *feed;
	unsigned long flags;

	/* Most tasks have no feed, and need no lock. */
	if (list_empty(&feeds))
		return;
	raw_spin_lock_irqsave(&feeds_lock, flags);
	feed = find_feed(current->pid);
	while (feed && feed->started && feed->left_pieces) {
		struct piece *piece = list_first_entry(&feed->pieces, struct piece, entry);
		unsigned long lost;
		u32 i;

		for (i = 0; i < piece->times; i++) {
			u64 now = cpu_to_le64(rdtsc_ordered());

			memcpy(piece->bytes + piece->offsets[i], &now, TSC_PAYLOAD);
		}
		lost = append(piece->bytes, piece->length);
		feed->fed_pieces++;
		feed->left_pieces--;
		feed->fed_bytes += piece->length - lost;
		feed->lost_bytes += lost;
		list_move_tail(&piece->entry, &feed->pieces);
		if (!all)
			break;
	}
	raw_spin_unlock_irqrestore(&feeds_lock, flags);
}

void feed_starts(pid_t task)
{
	struct feed *feed;
	unsigned long flags;

	raw_spin_lock_irqsave(&feeds_lock, flags);
	feed = find_feed(task);
	if (feed)
		feed->started = true;
	raw_spin_unlock_irqrestore(&feeds_lock, flags);
}

static void free_piece(struct piece *piece)
{
	kvfree(piece->offsets);
	kvfree(piece->bytes);
	kfree(piece);
}

static struct piece *read_piece(const struct piece_header *header, const char __user *from)
{
	struct piece *piece = kzalloc(sizeof(*piece), GFP_KERNEL);
	u32 i;

	if (!piece)
		return ERR_PTR(-ENOMEM);
	piece->length = header->length;
	piece->times = header->times;
	piece->offsets = kvcalloc(header->times + 1, sizeof(u32), GFP_KERNEL);
	piece->bytes = kvmalloc(header->length + 1, GFP_KERNEL);
	if (!piece->offsets || !piece->bytes) {
		free_piece(piece);
		return ERR_PTR(-ENOMEM);
	}
	if (copy_from_user(piece->offsets, from, header->times * sizeof(u32)) ||
	    copy_from_user(piece->bytes, from + header->times * sizeof(u32), header->length)) {
		free_piece(piece);
		return ERR_PTR(-EFAULT);
	}
	for (i = 0; i < piece->times; i++) {
		if (piece->length < TSC_PAYLOAD || piece->offsets[i] > piece->length - TSC_PAYLOAD) {
			free_piece(piece);
			return ERR_PTR(-EINVAL);
		}
	}
	return piece;
}

static ssize_t device_write(struct file *file, const char __user *from, size_t count, loff_t *offset)
{
	struct piece_header header;
	struct piece *piece;
	struct feed *feed, *fresh;
	unsigned long flags;

	if (count < sizeof(header))
		return -EINVAL;
	if (copy_from_user(&header, from, sizeof(header)))
		return -EFAULT;
	if (header.length > MAX_LENGTH || header.times > MAX_TIMES || header.reserved ||
	    count != sizeof(header) + header.times * sizeof(u32) + header.length)
		return -EINVAL;
	piece = read_piece(&header, from + sizeof(header));
	if (IS_ERR(piece))
		return PTR_ERR(piece);
	fresh = kzalloc(sizeof(*fresh), GFP_KERNEL);
	if (!fresh) {
		free_piece(piece);
		return -ENOMEM;
	}
	fresh->task = header.task;
	INIT_LIST_HEAD(&fresh->pieces);

	raw_spin_lock_irqsave(&feeds_lock, flags);
	feed = find_feed(header.task);
	if (!feed) {
		feed = fresh;
		fresh = NULL;
		list_add_tail(&feed->entry, &feeds);
	}
	/* Before pieces that were fed and wait to be freed: no piece can be added after that. */
	if (feed->fed_pieces) {
		raw_spin_unlock_irqrestore(&feeds_lock, flags);
		free_piece(piece);
		kfree(fresh);
		return -EBUSY;
	}
	list_add_tail(&piece->entry, &feed->pieces);
	feed->left_pieces++;
	raw_spin_unlock_irqrestore(&feeds_lock, flags);
	kfree(fresh);
	return count;
}

/* Reading returns a line for each task: what was fed, what was lost, what is left. */
static int device_show(struct seq_file *out, void *unused)
{
	struct feed *feed;
	unsigned long flags;

	raw_spin_lock_irqsave(&feeds_lock, flags);
	list_for_each_entry(feed, &feeds, entry)
		seq_printf(out, "task %d pieces %lu bytes %lu lost %lu left %lu\n", feed->task, feed->fed_pieces,
			   feed->fed_bytes, feed->lost_bytes, feed->left_pieces);
	raw_spin_unlock_irqrestore(&feeds_lock, flags);
	return 0;
}

static int device_open(struct inode *inode, struct file *file)
{
	return single_open(file, device_show, NULL);
}

/* Closing the device discards everything. */
static int device_release(struct inode *inode, struct file *file)
{
	struct feed *feed, *next_feed;
	struct piece *piece, *next_piece;
	unsigned long flags;
	LIST_HEAD(gone);

	raw_spin_lock_irqsave(&feeds_lock, flags);
	list_splice_init(&feeds, &gone);
	raw_spin_unlock_irqrestore(&feeds_lock, flags);
	list_for_each_entry_safe(feed, next_feed, &gone, entry) {
		list_for_each_entry_safe(piece, next_piece, &feed->pieces, entry)
			free_piece(piece);
		kfree(feed);
	}
	return single_release(inode, file);
}

static const struct file_operations device_operations = {
	.owner = THIS_MODULE,
	.open = device_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.write = device_write,
	.release = device_release,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "intel_pt_feed",
	.fops = &device_operations,
};

int register_feed(void)
{
	return misc_register(&device);
}

void unregister_feed(void)
{
	misc_deregister(&device);
}
