/* What few programs do with memory and processes, each under the budget as without it.
 *
 * usage: unusual PART        Exit code 1, and a line, if something differs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
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

/* One call moves more than fits into the budget, between vectors whose parts do not match. A child finds the memory of
 * its parent, or is told that it cannot. */
static int process_vm(void)
{
	size_t bytes = 48 * MIB, third = bytes / 3 + 5;
	char *from = map(bytes, PROT_READ | PROT_WRITE, 0), *to = map(bytes, PROT_READ | PROT_WRITE, 0);
	for (size_t i = 0; i < bytes; i++)
		from[i] = (char)(i >> 12 ^ i);
	memset(to, 1, bytes);
	struct iovec remote[] = {{from, third}, {from, 0}, {from + third, bytes - third}};
	struct iovec local[] = {{to, bytes / 2}, {to + bytes / 2, bytes / 2}};
	if (process_vm_readv(getpid(), local, 2, remote, 3, 0) != (ssize_t)bytes || memcmp(from, to, bytes))
		return fail("process_vm_readv");
	memset(to, 2, bytes);
	if (process_vm_writev(getpid(), remote, 3, local, 2, 0) != (ssize_t)bytes || memcmp(from, to, bytes))
		return fail("process_vm_writev");
	struct iovec beyond[] = {{from, MIB}, {(char *)8, MIB}};
	if (process_vm_readv(getpid(), local, 1, beyond, 2, 0) != (ssize_t)MIB)
		return fail("a part that does not exist");
	if (process_vm_readv(getpid(), local, 1, beyond + 1, 1, 0) != -1 || errno != EFAULT)
		return fail("no memory");
	if (process_vm_readv(getpid(), local, 0, beyond, 0, 0) != 0 || process_vm_readv(getpid(), local, 1, remote, 1, 1) != -1)
		return fail("nothing to move, and flags");
	int status;
	pid_t child = fork();
	if (child == 0) {
		ssize_t moved = process_vm_readv(getppid(), local, 1, remote, 1, 0);
		_exit(moved < 0 ? errno != EFAULT : memcmp(from, to, moved) != 0);
	}
	if (waitpid(child, &status, 0) != child || status)
		return fail("another process");
	return 0;
}

/* Many children that wait, as those of a server do. What they share counts once. */
static int children(void)
{
	enum { CHILDREN = 60 };
	char *at = map(24 * MIB, PROT_READ | PROT_WRITE, 0);
	int go[2], status;
	char byte;
	memset(at, 7, 24 * MIB);
	if (pipe(go))
		return fail("pipe");
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child = fork();
		if (child < 0)
			return fail("fork");
		if (child == 0) {
			close(go[1]);
			_exit(read(go[0], &byte, 1) != 0 || at[20 * MIB + i] != 7);
		}
	}
	close(go[1]);
	for (int i = 0; i < CHILDREN; i++)
		if (wait(&status) < 0 || status)
			return fail("a child");
	return 0;
}

/* What would take descriptors or addresses from the pager is refused, and no harm is done. */
static int refusals(void)
{
	char *at = map(48 * MIB, PROT_READ | PROT_WRITE, 0);
	struct rlimit limit = {64 * MIB, RLIM_INFINITY};
	memset(at, 6, 48 * MIB);
	/* CLOSE_RANGE_UNSHARE, also with CLOSE_RANGE_CLOEXEC */
	for (int flags = 2; flags <= 6; flags += 4)
		if (syscall(SYS_close_range, 3, ~0u, flags) != -1 || errno != EINVAL)
			return fail("close_range");
	if (syscall(SYS_close_range, 3, ~0u, 0))
		return fail("close_range without flags");
	if (unshare(CLONE_FILES) != -1 || errno != EINVAL)
		return fail("unshare");
	if (setrlimit(RLIMIT_AS, &limit) != -1 || errno != EPERM || setrlimit(RLIMIT_DATA, &limit) != -1 || errno != EPERM)
		return fail("setrlimit");
	for (size_t i = 0; i < 48 * MIB; i += 4096)
		if (at[i] != 6)
			return fail("the memory");
	return 0;
}

/* Faults of managed memory are the pager's. */
static int faults(void)
{
	int fd = syscall(SYS_userfaultfd, 0);
	struct uffdio_api api = {.api = UFFD_API};
	char *at = map(48 * MIB, PROT_READ | PROT_WRITE, 0);
	struct uffdio_register range = {{(unsigned long)at, 48 * MIB}, UFFDIO_REGISTER_MODE_MISSING, 0};
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		return fd < 0 && errno == EPERM ? 0 : fail("userfaultfd");
	if (ioctl(fd, UFFDIO_REGISTER, &range) != -1 || errno != EBUSY)
		return fail("UFFDIO_REGISTER");
	memset(at, 3, 48 * MIB);
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

static unsigned long next(unsigned long word)
{
	word ^= word << 13, word ^= word >> 7;
	return word ^ word << 17;
}

/* 48 MiB that do not compress. */
static void scramble(unsigned long *words)
{
	unsigned long word = 88172645463325252UL;
	for (size_t i = 0; i < 48 * MIB / sizeof word; i++) {
		word = next(word);
		words[i] = word;
	}
}

static int is_scrambled(const unsigned long *words)
{
	unsigned long word = 88172645463325252UL;
	for (size_t i = 0; i < 48 * MIB / sizeof word; i++) {
		word = next(word);
		if (words[i] != word)
			return 0;
	}
	return 1;
}

/* Three processes that share nearly all of the budget, and work on data of their own: each needs more than the least
 * frames. */
static int workers(void)
{
	enum { CHILDREN = 2, ROUNDS = 6 };
	int status;
	unsigned long *words = map(48 * MIB, PROT_READ | PROT_WRITE, 0);
	scramble(words);
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child = fork();
		if (child < 0)
			return fail("fork");
		if (child == 0) {
			size_t count = 8 * MIB / sizeof *words;
			unsigned long *own = map(8 * MIB, PROT_READ | PROT_WRITE, 0);
			for (int round = 0; round < ROUNDS; round++)
				for (size_t at = 0; at < count; at++)
					own[at * 40503 % count] += words[at * 6 + round];
			_exit(is_scrambled(words) ? 0 : 1);
		}
	}
	for (int i = 0; i < CHILDREN; i++)
		if (wait(&status) < 0 || status)
			return fail("a child");
	return is_scrambled(words) ? 0 : fail("the memory");
}

/* Descriptors in use, the pager's among them. */
static int numbers(void)
{
	int used = 0;
	for (int fd = 0; fd < 2048; fd++)
		used += fcntl(fd, F_GETFD) != -1;
	return used;
}

/* Children that end leave nothing open in their parent. */
static int forks(void)
{
	int status;
	char *at = map(24 * MIB, PROT_READ | PROT_WRITE, 0);
	memset(at, 5, 24 * MIB);
	int before = numbers();
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		if (child == 0)
			_exit(at[i * MIB]);
		if (child < 0 || waitpid(child, &status, 0) != child || status != 5 << 8)
			return fail("a child");
	}
	/* The pager may have opened a queue or two meanwhile. */
	if (numbers() > before + 8) {
		printf("%d descriptors, %d before\n", numbers(), before);
		return 1;
	}
	return 0;
}

/* The program has no number left for a descriptor, and pages and forks all the same. */
static int no_numbers(void)
{
	int status;
	struct rlimit limit, after;
	unsigned long *words = map(48 * MIB, PROT_READ | PROT_WRITE, 0);
	if (getrlimit(RLIMIT_NOFILE, &limit))
		return fail("getrlimit");
	limit.rlim_cur = limit.rlim_cur < 256 ? limit.rlim_cur : 256;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		return fail("setrlimit");
	while (open("/dev/null", O_RDONLY) >= 0)
		;
	if (errno != EMFILE)
		return fail("open");
	scramble(words);
	pid_t child = fork();
	if (child == 0)
		_exit(is_scrambled(words) ? 7 : 1);
	if (child < 0 || waitpid(child, &status, 0) != child || status != 7 << 8)
		return fail("the child");
	if (!is_scrambled(words))
		return fail("the memory");
	if (getrlimit(RLIMIT_NOFILE, &after) || after.rlim_cur != limit.rlim_cur || after.rlim_max != limit.rlim_max)
		return fail("the limit afterwards");
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
		{"clock", clock_signals}, {"process_vm", process_vm}, {"faults", faults},
		{"children", children}, {"refusals", refusals}, {"no-numbers", no_numbers},
		{"forks", forks}, {"workers", workers},
	};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (argc == 2 && !strcmp(argv[1], parts[i].name))
			return parts[i].run();
	return 2;
}
