/* How a row of the table of system calls is exercised: see table_ways.c. The rows are in table.c.
 *
 * A row prepares one call: its arguments, the objects in memory that they point to, and the world
 * that it needs. It is prepared afresh for every way of placing an object, so that a call may
 * consume what it likes.
 */
#ifndef TORTURE_TABLE_H
#define TORTURE_TABLE_H

#include "torture.h"

enum { OBJECTS_MAX = 10, OBJECT_BYTES_MAX = 2 * PAGE, UNDOS_MAX = 12 };

/* Where objects are. All but ALL_ABSENT are about one of them; the others are unmanaged. */
enum way {
	REFERENCE,     /* in memory that is not managed, as are all others */
	NOWHERE,       /* where no memory is: shows whether the call touches it */
	ABSENT,	       /* not in RAM */
	CLEAN,	       /* in RAM, not stored to since it came from the store */
	ACROSS_ABSENT, /* over a page border, the second page not in RAM */
	ACROSS_CLEAN,  /* the same, the second page clean */
	ALL_ABSENT,
};

/* What may not be expected of an object. */
enum {
	VARIES = 1,  /* other bytes at every call: only whether any were written is compared */
	ALIGNED = 2, /* may not lie across a page border */
};

struct object {
	uint8_t *at;
	size_t bytes;
	unsigned flags;
};

struct call {
	/* For the row to set. */
	long args[6];
	bool result_varies; /* only success or failure is compared, and errno */
	bool gives_fd;	    /* the result is a descriptor to close */
	bool in_child;	    /* in a forked child, whose exit status is a result as well */
	/* The kernel does not wait here for a page that a pager's thread would bring: it says
	 * EFAULT, unless something makes the page resident first. */
	bool may_fault;
	int drained;	    /* what arrived here is compared as well; -1: nothing */
	long (*extra)(struct call *c); /* more to compare, found out after the call */

	/* For table_ways.c, and what `extra` is to see. */
	long result;
	enum way way;
	int chosen;
	struct object objects[OBJECTS_MAX];
	int object_count;
	struct {
		void (*undo)(long);
		long argument;
	} undos[UNDOS_MAX];
	int undo_count;
};

struct row {
	const char *name;
	long number;
	void (*prepare)(struct call *c);
	struct row *next;
};

/* All rows, in the order of table.c. */
extern struct row *all_rows;
void row_register(struct row *row);
/* Says, if it is to, that the call never came to its memory. */
void row_exercise(const struct row *row, bool say);
void ways_begin(void);
/* Says how often pages were out of RAM. */
void ways_end(void);
extern const char *const TABLE;

/* Gives the call an object; its address. */
long object_new(struct call *c, const void *content, size_t bytes, unsigned flags);
void call_undo(struct call *c, void (*undo)(long), long argument);
/* A descriptor that is closed after the call. */
int call_fd(struct call *c, int fd);

/* A row, and more calls of the same. */
#define MORE(call_name, variant)                                                        \
	static void prepare_##call_name##_##variant(struct call *c);                       \
	static struct row row_##call_name##_##variant = {#call_name, SYS_##call_name,      \
						      prepare_##call_name##_##variant, NULL}; \
	__attribute__((constructor)) static void register_##call_name##_##variant(void)    \
	{                                                                               \
		row_register(&row_##call_name##_##variant);                                \
	}                                                                               \
	static void prepare_##call_name##_##variant(struct call *c)
#define ROW(call_name) MORE(call_name, plain)

#define ARGS(...)                                           \
	do {                                                \
		long args_[6] = {__VA_ARGS__};              \
		memcpy(c->args, args_, sizeof c->args);     \
	} while (0)
#define TEXT(string) object_new(c, string, strlen(string) + 1, 0)
#define IN(pointer, bytes) object_new(c, pointer, bytes, 0)
#define OUT(bytes) object_new(c, NULL, bytes, 0)
#define OUT_VARIES(bytes) object_new(c, NULL, bytes, VARIES)
#define INOUT_VARIES(pointer, bytes) object_new(c, pointer, bytes, VARIES)

#endif
