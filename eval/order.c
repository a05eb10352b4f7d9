/* order: objects of one size, made one after the other, then looked at in that order and at random.
 *
 * cc -O2 -o order eval/order.c
 * flashvm run --ram 128M --flash-size 2G --granularity 512 -- ./order 1500000 512 2 40000
 *
 * usage: order COUNT BYTES PASSES RANDOM    PASSES over all objects in order, then RANDOM looks
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static uint64_t next(void)
{
	static uint64_t state = 88172645463325252;
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static void check(uint64_t *const *objects, size_t i)
{
	if (objects[i][0] != i) {
		fprintf(stderr, "order: object %zu is wrong\n", i);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: order COUNT BYTES PASSES RANDOM\n");
		return 2;
	}
	size_t count = strtoul(argv[1], NULL, 10), words = strtoul(argv[2], NULL, 10) / 8;
	size_t passes = strtoul(argv[3], NULL, 10), looks = strtoul(argv[4], NULL, 10);
	uint64_t **objects = malloc(count * sizeof *objects);
	double since = now();
	for (size_t i = 0; i < count; i++) {
		objects[i] = malloc(words * 8);
		for (size_t word = 1; word < words; word++)
			objects[i][word] = next();
		objects[i][0] = i;
	}
	printf("made: %.2f us each\n", (now() - since) / count * 1e6);
	for (size_t pass = 0; pass < passes; pass++) {
		since = now();
		for (size_t i = 0; i < count; i++)
			check(objects, i);
		printf("in order: %.2f us each\n", (now() - since) / count * 1e6);
	}
	since = now();
	for (size_t look = 0; look < looks; look++)
		check(objects, next() % count);
	if (looks)
		printf("at random: %.2f us each\n", (now() - since) / looks * 1e6);
	return 0;
}
