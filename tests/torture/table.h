/* Rows of the table of system calls (table.c) and the way they are exercised (table_ways.c).
 *
 * A row prepares one call: its arguments, the objects that they point to, and its other
 * preconditions. Every placement of an object prepares it again, so that a call may consume them.
 */
#ifndef TORTURE_TABLE_H
#define TORTURE_TABLE_H

#include "torture.h"

enum { OBJECTS_MAX = 10, OBJECT_BYTES_MAX = 2 * PAGE, UNDOS_MAX = 12 };

/* Placements of one object, the others unmanaged; ALL_ABSENT is of all objects. */
enum way {
	REFERENCE,     /* in unmanaged memory */
	NOWHERE,       /* unmapped: shows whether the call touches it */
	ABSENT,	       /* not in RAM */
	CLEAN,	       /* in RAM, unchanged since it was read from the store */
	ACROSS_ABSENT, /* across a page border, the second page absent */
	ACROSS_CLEAN,  /* the same, the second page clean */
	ALL_ABSENT,
};

/* Limits of an object. */
enum {
	VARIES = 1,  /* bytes differ at every call: compare only whether any were written */
	ALIGNED = 2, /* may not lie across a page border */
};

struct object {
	uint8_t *at;
	size_t bytes;
	unsigned flags;
};

struct call {
	/* Set by the row. */
	long args[6];
	bool result_varies; /* compare only success and errno */
	bool gives_fd;	    /* the result is a descriptor to close */
	bool in_child;	    /* in a forked child; compare its exit status too */
	/* The kernel waits for no pager here: EFAULT unless the page is resident. */
	bool may_fault;
	int drained;	    /* compare the data that arrived here too; -1: none */
	long (*extra)(struct call *c); /* another result, computed after the call */

	/* Set by table_ways.c; `extra` may read it. */
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
/* With `say`, reports a call that never touches its memory. */
void row_exercise(const struct row *row, bool say);
void ways_begin(void);
/* Prints how many objects were absent at their call. */
void ways_end(void);
extern const char *const TABLE;

/* Adds an object to the call; returns its address. */
long object_new(struct call *c, const void *content, size_t bytes, unsigned flags);
void call_undo(struct call *c, void (*undo)(long), long argument);
/* Closes a descriptor after the call. */
int call_fd(struct call *c, int fd);

/* A row, and further calls of the same system call. */
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
