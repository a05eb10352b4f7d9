/* Searches a random graph breadth first from several roots, and ranks its nodes.
 *
 * usage: bfs SCALE     2^SCALE nodes, 12 edges a node; prints counts and checksums
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEGREE = 12, ROOTS = 3, RANK_ROUNDS = 2 };

static uint64_t state = 0x9e3779b97f4a7c15;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static void *block(size_t count, size_t bytes)
{
	void *at = calloc(count, bytes);
	if (!at) {
		fprintf(stderr, "bfs: no memory\n");
		exit(1);
	}
	return at;
}

/* A few nodes have most edges: the minimum of three draws. */
static uint32_t node(uint32_t nodes)
{
	uint32_t lowest = next() % nodes;
	for (int i = 0; i < 2; i++) {
		uint32_t other = next() % nodes;
		if (other < lowest)
			lowest = other;
	}
	return lowest;
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	uint32_t nodes = 1u << atoi(argv[1]);
	size_t edges = (size_t)nodes * DEGREE;

	uint32_t *from = block(edges, 4), *to = block(edges, 4);
	size_t *first = block(nodes + 1, sizeof *first);
	for (size_t i = 0; i < edges; i++) {
		from[i] = node(nodes);
		to[i] = next() % nodes;
		first[from[i] + 1]++;
	}
	for (uint32_t i = 0; i < nodes; i++)
		first[i + 1] += first[i];
	uint32_t *near = block(edges, 4);
	size_t *at = block(nodes, sizeof *at);
	for (size_t i = 0; i < edges; i++)
		near[first[from[i]] + at[from[i]]++] = to[i];
	free(from);
	free(to);
	free(at);

	uint32_t *distance = block(nodes, 4), *queue = block(nodes, 4);
	for (int root = 0; root < ROOTS; root++) {
		for (uint32_t i = 0; i < nodes; i++)
			distance[i] = UINT32_MAX;
		uint32_t head = 0, end = 0, start = node(nodes);
		distance[start] = 0;
		queue[end++] = start;
		while (head < end) {
			uint32_t here = queue[head++];
			for (size_t k = first[here]; k < first[here + 1]; k++) {
				if (distance[near[k]] != UINT32_MAX)
					continue;
				distance[near[k]] = distance[here] + 1;
				queue[end++] = near[k];
			}
		}
		uint64_t sum = 0;
		for (uint32_t i = 0; i < nodes; i++)
			sum = sum * 31 + distance[i];
		printf("root %u: %u nodes reached, %016lx\n", start, end, (unsigned long)sum);
	}

	/* Integers: the sums do not depend on the machine. */
	uint64_t *rank = block(nodes, 8), *new = block(nodes, 8);
	for (uint32_t i = 0; i < nodes; i++)
		rank[i] = 1 << 20;
	for (int round = 0; round < RANK_ROUNDS; round++) {
		for (uint32_t i = 0; i < nodes; i++)
			new[i] = 0;
		for (uint32_t i = 0; i < nodes; i++) {
			uint64_t share = rank[i] / (first[i + 1] - first[i] + 1);
			for (size_t k = first[i]; k < first[i + 1]; k++)
				new[near[k]] += share;
		}
		uint64_t *swapped = rank;
		rank = new;
		new = swapped;
	}
	uint64_t sum = 0;
	for (uint32_t i = 0; i < nodes; i++)
		sum = sum * 31 + rank[i];
	printf("ranks %016lx\n", (unsigned long)sum);
	return 0;
}
