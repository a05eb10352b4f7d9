/* Joins two generated tables by a hash table that is larger than the budget.
 *
 *     cc -O2 -o /tmp/hash-join examples/hash-join.c
 *     flashvm run --ram 128M -- /tmp/hash-join 8000000 2000000
 *
 * usage: hash-join BUILD_ROWS PROBE_ROWS
 *
 * Build: BUILD_ROWS rows of (key, payload) in an open-addressing table, 32 bytes a row, at most two
 * thirds full. Probe: PROBE_ROWS keys, sorted by their place in the table, as a database does
 * with slow memory. Half of the keys have a match. Prints matches and a checksum.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct row {
	uint64_t key, payload[3];
};

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ z >> 27) * 0x94D049BB133111EBull;
	return z ^ z >> 31;
}

/* The i-th key of the build side; never 0, which marks a free place. */
static uint64_t key_of(uint64_t i)
{
	return mix(i * 2 + 1) | 1;
}

static uint64_t places; /* a power of two */

static uint64_t place_of(uint64_t key)
{
	return mix(key) & (places - 1);
}

static int by_place(const void *a, const void *b)
{
	uint64_t x = place_of(*(const uint64_t *)a), y = place_of(*(const uint64_t *)b);
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: hash-join BUILD_ROWS PROBE_ROWS\n");
		return 2;
	}
	uint64_t build = strtoull(argv[1], NULL, 10), probes = strtoull(argv[2], NULL, 10);
	for (places = 64; places < build + build / 2; places *= 2)
		;
	struct row *table = calloc(places, sizeof *table);
	uint64_t *keys = malloc((build > probes ? build : probes) * sizeof *keys);
	if (!table || !keys) {
		perror("hash-join");
		return 1;
	}

	/* Build in the order of the table: sequential writes instead of random ones. */
	for (uint64_t i = 0; i < build; i++)
		keys[i] = key_of(i);
	qsort(keys, build, sizeof *keys, by_place);
	for (uint64_t i = 0; i < build; i++) {
		uint64_t at = place_of(keys[i]);
		while (table[at].key && table[at].key != keys[i])
			at = (at + 1) & (places - 1);
		uint64_t k = keys[i];
		table[at] = (struct row){k, {mix(k), mix(k + 1), mix(k + 2)}};
	}

	for (uint64_t i = 0; i < probes; i++)
		keys[i] = i % 2 ? key_of(mix(i) % build) : mix(i + build) & ~1ull;
	qsort(keys, probes, sizeof *keys, by_place);
	uint64_t matches = 0, checksum = 0;
	for (uint64_t i = 0; i < probes; i++) {
		uint64_t at = place_of(keys[i]);
		while (table[at].key && table[at].key != keys[i])
			at = (at + 1) & (places - 1);
		if (!table[at].key)
			continue;
		matches++;
		for (int w = 0; w < 3; w++) {
			checksum += table[at].payload[w];
			if (table[at].payload[w] != mix(keys[i] + w)) {
				fprintf(stderr, "hash-join: wrong payload at place %llu\n",
					(unsigned long long)at);
				return 1;
			}
		}
	}
	printf("%llu rows in %llu MiB, %llu probes, %llu matches, checksum %016llx\n",
	       (unsigned long long)build, (unsigned long long)(places * sizeof *table >> 20),
	       (unsigned long long)probes, (unsigned long long)matches,
	       (unsigned long long)checksum);
	return matches != probes / 2;
}
