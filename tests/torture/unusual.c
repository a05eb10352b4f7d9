/* What few programs do with memory and processes, each under the budget as without it.
 *
 * usage: unusual PART        Exit code 1, and a line, if something differs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static int fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	return 1;
}

static void *map(size_t bytes, int prot, int flags)
{
	return mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

/* As many addresses as there are, from 1 TiB down, for a heap. */
static int shrinking(void)
{
	size_t bytes = MIB * MIB;
	char *at = map(bytes, PROT_NONE, MAP_NORESERVE);
	while (at == MAP_FAILED && bytes > MIB * 1024) {
		bytes /= 2;
		at = map(bytes, PROT_NONE, MAP_NORESERVE);
	}
	if (at == MAP_FAILED || mprotect(at, 48 * MIB, PROT_READ | PROT_WRITE))
		return fail("a reservation");
	for (size_t byte = 0; byte < 48 * MIB; byte++)
		at[byte] = byte * 31 >> 7;
	for (size_t byte = 0; byte < 48 * MIB; byte++)
		if (at[byte] != (char)(byte * 31 >> 7))
			return fail("contents of the heap");
	return munmap(at, bytes) ? fail("the end of the heap") : 0;
}

/* More addresses than the pager manages, of which little is used. */
static int reservation(void)
{
	char *at = map(8 * MIB * MIB, PROT_NONE, MAP_NORESERVE);
	if (at == MAP_FAILED)
		return fail("a reservation of 8 TiB");
	if (mprotect(at + MIB, MIB, PROT_READ | PROT_WRITE))
		return fail("a part of it");
	memset(at + MIB, 7, MIB);
	if (at[MIB] != 7 || at[2 * MIB - 1] != 7)
		return fail("its contents");
	return munmap(at, 8 * MIB * MIB) ? fail("its end") : 0;
}

/* 48 MiB in pieces of 16 KiB. */
static int pieces(void)
{
	enum { PIECE = 16 << 10, COUNT = 48 << 6 };
	static unsigned *at[COUNT];
	for (unsigned i = 0; i < COUNT; i++) {
		at[i] = map(PIECE, PROT_READ | PROT_WRITE, 0);
		if (at[i] == MAP_FAILED)
			return fail("a piece");
		for (unsigned word = 0; word < PIECE / sizeof(unsigned); word++)
			at[i][word] = i * 7919 + word * 31;
	}
	for (unsigned i = 0; i < COUNT; i++)
		for (unsigned word = 0; word < PIECE / sizeof(unsigned); word++)
			if (at[i][word] != i * 7919 + word * 31)
				return fail("contents of a piece");
	for (unsigned i = 0; i < COUNT; i++)
		if (munmap(at[i], PIECE))
			return fail("the end of a piece");
	return 0;
}

/* Memory that stays the kernel's, long enough for the supervisor to see it. */
static int low(void)
{
	char *at = map(48 * MIB, PROT_READ | PROT_WRITE, MAP_32BIT);
	if (at == MAP_FAILED)
		return fail("memory below 2 GiB");
	memset(at, 1, 48 * MIB);
	usleep(900000);
	return 0;
}

/* A child that shares descriptors but no memory is refused, and no harm is done. */
static int descriptors(void)
{
	char *at = map(48 * MIB, PROT_READ | PROT_WRITE, 0);
	long child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	int status;
	if (child == 0)
		_exit(3);
	if (child != -1 || errno != EINVAL)
		return fail("clone with CLONE_FILES");
	memset(at, 5, 48 * MIB);
	child = fork();
	if (child == 0)
		_exit(at[40 * MIB] == 5 ? 9 : 1);
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 9)
		return fail("a fork after that");
	return 0;
}

/* The pager reads the clock: a signal for each reading is refused. */
static int clock_signals(void)
{
	char *at = map(48 * MIB, PROT_READ | PROT_WRITE, 0);
	if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) != -1 || errno != EINVAL)
		return fail("PR_SET_TSC");
	memset(at, 5, 48 * MIB);
	return 0;
}

/* As a debugger starts a program. */
static int traced(void)
{
	int status;
	pid_t child = vfork();
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, 0, 0))
			_exit(1);
		setpgid(0, 0);
		execl("/bin/sh", "sh", "-c", "exit 5", (char *)NULL);
		_exit(1);
	}
	if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
		return fail("the stop at execve");
	for (int signal = 0; !WIFEXITED(status); signal = WSTOPSIG(status))
		if (ptrace(PTRACE_CONT, child, 0, signal) || waitpid(child, &status, 0) != child)
			return fail("the traced program");
	return WEXITSTATUS(status) == 5 ? 0 : fail("its exit code");
}

static void *nothing(void *none)
{
	return none;
}

/* Threads one after the other leave no memory behind. */
static int threads(void)
{
	unsigned long size, resident, others;
	FILE *statm;
	for (int i = 0; i < 3000; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL))
			return fail("a thread");
	}
	statm = fopen("/proc/self/statm", "r");
	if (!statm || fscanf(statm, "%lu %lu %lu", &size, &resident, &others) != 3)
		return fail("/proc/self/statm");
	if ((resident - others) * 4096 > 12 * MIB) {
		printf("%lu anonymous pages after 3000 threads\n", resident - others);
		return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} parts[] = {
		{"shrinking", shrinking}, {"reservation", reservation}, {"pieces", pieces}, {"low", low},
		{"descriptors", descriptors}, {"traced", traced}, {"threads", threads},
		{"clock", clock_signals},
	};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (argc == 2 && !strcmp(argv[1], parts[i].name))
			return parts[i].run();
	return 2;
}
