/* Takes nearly all mappings that the kernel allows (vm.max_map_count), then touches scattered pages and checks them.
 *
 * usage: mappings MIB LEFT ACCESSES
 *
 * Where hidden pages take mappings, the pager has to do with about LEFT of them. Exit status: 0 all right, 1 a page was
 * lost, 2 the machine does not allow the test.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / sizeof(uint64_t) };

static size_t allowed(void)
{
	size_t count = 0;
	FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
	if (!file || fscanf(file, "%zu", &count) != 1)
		exit(2);
	fclose(file);
	return count;
}

/* Every second page of a shared mapping gets other rights: two mappings each. */
static void take_mappings(size_t left)
{
	size_t pages = 2 * (allowed() / 2 + 1), taken = 0;
	int file = memfd_create("mappings", 0);
	if (file < 0 || ftruncate(file, pages * PAGE))
		exit(2);
	char *at = mmap(NULL, pages * PAGE, PROT_READ, MAP_SHARED, file, 0);
	if (at == MAP_FAILED)
		exit(2);
	while (taken < pages / 2 && !mprotect(at + 2 * taken * PAGE, PAGE, PROT_NONE))
		taken++;
	for (size_t freed = 0; freed < left / 2 && taken > 0; freed++)
		mprotect(at + 2 * --taken * PAGE, PAGE, PROT_READ);
}

static uint64_t stamp(size_t page)
{
	return page * 0x9E3779B97F4A7C15ull + 1;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	size_t pages = strtoul(argv[1], NULL, 0) * 256, accesses = strtoul(argv[3], NULL, 0), bad = 0;
	uint64_t *data = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
		return 2;
	take_mappings(strtoul(argv[2], NULL, 0));
	for (size_t page = 0; page < pages; page++)
		data[page * WORDS] = stamp(page);
	uint64_t x = 88172645463325252;
	for (size_t i = 0; i < accesses; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		size_t page = x % pages;
		bad += data[page * WORDS] != stamp(page);
		if (x >> 62 == 0)
			data[page * WORDS + 1] = x;
	}
	printf("bad %zu\n", bad);
	return bad != 0;
}
