/* rewrite: threads verify and rewrite stamped pages, at random, in sequence and by strides, over
 * several times the budget. zero: pages alternate between zeros and contents; zero pages, which are
 * never written to flash, must not return old contents.
 */
#include "torture.h"

static uint8_t *data;
static size_t page_count;	/* of one thread */
static uint32_t *generation;	/* unmanaged: expected generation of each page; 0: never stamped */
static struct deadline until;

enum { ZEROED = UINT32_MAX };

static void setup(void)
{
	page_count = (opt.mib << 20) / PAGE / opt.threads;
	size_t all = page_count * opt.threads;
	data = managed(all * PAGE);
	generation = unmanaged_shared(all * sizeof *generation);
	until = deadline_new();
}

static void teardown(void)
{
	size_t all = page_count * opt.threads;
	munmap(data, all * PAGE);
	munmap(generation, all * sizeof *generation);
}

/* Verifies page `i`, then stamps its next generation. */
static void renew(const char *part, size_t i, bool write)
{
	uint8_t *page = data + i * PAGE;
	if (generation[i] == 0 || generation[i] == ZEROED) {
		zero_check(part, page, i);
	} else {
		page_check(part, page, i, generation[i]);
	}
	if (write) {
		uint32_t next = generation[i] == ZEROED ? 1 : generation[i] + 1;
		page_stamp(page, i, next);
		generation[i] = next;
	}
}

static void *rewrite_thread(void *index)
{
	const size_t base = (size_t)(intptr_t)index * page_count;
	struct rng r = rng_new(100 + (intptr_t)index);
	for (size_t i = 0; i < page_count; i++)
		renew("rewrite", base + i, true);
	while (!deadline_passed(&until)) {
		size_t steps = 1 + rng_below(&r, page_count);
		switch (rng_below(&r, 4)) {
		case 0: { /* random, half of them only read */
			for (size_t k = 0; k < steps && !deadline_passed(&until); k++)
				renew("rewrite", base + rng_below(&r, page_count), rng_one_in(&r, 2));
			break;
		}
		case 1: { /* a sequence, written */
			size_t at = rng_below(&r, page_count);
			for (size_t k = 0; k < steps; k++)
				renew("rewrite", base + (at + k) % page_count, true);
			break;
		}
		case 2: { /* a sequence backwards, read */
			size_t at = rng_below(&r, page_count);
			for (size_t k = 0; k < steps; k++)
				renew("rewrite", base + (at + page_count - k % page_count) % page_count,
				      false);
			break;
		}
		default: { /* a stride */
			size_t stride = 2 + rng_below(&r, 30), at = rng_below(&r, page_count);
			bool write = rng_one_in(&r, 2);
			for (size_t k = 0; k < steps / stride; k++)
				renew("rewrite", base + (at + k * stride) % page_count, write);
		}
		}
	}
	count_absent(data + base * PAGE, page_count * PAGE);
	for (size_t i = 0; i < page_count; i++)
		renew("rewrite", base + i, false);
	return NULL;
}

void part_rewrite(void)
{
	setup();
	run_threads("rewrite", opt.threads, rewrite_thread);
	/* Verify all pages from this thread too: contents must not depend on the reader. */
	for (size_t i = 0; i < page_count * opt.threads; i++)
		renew("rewrite", i, false);
	teardown();
}

static void *zero_thread(void *index)
{
	const size_t base = (size_t)(intptr_t)index * page_count;
	struct rng r = rng_new(200 + (intptr_t)index);
	while (!deadline_passed(&until)) {
		size_t at = rng_below(&r, page_count), run = 1 + rng_below(&r, 200);
		uint64_t way = rng_below(&r, 5);
		for (size_t k = 0; k < run; k++) {
			size_t i = base + (at + k) % page_count;
			uint8_t *page = data + i * PAGE;
			renew("zero", i, way == 0 || (way == 1 && rng_one_in(&r, 2)));
			if (way == 2) {
				memset(page, 0, PAGE);
				generation[i] = ZEROED;
			} else if (way == 3 && rng_one_in(&r, 8)) {
				/* Not a zero page: the last word differs. */
				memset(page, 0, PAGE);
				((volatile uint64_t *)page)[PAGE / 8 - 1] = i;
				if (rng_one_in(&r, 2))
					make_absent(page, PAGE);
				if (((volatile uint64_t *)page)[PAGE / 8 - 1] != i)
					fail("zero", page, "a last word of %zu; found %#llx", i,
					     ((unsigned long long *)page)[PAGE / 8 - 1]);
				((volatile uint64_t *)page)[PAGE / 8 - 1] = 0;
				generation[i] = ZEROED;
			}
		}
	}
	count_absent(data + base * PAGE, page_count * PAGE);
	for (size_t i = 0; i < page_count; i++)
		renew("zero", base + i, false);
	return NULL;
}

void part_zero(void)
{
	setup();
	run_threads("zero", opt.threads, zero_thread);
	teardown();
}
