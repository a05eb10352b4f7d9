/* Fills one large allocation, then touches it at random, in sequence and with a stride.
 *
 * usage: pagebench DATA_MIB WRITE_PERCENT RANDOM_OPS
 *
 * One thread makes the random accesses, then four threads together make as many again.
 *
 * Prints the speed of each part and "bad N": random accesses that did not find what was written
 * there (must be 0). The pager is kernel swap under a memory cgroup, or flashvm.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { PAGE = 4096, WORD_STEP = 64, STRIDE = 5, THREADS = 4 };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static uint64_t rng(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static uint64_t stamp(size_t offset)
{
	return offset * 0x9E3779B97F4A7C15ull + 1;
}

/* The allocation that all parts work on. */
static char *data;
static size_t bytes;
static int write_percent;

/* One thread's share of the random accesses. */
struct share {
	pthread_t thread;
	uint64_t seed;
	size_t ops, bad;
	uint64_t sum;
};

static void *random_accesses(void *arg)
{
	struct share *share = arg;
	uint64_t state = share->seed;
	for (size_t i = 0; i < share->ops; i++) {
		uint64_t x = rng(&state);
		size_t offset = x % (bytes / PAGE) * PAGE;
		/* Threads may meet on a page. */
		_Atomic uint64_t *page = (_Atomic uint64_t *)(data + offset);
		if (page[0] != stamp(offset))
			share->bad++;
		if ((int)((x >> 40) % 100) < write_percent)
			page[1] = x;
		share->sum += page[0];
	}
	return NULL;
}

/* Makes `ops` accesses in `count` threads and prints their speed; returns how many found wrong data. */
static size_t random_part(const char *name, int count, size_t ops)
{
	struct share shares[THREADS] = {0};
	size_t bad = 0;
	double start = now();
	for (int i = 0; i < count; i++) {
		shares[i].seed = 88172645463325252ull * (i + 1);
		shares[i].ops = ops / count;
		if (pthread_create(&shares[i].thread, NULL, random_accesses, &shares[i])) {
			fprintf(stderr, "pagebench: cannot create a thread\n");
			exit(2);
		}
	}
	for (int i = 0; i < count; i++) {
		pthread_join(shares[i].thread, NULL);
		bad += shares[i].bad;
	}
	double end = now();
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	printf("%s %.2fs %.0f ops/s %.2f us/op majflt %ld bad %zu\n", name, end - start,
	       ops / (end - start), (end - start) * 1e6 / ops, usage.ru_majflt, bad);
	return bad;
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: pagebench DATA_MIB WRITE_PERCENT RANDOM_OPS\n");
		return 2;
	}
	size_t mib = strtoul(argv[1], NULL, 10);
	write_percent = atoi(argv[2]);
	size_t ops = strtoul(argv[3], NULL, 10);
	bytes = mib << 20;
	data = malloc(bytes);
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
	size_t bad = random_part("rand", 1, ops);
	bad += random_part("rand4", THREADS, ops);

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
