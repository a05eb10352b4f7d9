/* Four patterns of malloc and free, in RAM: threadtest, larson and xmalloc-test as in the public benchmarks of
 * allocators, and pairs:
 *
 *   cc -O2 -pthread -o allocators eval/allocators.c
 *   ./allocators; LD_PRELOAD=libmimalloc.so ./allocators; flashvm run --granularity 512 -- ./allocators
 *
 * Each line: pattern, block sizes in bytes, CPU time of a malloc and a free together.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 2, BATCH = 1000, TABLE = 20000, RING = 4096 };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static size_t size_of(uint64_t *r, size_t most)
{
	*r = *r * 6364136223846793005u + 1442695040888963407u;
	return 1 + (*r >> 33) % most;
}

static size_t most;
static _Atomic(char *) ring[RING];

/* Allocates a batch, then frees it in the same order. */
static double threadtest(int index)
{
	uint64_t r = index + 1;
	static __thread char *blocks[BATCH];
	double start = now();
	for (int round = 0; round < 2000; round++) {
		for (int i = 0; i < BATCH; i++)
			*(blocks[i] = malloc(size_of(&r, most))) = 1;
		for (int i = 0; i < BATCH; i++)
			free(blocks[i]);
	}
	return (now() - start) / 2000 / BATCH;
}

/* Replaces random entries of a table. */
static double larson(int index)
{
	uint64_t r = index + 77;
	char **table = calloc(TABLE, sizeof *table);
	double start = 0;
	for (int i = -TABLE; i < 2000000; i++) {
		if (i == 0)
			start = now();
		size_t at = size_of(&r, TABLE) - 1;
		free(table[at]);
		*(table[at] = malloc(size_of(&r, most))) = 1;
	}
	double took = (now() - start) / 2000000;
	for (int i = 0; i < TABLE; i++)
		free(table[i]);
	free(table);
	return took;
}

/* One thread allocates, the other frees. */
static double xmalloc(int index)
{
	uint64_t r = 5;
	double start = now();
	for (int i = 0; i < 1000000; i++) {
		if (index == 0) {
			char *block = malloc(size_of(&r, most));
			*block = 1;
			while (atomic_load(&ring[i % RING]))
				sched_yield();
			atomic_store(&ring[i % RING], block);
		} else {
			char *block;
			while (!(block = atomic_exchange(&ring[i % RING], NULL)))
				sched_yield();
			free(block);
		}
	}
	return (now() - start) / 1000000;
}

/* Allocates and frees one block at a time. */
static double pairs(int index)
{
	uint64_t r = index;
	double start = now();
	for (int i = 0; i < 5000000; i++) {
		volatile char *block = malloc(size_of(&r, most));
		*block = 1;
		free((void *)block);
	}
	return (now() - start) / 5000000;
}

static double (*pattern)(int);
static double took[THREADS];

static void *body(void *index)
{
	took[(intptr_t)index] = pattern((intptr_t)index);
	return NULL;
}

int main(void)
{
	static const struct {
		const char *name;
		double (*run)(int);
	} patterns[] = {{"pairs", pairs}, {"threadtest", threadtest}, {"larson", larson}, {"xmalloc", xmalloc}};
	static const size_t sizes[] = {64, 512, 4096};
	for (int p = 0; p < 4; p++)
		for (int s = 0; s < 3; s++) {
			pattern = patterns[p].run, most = sizes[s];
			pthread_t threads[THREADS];
			for (intptr_t i = 0; i < THREADS; i++)
				pthread_create(&threads[i], NULL, body, (void *)i);
			double sum = 0;
			for (int i = 0; i < THREADS; i++)
				pthread_join(threads[i], NULL), sum += took[i];
			if (p == 3)
				sum *= THREADS;
			printf("%-12s 1-%-5zu %7.1f ns\n", patterns[p].name, sizes[s], sum / THREADS * 1e9);
		}
	return 0;
}
