/* Forks into a pid namespace with its own /proc, where the pager's processes have other numbers.
 *
 * usage: namespace SECONDS
 *
 * The supervisor watches a process by its number, and gives what a dead one held to the others. The grandchild has a
 * number that nobody has outside. If the pager told the supervisor that number, the grandchild would be taken for dead
 * while it runs, and its flash would get another owner: so parent and grandchild rewrite and check all of their memory.
 *
 * Exit status: 0 all right, 1 a page was lost, 77 the kernel allows no namespaces here.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MIB = 48, NOT_ALLOWED = 77 };
#define BYTES ((size_t)MIB << 20)

static uint64_t *memory;

static void rewrite(uint64_t seed, int seconds)
{
	struct timespec now, begun;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	uint64_t r = seed;
	do {
		/* Random contents, so that they go to flash. */
		for (size_t i = 0; i < BYTES / sizeof *memory; i++)
			memory[i] = r = r * 6364136223846793005u + 1442695040888963407u;
		r = memory[0];
		for (size_t i = 1; i < BYTES / sizeof *memory; i++)
			if (memory[i] != (r = r * 6364136223846793005u + 1442695040888963407u)) {
				fprintf(stderr, "process %d: word %zu is lost\n", (int)getpid(), i);
				_exit(1);
			}
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - begun.tv_sec < seconds);
}

static int status_of(pid_t child)
{
	int status;
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Gives the next child a number that nobody has outside. */
static int far_number(void)
{
	FILE *most = fopen("/proc/sys/kernel/pid_max", "r");
	FILE *last = fopen("/proc/sys/kernel/ns_last_pid", "w");
	long number;
	if (!most || !last || fscanf(most, "%ld", &number) != 1)
		return 0;
	return fprintf(last, "%ld", number - 1000) > 0 && fclose(last) == 0 && fclose(most) == 0;
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 4;
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		abort();
	rewrite(1, 0);
	if (unshare(CLONE_NEWPID | CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		perror("a pid namespace");
		return NOT_ALLOWED;
	}
	pid_t child = fork();
	if (child == 0) {
		if (mount("proc", "/proc", "proc", 0, NULL) || !far_number()) {
			perror("its /proc");
			_exit(NOT_ALLOWED);
		}
		pid_t grandchild = fork();
		if (grandchild == 0) {
			rewrite(2, seconds);
			_exit(0);
		}
		_exit(status_of(grandchild));
	}
	rewrite(3, seconds);
	return status_of(child);
}
