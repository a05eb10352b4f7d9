/* Allocates until ENOMEM, and checks that nothing was lost.
 *
 * usage: enomem malloc|mmap CAP_MIB
 *
 * Fills every object with stamped pages. After ENOMEM, with the store full, it verifies, rewrites and
 * verifies all objects, frees half, allocates again, and verifies the rest. Exit status: 0 all
 * right, 1 a byte was lost, 3 no ENOMEM within CAP_MIB (which protects a machine without a limit).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, BLOCK = 1 << 20, BLOCKS_MAX = 1 << 14 };

static uint8_t *block[BLOCKS_MAX]; /* static data is unmanaged: it cannot be lost */
static int by_malloc;

static uint64_t word(size_t number, size_t i, uint64_t generation)
{
	return (number * (PAGE / 8) + i + generation * 0xC2B2AE3D27D4EB4Full) * 0x9E3779B97F4A7C15ull;
}

static void stamp(size_t number, uint64_t generation)
{
	uint64_t *w = (uint64_t *)block[number];
	for (size_t i = 0; i < BLOCK / 8; i++)
		w[i] = word(number, i, generation);
}

static void verify(size_t number, uint64_t generation, const char *when)
{
	const uint64_t *w = (const uint64_t *)block[number];
	for (size_t i = 0; i < BLOCK / 8; i++) {
		if (w[i] == word(number, i, generation))
			continue;
		dprintf(2, "enomem: FAILED %s: block %zu, address %p: expected %#llx, found %#llx\n", when,
			number, (const void *)(w + i), (unsigned long long)word(number, i, generation),
			(unsigned long long)w[i]);
		_exit(1);
	}
}

static int get(size_t number)
{
	void *p;
	if (by_malloc) {
		p = malloc(BLOCK);
	} else {
		p = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			p = NULL;
	}
	if (!p && errno != ENOMEM) {
		dprintf(2, "enomem: FAILED: expected ENOMEM, found errno %d (%m)\n", errno);
		_exit(1);
	}
	block[number] = p;
	return p != NULL;
}

static void put(size_t number)
{
	if (by_malloc)
		free(block[number]);
	else
		munmap(block[number], BLOCK);
	block[number] = NULL;
}

int main(int argc, char **argv)
{
	if (argc != 3 || (strcmp(argv[1], "malloc") && strcmp(argv[1], "mmap"))) {
		dprintf(2, "usage: enomem malloc|mmap CAP_MIB\n");
		return 2;
	}
	by_malloc = !strcmp(argv[1], "malloc");
	size_t cap = strtoul(argv[2], NULL, 10), count = 0;
	if (cap > BLOCKS_MAX)
		cap = BLOCKS_MAX;
	while (count < cap && get(count)) {
		stamp(count, 1);
		count++;
	}
	if (count == cap) {
		dprintf(1, "enomem: no ENOMEM within %zu MiB\n", cap);
		return 3;
	}
	for (size_t i = 0; i < count; i++)
		verify(i, 1, "after ENOMEM");
	for (size_t i = 0; i < count; i++)
		stamp(i, 2);
	for (size_t i = count; i-- > 0;)
		verify(i, 2, "after rewriting all of it");
	for (size_t i = 0; i < count; i += 2)
		put(i);
	size_t again = 0;
	for (size_t i = 0; i < count; i += 2) {
		if (!get(i))
			break;
		stamp(i, 3);
		again++;
	}
	for (size_t i = 1; i < count; i += 2)
		verify(i, 2, "after freeing half");
	for (size_t i = 0; i < again; i++)
		verify(2 * i, 3, "in memory had again");
	if (again == 0) {
		dprintf(2, "enomem: FAILED: expected memory after freeing half of it, found none\n");
		return 1;
	}
	dprintf(1, "enomem: %zu MiB until ENOMEM, %zu again after freeing half, nothing lost\n", count,
		again);
	return 0;
}
