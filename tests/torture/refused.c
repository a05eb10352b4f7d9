/* A program that ignores errors, and dies of a refused call.
 *
 * usage: refused null MIB BLOCK        allocates objects of BLOCK bytes and stores to each
 *        refused fork MIB              forks with MIB of memory: exit status 0 if that is refused
 *        refused disk MIB FILE         as null, and half-way fills the disk with a file
 *        refused free                  frees an address that malloc did not return
 *        refused ring                  asks for an io_uring: exit status 0 if that is refused
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, KIB = 1 << 10 };

static void fill_disk(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	off_t end = 0;
	if (fd < 0)
		exit(4);
	for (off_t step = 16 * MIB; step >= 4 * KIB; step /= 2)
		while (fallocate(fd, 0, end, step) == 0)
			end += step;
	if (errno != ENOSPC)
		exit(5);
}

static void fill(size_t bytes, size_t block, const char *disk)
{
	for (size_t at = 0; at < bytes; at += block) {
		/* volatile hides malloc from the compiler */
		char *volatile p = malloc(block);
		if (disk && at >= bytes / 2) {
			fill_disk(disk);
			disk = NULL;
		}
		memset(p, (int)(at / block) | 1, block);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) * MIB : 0;

	if (strcmp(what, "null") == 0 && argc == 4) {
		fill(bytes, strtoul(argv[3], NULL, 10), NULL);
	} else if (strcmp(what, "disk") == 0 && argc == 4) {
		fill(bytes, MIB, argv[3]);
	} else if (strcmp(what, "fork") == 0 && argc == 3) {
		fill(bytes, MIB, NULL);
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		if (child > 0)
			waitpid(child, NULL, 0);
		return child < 0 && errno == ENOMEM ? 0 : 1;
	} else if (strcmp(what, "free") == 0) {
		char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			return 1;
		free(p + 64 * KIB);
	} else if (strcmp(what, "ring") == 0) {
		char parameters[120] = {0};
		return syscall(SYS_io_uring_setup, 4, parameters) < 0 ? 0 : 1;
	} else {
		return 2;
	}
	return 0;
}
