/* Shared by all parts of the torture program: options, a seeded generator, self-describing pages,
 * unmanaged memory, eviction of pages, and failure reports.
 *
 * Words: a *part* is one test, chosen with --only. A stamped page holds its number, a
 * generation and a checksum over the page; a stale page is well-formed, so the expected generation is
 * kept in unmanaged memory (a shared mapping of an unlinked file).
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
/* Fails unless the page has this `number` and `generation`. */
void page_check(const char *part, const void *page, uint64_t number, uint64_t generation);
bool page_is_zero(const void *page);
/* Fails unless the page is zeros, with the words found. */
void zero_check(const char *part, const void *page, uint64_t number);
/* Bytes that depend only on tag and offset. */
void bytes_fill(void *at, size_t bytes, uint64_t tag);
void bytes_check(const char *part, const void *at, size_t bytes, uint64_t tag);

/* ---- memory ---- */
void *managed(size_t bytes);		/* anonymous, page-aligned */
void *unmanaged_shared(size_t bytes);	/* of an unlinked file; a fork shares it */
/* Evicts pages: by madvise, and every few calls also by touching far more than a budget. */
void make_absent(void *at, size_t bytes);
/* Touches far more than a budget, so that other pages leave RAM. */
void churn(void);
/* Adds the absent pages of a range to a total that the program prints. */
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
/* Asserts a condition that holds on any Linux; prints errno. */
#define MUST(part, condition)                                                     \
	do {                                                                      \
		if (!(condition))                                                 \
			fail(part, NULL, "%s at %s:%d: %s (errno: %m)", "expected", \
			     __FILE__, __LINE__, #condition);                     \
	} while (0)
/* Waits for a child; fails unless waitpid gives this status. */
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

/* Runs `--child NAME`; returns the exit status. */
int child_main(const char *name);
int exit_child(const char *name);
int fork_child(const char *name);

#endif
