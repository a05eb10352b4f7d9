/* protect: threads make blocks of memory read-only, unreadable and writable again, and verify them at
 * random. The blocks must be paged like other memory, and a forbidden access must be SIGSEGV, whether
 * the page is in RAM or not.
 */
#include "torture.h"

#include <setjmp.h>
#include <signal.h>

static const char *const PART = "protect";
enum { BLOCK_PAGES = 64 };

static uint8_t *data;
static size_t block_count; /* of one thread */
static uint32_t *generation;
static uint8_t *protection;
static struct deadline until;
static __thread sigjmp_buf probe;
static __thread volatile sig_atomic_t probing;

static void on_segv(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	if (!probing)
		fail(PART, info->si_addr, "no SIGSEGV here");
	siglongjmp(probe, 1);
}

static void check_block(size_t block, bool whole, struct rng *r)
{
	for (size_t k = whole ? 0 : rng_below(r, BLOCK_PAGES); k < BLOCK_PAGES; k++) {
		size_t i = block * BLOCK_PAGES + k;
		page_check(PART, data + i * PAGE, i, generation[block]);
		if (!whole)
			break;
	}
}

static void stamp_block(size_t block)
{
	generation[block]++;
	for (size_t k = 0; k < BLOCK_PAGES; k++) {
		size_t i = block * BLOCK_PAGES + k;
		page_stamp(data + i * PAGE, i, generation[block]);
	}
}

static void set_protection(size_t block, int prot)
{
	MUST(PART, mprotect(data + block * BLOCK_PAGES * PAGE, BLOCK_PAGES * PAGE, prot) == 0);
	protection[block] = prot;
}

/* Touches a page in a way that its protection forbids. */
static void trespass(size_t block, struct rng *r)
{
	volatile uint8_t *at = data + (block * BLOCK_PAGES + rng_below(r, BLOCK_PAGES)) * PAGE;
	if (sigsetjmp(probe, 1) == 0) {
		probing = 1;
		if (protection[block] == PROT_NONE)
			(void)*at;
		else
			*at = 1;
		probing = 0;
		fail(PART, (const void *)at, "SIGSEGV, as the page has protection %d",
		     protection[block]);
	}
	probing = 0;
}

static void *protect_thread(void *index)
{
	const size_t first = (size_t)(intptr_t)index * block_count;
	struct rng r = rng_new(700 + (intptr_t)index);
	for (size_t b = first; b < first + block_count; b++) {
		stamp_block(b);
		set_protection(b, PROT_READ);
	}
	/* All read-only: several times the budget must stay readable. */
	for (int round = 0; round < 2; round++)
		for (size_t b = first; b < first + block_count; b++)
			check_block(b, true, &r);
	while (!deadline_passed(&until)) {
		size_t b = first + rng_below(&r, block_count);
		if (protection[b] != PROT_NONE)
			check_block(b, rng_one_in(&r, 8), &r);
		if (protection[b] != (PROT_READ | PROT_WRITE))
			trespass(b, &r);
		if (rng_one_in(&r, 4)) {
			static const int all[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE};
			set_protection(b, all[rng_below(&r, 3)]);
		}
		if (protection[b] == (PROT_READ | PROT_WRITE) && rng_one_in(&r, 2))
			stamp_block(b);
	}
	for (size_t b = first; b < first + block_count; b++) {
		set_protection(b, PROT_READ);
		check_block(b, true, &r);
	}
	return NULL;
}

void part_protect(void)
{
	block_count = (opt.mib << 20) / PAGE / BLOCK_PAGES / opt.threads;
	size_t blocks = block_count * opt.threads, bytes = blocks * BLOCK_PAGES * PAGE;
	data = managed(bytes);
	generation = unmanaged_shared(blocks * sizeof *generation);
	protection = unmanaged_shared(blocks);
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER}, before;
	action.sa_sigaction = on_segv;
	MUST(PART, sigaction(SIGSEGV, &action, &before) == 0);
	until = deadline_new();
	run_threads(PART, opt.threads, protect_thread);
	count_absent(data, bytes);
	MUST(PART, sigaction(SIGSEGV, &before, NULL) == 0);
	munmap(data, bytes);
	munmap(generation, blocks * sizeof *generation);
	munmap(protection, blocks);
}
