/* Kinds of holes into which frames of a memfd are mapped as overlays: the cost of mapping and unmapping an
 * overlay, its mappings and kernel memory, and whether neighbours merge.
 *
 *   cc -O2 -o overlays eval/overlays.c && ./overlays [OVERLAYS]
 *
 * none      no mapping at all: a touch gives SIGSEGV, a system call EFAULT
 * protnone  a private anonymous mapping with PROT_NONE: the same
 * beyond    a shared mapping beyond the end of an empty memfd: a touch gives SIGBUS, a system call EFAULT
 * uffd      an anonymous mapping registered with userfaultfd, and again after each unmap. In between a touch
 *           would read zeros: only for comparison
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define FAIL(what) (perror(what), exit(1))

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* other work on the machine does not count */
	return t.tv_sec + t.tv_nsec / 1e9;
}

static long mappings(void)
{
	long lines = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	for (int c; (c = getc(f)) != EOF;)
		lines += c == '\n';
	fclose(f);
	return lines;
}

/* Bytes of vm_area_struct in use, on the whole machine. */
static long vma_bytes(void)
{
	char line[256], name[64];
	long active, all, size, found = 0;
	FILE *f = fopen("/proc/slabinfo", "r");
	if (!f)
		return 0;
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "%63s %ld %ld %ld", name, &active, &all, &size) == 4 &&
		    !strncmp(name, "vm_area_struct", 14))
			found = active * size;
	fclose(f);
	return found;
}

static int frames, empty, uffd;
static char *hole;

static void make_hole(int kind, char *at, size_t len)
{
	int flags = MAP_FIXED | MAP_NORESERVE;
	switch (kind) {
	case 0:
		if (munmap(at, len))
			FAIL("munmap");
		return;
	case 1:
		if (mmap(at, len, PROT_NONE, flags | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			FAIL("mmap");
		return;
	case 2:
		if (mmap(at, len, PROT_READ | PROT_WRITE, flags | MAP_SHARED, empty, at - hole) == MAP_FAILED)
			FAIL("mmap");
		return;
	default:
		if (mmap(at, len, PROT_READ | PROT_WRITE, flags | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			FAIL("mmap");
		struct uffdio_register r = {{(uintptr_t)at, len}, UFFDIO_REGISTER_MODE_MISSING, 0};
		if (ioctl(uffd, UFFDIO_REGISTER, &r))
			FAIL("UFFDIO_REGISTER");
	}
}

static void map_frame(int kind, size_t page, size_t frame, int populate)
{
	int flags = MAP_SHARED | (kind ? MAP_FIXED : MAP_FIXED_NOREPLACE) | (populate ? MAP_POPULATE : 0);
	if (mmap(hole + page * PAGE, PAGE, PROT_READ | PROT_WRITE, flags, frames, frame * PAGE) == MAP_FAILED)
		FAIL("mmap of an overlay");
}

int main(int count, char **args)
{
	static const char *names[] = {"none", "protnone", "beyond", "uffd"};
	size_t overlays = count > 1 ? strtoul(args[1], 0, 10) : 20000, pages = 8 * overlays;
	frames = memfd_create("frames", 0), empty = memfd_create("empty", 0);
	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	struct uffdio_api api = {UFFD_API, 0, 0};
	if (ftruncate(frames, overlays * PAGE) || uffd < 0 || ioctl(uffd, UFFDIO_API, &api))
		FAIL("memfd or userfaultfd");
	char *linear = mmap(0, overlays * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, frames, 0);
	memset(linear, 1, overlays * PAGE);
	size_t *order = malloc(overlays * sizeof *order);
	for (size_t i = 0; i < overlays; i++)
		order[i] = i;
	srand(1);
	for (size_t i = overlays - 1; i; i--) {
		size_t j = rand() % (i + 1), t = order[i];
		order[i] = order[j], order[j] = t;
	}
	printf("%-9s %8s %8s %8s %9s %9s %11s %8s\n", "hole", "map us", "touch us", "popul us", "unmap us",
	       "mappings", "B/overlay", "merged");
	for (int round = 0; round < 3; round++)
		for (int kind = 0; kind < 4; kind++) {
			hole = mmap((void *)0x180000000000, pages * PAGE, PROT_NONE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
			if (hole == MAP_FAILED)
				FAIL("mmap of the hole");
			make_hole(kind, hole, pages * PAGE);
			long maps = mappings(), slab = vma_bytes();
			double t0 = now();
			for (size_t i = 0; i < overlays; i++)
				map_frame(kind, 8 * order[i] + order[i] % 7, i, 0);
			double t1 = now();
			volatile char sink = 0;
			for (size_t i = 0; i < overlays; i++)
				sink += hole[(8 * order[i] + order[i] % 7) * PAGE];
			double t2 = now();
			maps = mappings() - maps, slab = vma_bytes() - slab;
			double t3 = now();
			for (size_t i = 0; i < overlays; i++)
				make_hole(kind, hole + (8 * order[i] + order[i] % 7) * PAGE, PAGE);
			double t4 = now();
			for (size_t i = 0; i < overlays; i++)
				map_frame(kind, 8 * order[i] + order[i] % 7, i, 1);
			double t5 = now();
			munmap(hole, pages * PAGE);
			make_hole(kind == 0 ? 1 : kind, hole, 64 * PAGE);
			if (kind == 0)
				make_hole(0, hole, 64 * PAGE);
			long merged = mappings();
			for (size_t i = 0; i < 64; i++)
				map_frame(kind, i, i, 0);
			merged = mappings() - merged;
			munmap(hole, pages * PAGE);
			printf("%-9s %8.2f %8.2f %8.2f %9.2f %9.2f %11.0f %8s\n", names[kind],
			       (t1 - t0) / overlays * 1e6, (t2 - t1) / overlays * 1e6, (t5 - t4) / overlays * 1e6,
			       (t4 - t3) / overlays * 1e6, (double)maps / overlays, (double)slab / overlays,
			       merged <= 1 ? "yes" : "no");
		}
	return 0;
}
