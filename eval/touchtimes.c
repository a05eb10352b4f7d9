/* Touches pages of one large allocation at random, and prints how long those touches took that were no hits.
 *
 * usage: touchtimes DATA_MIB TOUCHES
 *
 * "bad N": touches that did not find what was written there (must be 0).
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PAGE_WORDS = 512, PAGES_PER_MIB = 256 };
/* A touch of a page in RAM takes less. */
static const uint64_t HIT_NS = 20000;

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t stamp(size_t page)
{
	return page * 0x9E3779B97F4A7C15ull + 1;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: touchtimes DATA_MIB TOUCHES\n");
		return 2;
	}
	size_t pages = strtoul(argv[1], NULL, 10) * PAGES_PER_MIB;
	size_t touches = strtoul(argv[2], NULL, 10), misses = 0, bad = 0;
	volatile uint64_t *data = malloc(pages * PAGE_WORDS * sizeof *data);
	uint64_t *times = malloc(touches * sizeof *times), random = 88172645463325252ull;
	if (!data || !times)
		return 1;
	for (size_t page = 0; page < pages; page++)
		data[page * PAGE_WORDS] = stamp(page);
	for (size_t touch = 0; touch < touches; touch++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		size_t page = random % pages;
		uint64_t begun = now();
		uint64_t word = data[page * PAGE_WORDS];
		uint64_t took = now() - begun;
		bad += word != stamp(page);
		if (took > HIT_NS)
			times[misses++] = took;
	}
	if (misses == 0)
		return 1;
	qsort(times, misses, sizeof *times, compare);
	printf("misses %zu, p50 %.0f us, p99 %.0f us, p99.9 %.0f us, max %.0f us, bad %zu\n", misses,
	       times[misses / 2] / 1e3, times[misses * 99 / 100] / 1e3, times[misses * 999 / 1000] / 1e3,
	       times[misses - 1] / 1e3, bad);
	return bad != 0;
}
