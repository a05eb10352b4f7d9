/* Placements of a call's objects, and the comparison: result, errno and bytes must equal those of the
 * same call on unmanaged memory.
 *
 * Without a pager, pages stay in RAM and the comparison tests the rows themselves.
 */
#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

const char *const TABLE = "table";
struct row *all_rows;

static struct row **last_row = &all_rows;

void row_register(struct row *row)
{
	*last_row = row;
	last_row = &row->next;
}

/* An object's pages: the largest fits on either side of a border, with a page in between. */
enum { SLOT = 6 * PAGE, BORDER = 3 * PAGE, UNTOUCHED = 0xa5 };

static uint8_t *managed_slots, *other_slots, *nowhere;

struct outcome {
	long result;
	int error;
	long extra;
	int status; /* of the child */
	int count;
	bool written[OBJECTS_MAX];
	uint8_t bytes[OBJECTS_MAX][OBJECT_BYTES_MAX];
};
static struct outcome expected, found;

/* A child's report, in shared memory. */
static struct report {
	long result;
	int error;
} *report;

void ways_begin(void)
{
	if (managed_slots)
		return;
	managed_slots = managed(OBJECTS_MAX * SLOT);
	other_slots = unmanaged_shared(OBJECTS_MAX * SLOT);
	nowhere = unmanaged_shared(SLOT);
	report = unmanaged_shared(PAGE);
	MUST(TABLE, mprotect(nowhere, SLOT, PROT_NONE) == 0);
}

static bool chosen(const struct call *c, int object)
{
	return c->way == ALL_ABSENT || (c->way != REFERENCE && c->chosen == object);
}

static bool across(const struct call *c)
{
	return c->way == ACROSS_ABSENT || c->way == ACROSS_CLEAN;
}

/* Bytes of an object before the border. */
static size_t before_border(size_t bytes)
{
	return bytes >= 16 ? bytes / 2 / 8 * 8 : bytes / 2;
}

long object_new(struct call *c, const void *content, size_t bytes, unsigned flags)
{
	MUST(TABLE, c->object_count < OBJECTS_MAX && bytes > 0 && bytes <= OBJECT_BYTES_MAX);
	int k = c->object_count++;
	struct object *o = &c->objects[k];
	*o = (struct object){.bytes = bytes, .flags = flags};
	if (!chosen(c, k))
		o->at = other_slots + k * SLOT + 64;
	else if (c->way == NOWHERE)
		return (long)(o->at = nowhere + 64);
	else if (across(c))
		o->at = managed_slots + k * SLOT + BORDER - before_border(bytes);
	else
		o->at = managed_slots + k * SLOT + 64;
	if (content)
		memcpy(o->at, content, bytes);
	else
		memset(o->at, UNTOUCHED, bytes);
	return (long)o->at;
}

void call_undo(struct call *c, void (*undo)(long), long argument)
{
	MUST(TABLE, c->undo_count < UNDOS_MAX);
	c->undos[c->undo_count].undo = undo;
	c->undos[c->undo_count++].argument = argument;
}

static void close_fd(long fd)
{
	close((int)fd);
}

int call_fd(struct call *c, int fd)
{
	if (fd < 0)
		fail(TABLE, NULL, "a descriptor for a call: %m");
	call_undo(c, close_fd, fd);
	return fd;
}

static struct {
	unsigned long wanted, were;
} absent;

static bool in_ram(const uint8_t *page)
{
	unsigned char state = 1;
	return mincore((void *)page, PAGE, &state) != 0 || state & 1;
}

/* Evicts pages; waits a while until `page` is absent. */
static void page_out(uint8_t *pages, size_t bytes, const uint8_t *page)
{
	/* Without a pager `page` is never absent: give up early. */
	int tries = absent.were || absent.wanted < 3 ? 50 : 1;
	do {
		madvise(pages, bytes, MADV_PAGEOUT);
	} while (in_ram(page) && --tries > 0 && usleep(100) == 0);
	count_absent(pages, bytes);
}

/* Evicts the chosen objects, then reads back the pages that should be resident. */
static void put_in_place(const struct call *c)
{
	if (c->way == REFERENCE || c->way == NOWHERE)
		return;
	for (int k = 0; k < c->object_count; k++) {
		if (!chosen(c, k))
			continue;
		const struct object *o = &c->objects[k];
		uint8_t *slot = managed_slots + k * SLOT;
		uint8_t *last = slot + (o->at + o->bytes - 1 - slot) / PAGE * PAGE;
		page_out(slot, SLOT, last);
		if (across(c)) {
			volatile uint8_t *first = o->at;
			*first = *first;
			page_out(slot + BORDER, SLOT - BORDER, last);
		}
		if (c->way == CLEAN || c->way == ACROSS_CLEAN) {
			volatile uint8_t *byte = slot + (c->way == CLEAN ? 0 : BORDER);
			for (; byte < slot + SLOT; byte += PAGE)
				(void)*byte;
			continue;
		}
		absent.wanted++;
		absent.were += !in_ram(last);
	}
}

void ways_end(void)
{
	printf("table: %lu of %lu objects were out of RAM at their call\n", absent.were,
	       absent.wanted);
}

static void make_call(const struct row *row, const struct call *c, struct outcome *out)
{
	const long *a = c->args;
	if (!c->in_child) {
		errno = 0;
		out->result = syscall(row->number, a[0], a[1], a[2], a[3], a[4], a[5]);
		out->error = out->result == -1 ? errno : 0;
		return;
	}
	*report = (struct report){.result = -2};
	pid_t child = fork();
	MUST(TABLE, child >= 0);
	if (child == 0) {
		errno = 0;
		long result = syscall(row->number, a[0], a[1], a[2], a[3], a[4], a[5]);
		int error = result == -1 ? errno : 0;
		*report = (struct report){result, error};
		_exit(0);
	}
	while (waitpid(child, &out->status, 0) < 0)
		MUST(TABLE, errno == EINTR);
	out->result = report->result;
	out->error = report->error;
}

/* Checksum of the data that arrived in a file or at the other end of a pipe or socket. */
static long drain(int fd)
{
	static uint8_t buffer[4 * OBJECT_BYTES_MAX];
	struct stat s;
	unsigned long sum = 5381;
	MUST(TABLE, fstat(fd, &s) == 0);
	bool file = S_ISREG(s.st_mode);
	if (!file)
		MUST(TABLE, fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	ssize_t n;
	off_t at = 0;
	while ((n = file ? pread(fd, buffer, sizeof buffer, at)
			 : read(fd, buffer, sizeof buffer)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			sum = sum * 33 + buffer[i];
		at += n;
	}
	return (long)(sum + (unsigned long)at);
}

/* The bytes of an object, with addresses of objects, which vary, replaced by their numbers. */
static void take_bytes(const struct call *c, int k, uint8_t *bytes)
{
	const struct object *o = &c->objects[k];
	memcpy(bytes, o->at, o->bytes);
	for (size_t i = 0; i + 8 <= o->bytes; i += 8) {
		uint64_t word;
		memcpy(&word, bytes + i, 8);
		for (int j = 0; j < c->object_count; j++)
			if (word == (uint64_t)c->objects[j].at) {
				word = 0xab5e9700 + j;
				memcpy(bytes + i, &word, 8);
				break;
			}
	}
}

static struct call perform(const struct row *row, enum way way, int object, struct outcome *out)
{
	struct call c = {.way = way, .chosen = object, .drained = -1};
	*out = (struct outcome){0};
	row->prepare(&c);
	static uint8_t before[OBJECT_BYTES_MAX];
	put_in_place(&c);
	make_call(row, &c, out);
	c.result = out->result;
	if (c.drained >= 0)
		out->extra = drain(c.drained);
	if (c.extra)
		out->extra = c.extra(&c);
	out->count = c.object_count;
	for (int k = 0; k < c.object_count; k++) {
		if (way == NOWHERE && chosen(&c, k))
			continue;
		take_bytes(&c, k, out->bytes[k]);
		memset(before, UNTOUCHED, c.objects[k].bytes);
		out->written[k] = memcmp(before, out->bytes[k], c.objects[k].bytes) != 0;
	}
	while (c.undo_count > 0) {
		c.undo_count--;
		c.undos[c.undo_count].undo(c.undos[c.undo_count].argument);
	}
	if (c.gives_fd && out->result >= 0 && !c.in_child)
		close((int)out->result);
	return c;
}

static const char *way_name(enum way way)
{
	static const char *const names[] = {
		"unmanaged",   "nowhere", "absent", "clean", "across a border and absent",
		"across a border and clean", "absent, as all are",
	};
	return names[way];
}

static void compare(const struct row *row, const struct call *c, bool say)
{
	const char *where = way_name(c->way);
	if (c->may_fault && found.error == EFAULT) {
		if (say)
			printf("table: EFAULT: %s, object %d %s\n", row->name, c->chosen, where);
		return;
	}
	bool varies = (c->result_varies || c->gives_fd) && expected.result >= 0;
	if (found.error != expected.error || (found.result < 0) != (expected.result < 0) ||
	    (!varies && found.result != expected.result))
		fail(TABLE, c->objects[c->chosen].at,
		     "of %s, object %d %s: %ld, errno %d; found %ld, errno %d", row->name, c->chosen,
		     where, expected.result, expected.error, found.result, found.error);
	if (found.extra != expected.extra || found.status != expected.status)
		fail(TABLE, c->objects[c->chosen].at,
		     "of %s, object %d %s: what arrived %#lx, status %#x; found %#lx, status %#x",
		     row->name, c->chosen, where, expected.extra, expected.status, found.extra,
		     found.status);
	for (int k = 0; k < c->object_count; k++) {
		const struct object *o = &c->objects[k];
		if (o->flags & VARIES) {
			if (found.written[k] != expected.written[k])
				fail(TABLE, o->at, "object %d of %s, object %d %s: %swritten", k,
				     row->name, c->chosen, where,
				     expected.written[k] ? "" : "not ");
			continue;
		}
		for (size_t i = 0; i < o->bytes; i++)
			if (found.bytes[k][i] != expected.bytes[k][i])
				fail(TABLE, o->at + i,
				     "byte %zu of %zu of object %d of %s, object %d %s: %#x; "
				     "found %#x (result %ld)",
				     i, o->bytes, k, row->name, c->chosen, where,
				     expected.bytes[k][i], found.bytes[k][i], found.result);
	}
}

void row_exercise(const struct row *row, bool say)
{
	struct call reference = perform(row, REFERENCE, 0, &expected);
	int objects = reference.object_count;
	if (expected.error == EFAULT)
		fail(TABLE, NULL, "%s to find memory that is there; found EFAULT", row->name);
	/* Many calls fail before they touch memory: as an ordinary user, or without a feature. */
	bool touches = false;
	for (int k = 0; k < objects && expected.error != ENOSYS; k++) {
		perform(row, NOWHERE, k, &found);
		/* modify_ldt gives its errors in 32 bits. */
		touches |= found.error == EFAULT || found.result == (uint32_t)-EFAULT;
	}
	if (!touches && say)
		printf("table: not exercised: %s (%s)\n", row->name,
		       expected.error ? strerror(expected.error) : "touches nothing");
	for (int k = 0; k < objects; k++) {
		for (enum way way = ABSENT; way <= ACROSS_CLEAN; way++) {
			const struct object *o = &reference.objects[k];
			if (way >= ACROSS_ABSENT && (o->bytes < 2 || o->flags & ALIGNED))
				continue;
			struct call c = perform(row, way, k, &found);
			compare(row, &c, say);
		}
	}
	struct call c = perform(row, ALL_ABSENT, 0, &found);
	compare(row, &c, say);
}
