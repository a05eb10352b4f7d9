/* Fills, then reads at random, in sequence and by a stride, over one block of heap.
 *
 * usage: pagebench DATA_MIB WRITE_PERCENT RANDOM_OPS
 *
 * Prints the speed of each part and "bad N": pages that did not hold what was written there (must
 * be 0). The paging itself is someone else's: kernel swap under a memory cgroup, or flashvm.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { PAGE = 4096, WORD_STEP = 64, STRIDE = 5 };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static uint64_t rng_state = 88172645463325252ull;

static uint64_t rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

static uint64_t stamp(size_t offset)
{
	return offset * 0x9E3779B97F4A7C15ull + 1;
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: pagebench DATA_MIB WRITE_PERCENT RANDOM_OPS\n");
		return 2;
	}
	size_t mib = strtoul(argv[1], NULL, 10);
	int write_percent = atoi(argv[2]);
	size_t ops = strtoul(argv[3], NULL, 10);
	size_t bytes = mib << 20;
	char *data = malloc(bytes);
	if (!data || !mib || !ops) {
		fprintf(stderr, "pagebench: cannot allocate %zu MiB or nothing to do\n", mib);
		return 2;
	}

	double start = now();
	for (size_t i = 0; i < bytes; i += PAGE) {
		*(uint64_t *)(data + i) = stamp(i);
		for (int k = 8; k < PAGE; k += WORD_STEP)
			*(uint64_t *)(data + i + k) = i + k;
	}
	double end = now();
	printf("fill %.2fs %.0f MB/s\n", end - start, mib / (end - start));

	uint64_t sum = 0;
	size_t bad = 0;
	start = now();
	for (size_t i = 0; i < ops; i++) {
		uint64_t x = rng();
		size_t offset = x % (bytes / PAGE) * PAGE;
		uint64_t *page = (uint64_t *)(data + offset);
		if (*page != stamp(offset))
			bad++;
		if ((int)((x >> 40) % 100) < write_percent)
			page[1] = x;
		sum += *page;
	}
	end = now();
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	printf("rand %.2fs %.0f ops/s %.2f us/op majflt %ld bad %zu\n", end - start,
	       ops / (end - start), (end - start) * 1e6 / ops, usage.ru_majflt, bad);

	start = now();
	for (size_t i = 0; i < bytes; i += PAGE)
		sum += *(uint64_t *)(data + i);
	end = now();
	printf("seqread %.2fs %.0f MB/s\n", end - start, mib / (end - start));

	start = now();
	for (size_t i = 0; i < bytes; i += PAGE * STRIDE)
		sum += *(uint64_t *)(data + i);
	end = now();
	printf("stride5 %.2fs %.0f pages/s\n", end - start, bytes / PAGE / STRIDE / (end - start));
	printf("sum %llu\n", (unsigned long long)sum);
	return bad != 0;
}
