/* Asks for huge pages, uses more than the budget, and takes the huge pages apart in every way that a program can.
 *
 * usage: huge MIB
 *
 * Exit status: 0 all right, 1 a page was lost.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / sizeof(uint64_t), HUGE_PAGES = 512 };

static uint64_t *data;
static size_t pages;
/* What each page holds: 0 for zeros. */
static uint32_t *truth;

static void must(int holds, const char *what)
{
	if (holds)
		return;
	perror(what);
	_exit(1);
}

static uint64_t word(size_t page, uint32_t generation)
{
	return generation ? (uint64_t)generation << 32 ^ page * 0x9e3779b97f4a7c15 : 0;
}

static void stamp(size_t page, uint32_t generation)
{
	uint64_t *at = data + page * WORDS;
	at[0] = at[WORDS - 1] = word(page, generation);
	truth[page] = generation;
}

static void check(const char *when)
{
	for (size_t page = 0; page < pages; page++) {
		const uint64_t *at = data + page * WORDS;
		uint64_t want = word(page, truth[page]);
		if (at[0] == want && at[WORDS - 1] == want && at[7] == 0)
			continue;
		fprintf(stderr, "%s: page %zu holds %llx, not %llx\n", when, page,
			(unsigned long long)at[0], (unsigned long long)want);
		_exit(1);
	}
}

static void drop(size_t first, size_t count)
{
	must(madvise(data + first * WORDS, count * PAGE, MADV_DONTNEED) == 0, "madvise");
	for (size_t i = 0; i < count; i++)
		truth[first + i] = 0;
}

static void child_of(void)
{
	pid_t child = fork();
	must(child >= 0, "fork");
	if (child == 0) {
		check("in the child");
		for (size_t page = 0; page < pages; page += 3)
			stamp(page, 100);
		check("in the child, after its stores");
		_exit(17);
	}
	for (size_t page = 0; page < pages; page += 5)
		stamp(page, 200);
	int status;
	must(waitpid(child, &status, 0) == child && status == 17 << 8, "the child");
	check("after the child");
}

int main(int argc, char **argv)
{
	size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 64) << 20;
	pages = bytes / PAGE;
	truth = calloc(pages, sizeof *truth);
	data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(truth != NULL && data != MAP_FAILED, "memory");
	must(madvise(data, bytes, MADV_HUGEPAGE) == 0, "MADV_HUGEPAGE");
	/* Every other page: the rest of each huge page stays zeros. */
	for (size_t page = 1; page < pages; page += 2)
		stamp(page, 1);
	check("filled");
	drop(HUGE_PAGES + 100, 3 * HUGE_PAGES);
	drop(16 * HUGE_PAGES, 2 * HUGE_PAGES);
	check("dropped");
	for (size_t page = 16 * HUGE_PAGES; page < 18 * HUGE_PAGES; page += 7)
		stamp(page, 2);
	check("filled again");
	child_of();
	/* Access rights and addresses change in the midst of huge pages. */
	uint64_t *part = data + (2 * HUGE_PAGES + 9) * WORDS;
	must(mprotect(part, 700 * PAGE, PROT_READ) == 0, "mprotect");
	check("read-only");
	must(mprotect(part, 700 * PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
	void *place = mmap(NULL, 4 * HUGE_PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(place != MAP_FAILED, "mmap");
	must(mremap(part, 700 * PAGE, 700 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place, "mremap");
	must(mremap(place, 700 * PAGE, 700 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, part) == part, "mremap");
	check("moved away and back");
	for (uint32_t round = 3; round < 6; round++) {
		for (size_t page = round; page < pages; page += round)
			stamp(page, round);
		check("stamped anew");
	}
	puts("all checks held");
	return 0;
}
