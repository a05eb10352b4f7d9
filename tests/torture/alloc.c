/* alloc: the malloc family with sizes up to 8 MiB, from several threads that free each other's
 * objects; contents, zeroing, alignment and usable size are checked. threads: short-lived threads
 * with deep stacks, some of them from malloc.
 */
#include "torture.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>

enum { SLOTS = 512 };

static struct block {
	pthread_mutex_t lock;
	uint8_t *at;
	size_t bytes;
	uint64_t tag;
} *blocks; /* unmanaged */
static _Atomic size_t live_bytes;
static struct deadline until;

static size_t random_size(struct rng *r)
{
	switch (rng_below(r, 8)) {
	case 0:
		return rng_below(r, 8 << 20);
	case 1:
	case 2:
		return rng_below(r, 256 << 10);
	case 3:
	case 4:
		return rng_below(r, 8 << 10);
	default:
		return rng_below(r, 512);
	}
}

static void check_zero(const uint8_t *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i])
			fail("alloc", at + i, "zero at byte %zu of %zu from calloc; found %#x", i,
			     bytes, at[i]);
}

static void check_aligned(const void *at, size_t alignment)
{
	if ((uintptr_t)at % alignment)
		fail("alloc", at, "an alignment of %zu", alignment);
}

static void fresh_block(struct block *b, struct rng *r)
{
	size_t bytes = random_size(r), alignment = (size_t)16 << rng_below(r, 12);
	void *at = NULL;
	switch (rng_below(r, 9)) {
	case 0:
		at = calloc(1, bytes);
		if (at)
			check_zero(at, bytes);
		break;
	case 1:
		at = calloc(bytes / 8 + 1, 8);
		if (at)
			check_zero(at, bytes);
		break;
	case 2:
		at = memalign(alignment, bytes);
		check_aligned(at, alignment);
		break;
	case 3:
		if (posix_memalign(&at, alignment, bytes))
			at = NULL;
		check_aligned(at, alignment);
		break;
	case 4:
		bytes = (bytes + alignment - 1) & -alignment;
		at = aligned_alloc(alignment, bytes);
		check_aligned(at, alignment);
		break;
	case 5:
		at = reallocarray(NULL, bytes / 16 + 1, 16);
		break;
	case 6:
		at = realloc(NULL, bytes + 1);
		break;
	default:
		at = malloc(bytes);
	}
	if (!at && bytes)
		fail("alloc", NULL, "%zu bytes; errno: %m", bytes);
	check_aligned(at, 16);
	if (malloc_usable_size(at) < bytes)
		fail("alloc", at, "a usable size of at least %zu; found %zu", bytes,
		     malloc_usable_size(at));
	b->at = at;
	b->bytes = bytes;
	b->tag = rng_next(r);
	bytes_fill(at, bytes, b->tag);
	live_bytes += bytes;
}

static void drop_block(struct block *b)
{
	bytes_check("alloc", b->at, b->bytes, b->tag);
	free(b->at);
	live_bytes -= b->bytes;
	b->at = NULL;
}

static void resize_block(struct block *b, struct rng *r)
{
	size_t bytes = random_size(r) + 1, kept = bytes < b->bytes ? bytes : b->bytes;
	uint8_t *at = rng_one_in(r, 2) ? realloc(b->at, bytes) : reallocarray(b->at, bytes, 1);
	if (!at)
		fail("alloc", b->at, "realloc to %zu; errno: %m", bytes);
	bytes_check("alloc", at, kept, b->tag);
	live_bytes += bytes - b->bytes;
	b->at = at;
	b->bytes = bytes;
	bytes_fill(at, bytes, b->tag);
}

static void *alloc_thread(void *index)
{
	struct rng r = rng_new(400 + (intptr_t)index);
	const size_t live_max = opt.mib << 20;
	while (!deadline_passed(&until)) {
		struct block *b = &blocks[rng_below(&r, SLOTS)];
		MUST("alloc", pthread_mutex_lock(&b->lock) == 0);
		if (!b->at) {
			if (live_bytes < live_max)
				fresh_block(b, &r);
		} else if (rng_one_in(&r, 3) && live_bytes < live_max) {
			resize_block(b, &r);
		} else if (rng_one_in(&r, 2) || live_bytes >= live_max) {
			drop_block(b);
		} else {
			if (rng_one_in(&r, 8) && b->bytes)
				make_absent(b->at, b->bytes);
			bytes_check("alloc", b->at, b->bytes, b->tag);
		}
		MUST("alloc", pthread_mutex_unlock(&b->lock) == 0);
	}
	return NULL;
}

/* Edge cases of the family. */
static void edges(void)
{
	free(NULL);
	void *zero = malloc(0);
	free(zero);
	volatile size_t huge = SIZE_MAX / 2;
	errno = 0;
	if (calloc(huge, 4) || errno != ENOMEM)
		fail("alloc", NULL, "ENOMEM of a calloc that overflows");
	errno = 0;
	void *p = malloc(64);
	if (reallocarray(p, huge, 4) || errno != ENOMEM)
		fail("alloc", NULL, "ENOMEM of a reallocarray that overflows");
	free(p);
	errno = 0;
	if (malloc(huge) || errno != ENOMEM)
		fail("alloc", NULL, "ENOMEM of a malloc of half the address space");
	void *at = (void *)1;
	if (posix_memalign(&at, 24, 64) != EINVAL)
		fail("alloc", NULL, "EINVAL of posix_memalign with 24");
	char *line = strdup("strdup");
	MUST("alloc", line && !strcmp(line, "strdup"));
	free(line);
}

void part_alloc(void)
{
	blocks = unmanaged_shared(SLOTS * sizeof *blocks);
	for (int i = 0; i < SLOTS; i++)
		MUST("alloc", pthread_mutex_init(&blocks[i].lock, NULL) == 0);
	live_bytes = 0;
	until = deadline_new();
	edges();
	run_threads("alloc", opt.threads, alloc_thread);
	for (int i = 0; i < SLOTS; i++)
		if (blocks[i].at)
			drop_block(&blocks[i]);
	munmap(blocks, SLOTS * sizeof *blocks);
}

/* ---- threads ---- */
enum { DEEP = 128 * 1024, FRAMES = 6 };

static __thread uint64_t thread_value[1024];

static uint64_t descend(uint64_t tag, int depth)
{
	uint8_t frame[DEEP];
	bytes_fill(frame, sizeof frame, tag + depth);
	uint64_t below = depth ? descend(tag, depth - 1) : 0;
	if (rng_one_in(&(struct rng){tag + depth}, 16))
		churn();
	bytes_check("threads", frame, sizeof frame, tag + depth);
	return below + frame[0];
}

static void *deep_thread(void *tag)
{
	for (int i = 0; i < 1024; i++)
		thread_value[i] = (uintptr_t)tag + i;
	descend((uintptr_t)tag, FRAMES - 1);
	for (int i = 0; i < 1024; i++)
		if (thread_value[i] != (uintptr_t)tag + i)
			fail("threads", &thread_value[i], "thread-local %llu; found %llu",
			     (unsigned long long)(uintptr_t)tag + i,
			     (unsigned long long)thread_value[i]);
	return (void *)((uintptr_t)tag ^ 1);
}

void part_threads(void)
{
	enum { STACK = 2 << 20, AT_ONCE = 8 };
	struct rng r = rng_new(2);
	until = deadline_new();
	do {
		pthread_t thread[AT_ONCE];
		void *stack[AT_ONCE];
		uint64_t tag[AT_ONCE];
		for (int i = 0; i < AT_ONCE; i++) {
			pthread_attr_t how;
			MUST("threads", pthread_attr_init(&how) == 0);
			stack[i] = i % 2 ? aligned_alloc(PAGE, STACK) : NULL;
			if (stack[i]) {
				memset(stack[i], 1, STACK);
				make_absent(stack[i], STACK);
				MUST("threads", pthread_attr_setstack(&how, stack[i], STACK) == 0);
			} else {
				MUST("threads", pthread_attr_setstacksize(&how, STACK) == 0);
			}
			tag[i] = rng_next(&r) >> 1;
			MUST("threads", pthread_create(&thread[i], &how, deep_thread, (void *)tag[i]) == 0);
			pthread_attr_destroy(&how);
		}
		if (rng_one_in(&r, 4))
			churn();
		for (int i = 0; i < AT_ONCE; i++) {
			void *result;
			MUST("threads", pthread_join(thread[i], &result) == 0);
			if ((uintptr_t)result != (tag[i] ^ 1))
				fail("threads", NULL, "result %#llx; found %p",
				     (unsigned long long)tag[i] ^ 1, result);
			free(stack[i]);
		}
	} while (!deadline_passed(&until));
}
