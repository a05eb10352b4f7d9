/* What every part of the torture program shares: options, a seeded generator, self-describing
 * pages, memory that a pager does not manage, ways to push pages out of RAM, and failing loudly.
 *
 * Words: a *part* is one test, chosen with --only. A page is stamped with a number, a generation
 * and a checksum over all of it; a stale page is well-formed, so the generation that it must have
 * is kept in memory that is not managed (a shared mapping of an unlinked file).
 */
#ifndef TORTURE_H
#define TORTURE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { PAGE = 4096 };

struct options {
	size_t mib;	 /* managed data of a part */
	double seconds;	 /* bound on the time of a part */
	int threads;
	uint64_t seed;
	const char *self; /* path of this program */
};
extern struct options opt;

/* ---- generator ---- */
struct rng {
	uint64_t state;
};
struct rng rng_new(uint64_t stream);
uint64_t rng_next(struct rng *r);
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
	return rng_next(r) % n;
}
static inline bool rng_one_in(struct rng *r, uint64_t n)
{
	return rng_below(r, n) == 0;
}

/* ---- stamped pages ---- */
void page_stamp(void *page, uint64_t number, uint64_t generation);
/* Ends the program unless the page is that of `number` and `generation`. */
void page_check(const char *part, const void *page, uint64_t number, uint64_t generation);
bool page_is_zero(const void *page);
/* Ends the program unless a page is zeros; says what was found instead. */
void zero_check(const char *part, const void *page, uint64_t number);
/* Bytes that depend on tag and offset alone. */
void bytes_fill(void *at, size_t bytes, uint64_t tag);
void bytes_check(const char *part, const void *at, size_t bytes, uint64_t tag);

/* ---- memory ---- */
void *managed(size_t bytes);		/* anonymous, page-aligned */
void *unmanaged_shared(size_t bytes);	/* of an unlinked file; a fork shares it */
/* Pushes pages out of RAM: asks for it, and every few calls also touches far more than a budget. */
void make_absent(void *at, size_t bytes);
/* make_absent, by touching other memory only. */
void churn(void);
/* Counts the pages of a range that are not in RAM into a total that the program prints. */
void count_absent(const void *at, size_t bytes);
extern uint64_t *absent_pages; /* shared with forked children */

/* ---- time ---- */
double now_seconds(void);
struct deadline {
	double at;
};
struct deadline deadline_new(void);
bool deadline_passed(const struct deadline *d);

/* ---- failing ---- */
_Noreturn void fail(const char *part, const void *at, const char *expected_format, ...)
	__attribute__((format(printf, 3, 4)));
/* For what must work on any Linux: prints errno. */
#define MUST(part, condition)                                                     \
	do {                                                                      \
		if (!(condition))                                                 \
			fail(part, NULL, "%s at %s:%d: %s (errno: %m)", "expected", \
			     __FILE__, __LINE__, #condition);                     \
	} while (0)
/* Waits for a child and demands this very status of it (as waitpid gives it). */
void expect_status(const char *part, pid_t child, int expected);
/* Starts `thread_count` threads of `body(index)` and joins them. */
void run_threads(const char *part, int thread_count, void *(*body)(void *));
/* Starts this program with --child NAME through posix_spawn. */
pid_t spawn_self(const char *part, const char *child_name);

/* ---- parts ---- */
void part_rewrite(void);
void part_protect(void);
void part_guard(void);
void part_zero(void);
void part_fork(void);
void part_forking(void);
void part_syscalls(void);
void part_remap(void);
void part_signals(void);
void part_alloc(void);
void part_threads(void);
void part_exit(void);
void part_table(void);

/* What `--child NAME` does; returns the exit status. */
int child_main(const char *name);
int exit_child(const char *name);
int fork_child(const char *name);

#endif
