/* guard: program behaviour that collides with a pager which uses signals and catches system calls: own
 * handlers for SIGBUS, SIGSEGV and SIGSYS, masks that block everything, alternate stacks and
 * coroutines on absent memory, jumps out of handlers, interrupted calls, raw system calls, forks
 * without the C library, cancellation. Refused calls must fail as documented.
 */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

static const char *const PART = "guard";
enum { PAGES = 64, STACK = 64 * 1024, COROUTINES = 8 };

/* Newer processors have no fork of its own. */
#ifdef SYS_fork
#define RAW_FORK() syscall(SYS_fork)
#else
#define RAW_FORK() syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)
#endif

/* Stamped once, verified from everywhere, mostly absent. */
static uint8_t *data;

static void look(void)
{
	make_absent(data, PAGES * PAGE);
	for (size_t i = 0; i < PAGES; i++)
		page_check(PART, data + i * PAGE, i, 7);
}

/* In inline mode the pager has a handler for SIGSYS. */
static bool calls_are_caught(void)
{
	char line[256];
	bool caught = false;
	FILE *status = fopen("/proc/self/status", "r");
	MUST(PART, status != NULL);
	while (fgets(line, sizeof line, status))
		if (strncmp(line, "SigCgt:", 7) == 0)
			caught = strtoull(line + 7, NULL, 16) >> (SIGSYS - 1) & 1;
	fclose(status);
	return caught;
}

static void install(int number, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | flags};
	action.sa_sigaction = handler;
	MUST(PART, sigaction(number, &action, NULL) == 0);
	struct sigaction found;
	MUST(PART, sigaction(number, NULL, &found) == 0);
	MUST(PART, found.sa_sigaction == handler && (found.sa_flags & flags) == flags);
}

/* ---- the program's own faults ---- */
static sigjmp_buf back;
static volatile void *seen_address;
static volatile int seen_signal;
static volatile char *stack_seen;

static void on_fault(int number, siginfo_t *info, void *context)
{
	char here;
	(void)context;
	look();
	seen_signal = number;
	seen_address = info->si_addr;
	stack_seen = &here;
	siglongjmp(back, 1);
}

static void own_faults(void)
{
	/* Beyond the end of a file, and a store to a read-only page. */
	char name[] = "/tmp/guard-XXXXXX";
	int fd = mkstemp(name);
	MUST(PART, fd >= 0 && unlink(name) == 0 && ftruncate(fd, PAGE) == 0);
	char *file = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *closed = mmap(NULL, 16 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(PART, file != MAP_FAILED && closed != MAP_FAILED);
	uint8_t *alternate = managed(STACK);
	stack_t stack = {.ss_sp = alternate, .ss_size = STACK}, found;
	for (int round = 0; round < 4; round++) {
		bool on_stack = round % 2;
		MUST(PART, sigaltstack(&stack, NULL) == 0 && sigaltstack(NULL, &found) == 0);
		MUST(PART, found.ss_sp == stack.ss_sp && found.ss_size == STACK);
		install(SIGBUS, on_fault, on_stack ? SA_ONSTACK : 0);
		install(SIGSEGV, on_fault, on_stack ? SA_ONSTACK : 0);
		make_absent(alternate, STACK);
		if (sigsetjmp(back, 1) == 0) {
			file[PAGE] = 1;
			fail(PART, file + PAGE, "SIGBUS beyond the end of a file");
		}
		MUST(PART, seen_signal == SIGBUS && seen_address == file + PAGE);
		uint8_t *on = (uint8_t *)stack_seen;
		MUST(PART, (on >= alternate && on < alternate + STACK) == on_stack);
		if (sigsetjmp(back, 1) == 0) {
			closed[5] = 1;
			fail(PART, closed, "SIGSEGV at a page that may not be stored to");
		}
		MUST(PART, seen_signal == SIGSEGV && seen_address == closed + 5);
	}
	stack.ss_flags = SS_DISABLE;
	MUST(PART, sigaltstack(&stack, NULL) == 0);
	signal(SIGBUS, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	close(fd);
	munmap(file, 2 * PAGE);
	munmap(closed, 16 * PAGE);
	munmap(alternate, STACK);
}

/* ---- masks ---- */
static volatile sig_atomic_t counted;

static void count(int number, siginfo_t *info, void *context)
{
	(void)number, (void)info, (void)context;
	look();
	counted++;
}

static void masks(void)
{
	sigset_t all, before, found;
	sigfillset(&all);
	MUST(PART, sigprocmask(SIG_SETMASK, &all, &before) == 0);
	look();
	MUST(PART, sigprocmask(SIG_SETMASK, NULL, &found) == 0);
	for (int number = 1; number < 32; number++)
		if (number != SIGKILL && number != SIGSTOP)
			MUST(PART, sigismember(&found, number) == 1);
	MUST(PART, sigprocmask(SIG_SETMASK, &before, NULL) == 0);
	MUST(PART, sigprocmask(SIG_SETMASK, NULL, &found) == 0);
	MUST(PART, !sigismember(&found, SIGBUS) && !sigismember(&found, SIGSYS));

	/* Nested handlers that block everything, for signals that the program sends itself. */
	struct sigaction action = {.sa_flags = SA_SIGINFO, .sa_sigaction = count};
	sigfillset(&action.sa_mask);
	MUST(PART, sigaction(SIGSYS, &action, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
	counted = 0;
	MUST(PART, raise(SIGSYS) == 0 && raise(SIGUSR1) == 0 && kill(getpid(), SIGUSR1) == 0);
	MUST(PART, counted == 3);
	signal(SIGSYS, SIG_DFL);

	/* A wait with a mask of its own. */
	sigset_t one;
	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	MUST(PART, sigprocmask(SIG_BLOCK, &one, &before) == 0 && raise(SIGUSR1) == 0);
	MUST(PART, counted == 3);
	sigset_t open = before;
	sigdelset(&open, SIGUSR1);
	MUST(PART, sigsuspend(&open) == -1 && errno == EINTR && counted == 4);
	MUST(PART, raise(SIGUSR1) == 0);
	MUST(PART, ppoll(NULL, 0, NULL, &open) == -1 && errno == EINTR && counted == 5);
	MUST(PART, raise(SIGUSR1) == 0 && sigwaitinfo(&one, NULL) == SIGUSR1 && counted == 5);
	MUST(PART, sigprocmask(SIG_SETMASK, &before, NULL) == 0);
	signal(SIGUSR1, SIG_DFL);
}

/* ---- interrupted calls ---- */
static int pipe_ends[2];
static volatile sig_atomic_t feed;

static void on_tick(int number, siginfo_t *info, void *context)
{
	(void)number, (void)info, (void)context;
	look();
	counted++;
	if (feed)
		MUST(PART, write(pipe_ends[1], "x", 1) == 1);
}

static void start_timer(long first_us, long every_us)
{
	struct itimerval timer = {{0, every_us}, {0, first_us}};
	MUST(PART, setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

/* Makes a call that a tick interrupts. On a busy machine the first tick may precede the call. */
#define UNTIL_TICK(result, call) \
	do { \
		counted = 0; \
		start_timer(5000, 200000); \
		(result) = (call); \
		int error = errno; \
		start_timer(0, 0); \
		errno = error; \
	} while (0)

static void interrupted(void)
{
	MUST(PART, pipe(pipe_ends) == 0);
	char *byte = (char *)managed(STACK) + 100;
	long got;
	feed = 0;
	install(SIGALRM, on_tick, 0);
	make_absent(byte - 100, PAGE);
	UNTIL_TICK(got, read(pipe_ends[0], byte, 1));
	MUST(PART, got == -1 && errno == EINTR && counted >= 1);
	UNTIL_TICK(got, syscall(SYS_read, pipe_ends[0], byte, 1));
	MUST(PART, got == -1 && errno == EINTR && counted >= 1);
	feed = 1;
	install(SIGALRM, on_tick, SA_RESTART);
	UNTIL_TICK(got, read(pipe_ends[0], byte, 1));
	MUST(PART, got == 1 && *byte == 'x' && counted >= 1);
	/* Written by later ticks. */
	while (counted-- > 1)
		MUST(PART, read(pipe_ends[0], byte, 1) == 1);
	UNTIL_TICK(got, syscall(SYS_read, pipe_ends[0], byte, 1));
	MUST(PART, got == 1 && counted >= 1);
	/* A jump from a handler out of an interrupted call. */
	struct timespec long_time = {10, 0};
	feed = 0;
	install(SIGALRM, on_fault, 0);
	if (sigsetjmp(back, 1) == 0) {
		start_timer(5000, 200000);
		nanosleep(&long_time, NULL);
		fail(PART, NULL, "a jump out of nanosleep");
	}
	start_timer(0, 0);
	MUST(PART, seen_signal == SIGALRM);
	close(pipe_ends[0]), close(pipe_ends[1]);
	munmap(byte - 100, STACK);
	signal(SIGALRM, SIG_DFL);
}

/* ---- coroutines on absent stacks, under a timer ---- */
static ucontext_t main_context, contexts[COROUTINES];
static uint64_t sums[COROUTINES];

static void coroutine(int index)
{
	volatile char deep[8 * PAGE];
	for (int step = 0; step < 50; step++) {
		for (size_t at = 0; at < sizeof deep; at += 512)
			deep[at] = (char)(index + step);
		swapcontext(&contexts[index], &main_context);
		for (size_t at = 0; at < sizeof deep; at += 512)
			MUST(PART, deep[at] == (char)(index + step));
		sums[index] += step;
	}
}

static void coroutines(void)
{
	uint8_t *stacks = managed((size_t)COROUTINES * STACK);
	counted = 0;
	feed = 0;
	install(SIGALRM, on_tick, SA_RESTART);
	for (int i = 0; i < COROUTINES; i++) {
		MUST(PART, getcontext(&contexts[i]) == 0);
		contexts[i].uc_stack.ss_sp = stacks + (size_t)i * STACK;
		contexts[i].uc_stack.ss_size = STACK;
		contexts[i].uc_link = &main_context;
		sums[i] = 0;
		makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
	}
	for (int step = 0; step <= 50; step++)
		for (int i = 0; i < COROUTINES; i++) {
			/* One-shot: a handler that pages may take longer than a period. */
			if (i == 0)
				start_timer(50, 0);
			if (step % 10 == i % 10)
				make_absent(stacks, (size_t)COROUTINES * STACK);
			swapcontext(&main_context, &contexts[i]);
		}
	start_timer(0, 0);
	for (int i = 0; i < COROUTINES; i++)
		MUST(PART, sums[i] == 50 * 49 / 2);
	MUST(PART, counted > 0);
	munmap(stacks, (size_t)COROUTINES * STACK);
	signal(SIGALRM, SIG_DFL);
}

/* ---- without the C library ---- */
static void raw_mappings(void)
{
	const size_t bytes = 128 * PAGE;
	uint8_t *at = (uint8_t *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(PART, at != MAP_FAILED);
	for (size_t i = 0; i < 128; i++)
		page_stamp(at + i * PAGE, i, 9);
	make_absent(at, bytes);
	MUST(PART, syscall(SYS_mprotect, at, bytes, PROT_READ) == 0);
	for (size_t i = 0; i < 128; i++)
		page_check(PART, at + i * PAGE, i, 9);
	MUST(PART, syscall(SYS_mprotect, at, bytes, PROT_READ | PROT_WRITE) == 0);
	uint8_t *moved = (uint8_t *)syscall(SYS_mremap, at, bytes, 4 * bytes, MREMAP_MAYMOVE, 0);
	MUST(PART, moved != MAP_FAILED);
	make_absent(moved, bytes);
	for (size_t i = 0; i < 128; i++)
		page_check(PART, moved + i * PAGE, i, 9);
	MUST(PART, syscall(SYS_madvise, moved, bytes, MADV_DONTNEED) == 0);
	for (size_t i = 0; i < 4 * 128; i++)
		zero_check(PART, moved + i * PAGE, i);
	MUST(PART, syscall(SYS_munmap, moved, 4 * bytes) == 0);
}

static void raw_forks(void)
{
	static const long flags[] = {SIGCHLD, SIGCHLD | CLONE_FS};
	for (int i = 0; i < 3; i++) {
		make_absent(data, PAGES * PAGE);
		pid_t child = i < 2 ? syscall(SYS_clone, flags[i], 0, 0, 0, 0) : RAW_FORK();
		MUST(PART, child >= 0);
		if (child == 0) {
			/* Without the C library; more pages than the budget. */
			for (int round = 0; round < 3; round++) {
				look();
				churn();
			}
			for (size_t k = 0; k < PAGES; k++)
				page_stamp(data + k * PAGE, k, 8);
			syscall(SYS_exit_group, 17);
		}
		expect_status(PART, child, 17 << 8);
		look();
	}
}

/* The kernel writes the child's number to memory that may be absent, before parent and child go on. */
/* As posix_spawn of newer C libraries does: a child without the program's handlers, on a stack of its own, then one
 * with a copy of the memory, whose descriptor the kernel stores in absent memory.
 */
static int cleared(void *none)
{
	struct sigaction now;
	(void)none;
	if (sigaction(SIGUSR1, NULL, &now) || now.sa_handler != SIG_DFL)
		return 1;
	churn();
	return 19;
}

static void nothing(int signal)
{
	(void)signal;
}

static void clear_handlers(void)
{
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
	} args;
	const uint64_t clear = 1ull << 32;
	signal(SIGUSR1, nothing);
	make_absent(data, PAGES * PAGE);
	int *descriptor = (int *)(data + 9 * PAGE);
	memset(&args, 0, sizeof args);
	args.flags = clear | CLONE_PIDFD, args.exit_signal = SIGCHLD, args.pidfd = (uint64_t)descriptor;
	pid_t child = syscall(SYS_clone3, &args, sizeof args);
	if (child == 0)
		syscall(SYS_exit_group, cleared(NULL));
	MUST(PART, child > 0 && fcntl(*descriptor, F_GETFD) >= 0);
	close(*descriptor);
	expect_status(PART, child, 19 << 8);
	page_stamp(descriptor, 9, 7);
#ifdef __x86_64__
	enum { CLEAR_STACK = 256 * 1024 };
	/* The child uses the parent's stack below this frame until it ends. */
	char *stack = malloc(CLEAR_STACK);
	MUST(PART, stack != NULL);
	memset(&args, 0, sizeof args);
	args.flags = clear | CLONE_VM | CLONE_VFORK, args.exit_signal = SIGCHLD;
	args.stack = (uint64_t)stack, args.stack_size = CLEAR_STACK;
	long result;
	register long ten __asm__("r10") = 0;
	__asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\txor %%edi, %%edi\n\tcall *%[run]\n\t"
			 "mov %%eax, %%edi\n\tmov $231, %%eax\n\tsyscall\n1:"
			 : "=a"(result)
			 : "a"(SYS_clone3), "D"(&args), "S"(sizeof args), [run] "b"(cleared), "r"(ten)
			 : "rcx", "r11", "rdx", "r8", "r9", "memory");
	MUST(PART, result > 0);
	expect_status(PART, (pid_t)result, 19 << 8);
	free(stack);
#endif
	signal(SIGUSR1, SIG_DFL);
}

/* A thread that asks for descriptors of its own is refused in inline and protect mode, as it would not have those that the pager
 * opens later. It still has its memory. */
static void *alone(void *none)
{
	long closed = syscall(SYS_close_range, 1000, ~0U, 2 /* CLOSE_RANGE_UNSHARE */);
	MUST(PART, closed == 0 || (closed == -1 && errno == EINVAL));
	look();
	return none;
}

static void own_descriptors(void)
{
	pthread_t thread;
	MUST(PART, pthread_create(&thread, NULL, alone, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

/* A signal ends a send without a receiver: the call returns what was sent, and does not try the rest again. On a busy
 * machine the first tick may precede the call.
 */
static void short_send(void)
{
	const size_t bytes = 1 << 20;
	struct sigaction action = {.sa_handler = nothing}, before;
	struct itimerval soon = {{0, 200000}, {0, 30000}}, off = {{0, 0}, {0, 0}};
	int ends[2];
	char *buffer = malloc(bytes);
	MUST(PART, buffer != NULL && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	memset(buffer, 1, bytes);
	MUST(PART, sigaction(SIGALRM, &action, &before) == 0 && setitimer(ITIMER_REAL, &soon, NULL) == 0);
	ssize_t done = write(ends[0], buffer, bytes);
	MUST(PART, done > 0 && done < (ssize_t)bytes);
	MUST(PART, setitimer(ITIMER_REAL, &off, NULL) == 0 && sigaction(SIGALRM, &before, NULL) == 0);
	free(buffer);
	close(ends[0]), close(ends[1]);
}

/* An endless device fills any buffer. */
static void endless(void)
{
	const size_t bytes = 3 << 20;
	int zeros = open("/dev/zero", O_RDONLY);
	char *buffer = malloc(bytes);
	MUST(PART, zeros >= 0 && buffer != NULL && read(zeros, buffer, bytes) == (ssize_t)bytes);
	free(buffer);
	close(zeros);
}

static void parent_tids(void)
{
	for (size_t i = 0; i < 3; i++) {
		make_absent(data, PAGES * PAGE);
		pid_t *word = (pid_t *)(data + (i + 1) * 7 * PAGE);
		pid_t child = syscall(SYS_clone, SIGCHLD | CLONE_PARENT_SETTID, 0, word, 0, 0);
		MUST(PART, child >= 0);
		if (child == 0) {
			churn();
			syscall(SYS_exit_group, 18);
		}
		MUST(PART, *word == child);
		expect_status(PART, child, 18 << 8);
		page_stamp(word, (i + 1) * 7, 7);
	}
	look();
}

static void vforks(void)
{
	for (volatile int i = 0; i < 3; i++) {
		make_absent(data, PAGES * PAGE);
		pid_t child = vfork();
		MUST(PART, child >= 0);
		if (child == 0) {
			execlp("sh", "sh", "-c", "exit 19", NULL);
			_exit(99);
		}
		expect_status(PART, child, 19 << 8);
	}
	pid_t child = vfork();
	if (child == 0)
		_exit(21);
	expect_status(PART, child, 21 << 8);
}

/* ---- refused, or not ---- */
static void refusals(bool caught)
{
	uint8_t *params = data;
	uint8_t zeros[120] = {0};
	long ring = syscall(425 /* io_uring_setup */, 4, zeros);
	if (caught)
		MUST(PART, ring == -1 && errno == ENOSYS);
	if (ring >= 0)
		close((int)ring);
	MUST(PART, params != NULL);
	if (caught) {
		MUST(PART, syscall(SYS_seccomp, 1, 0, NULL) == -1 && errno == EINVAL);
		MUST(PART, prctl(PR_SET_SECCOMP, 1) == -1 && errno == EINVAL);
		/* PR_SET_SYSCALL_USER_DISPATCH */
		MUST(PART, prctl(59, 0, 0, 0, 0) == -1 && errno == EINVAL);
	}
	look();
	/* Unmapped addresses stay EFAULT. */
	MUST(PART, syscall(SYS_write, 1, (void *)8, 1) == -1 && errno == EFAULT);
	MUST(PART, syscall(SYS_pipe2, (void *)8, 0) == -1 && errno == EFAULT);
	MUST(PART, syscall(SYS_rt_sigaction, SIGUSR1, (void *)8, NULL, 8) == -1 && errno == EFAULT);
	MUST(PART, syscall(SYS_rt_sigprocmask, SIG_BLOCK, (void *)8, NULL, 8) == -1 && errno == EFAULT);
	MUST(PART, syscall(SYS_execve, (void *)8, NULL, NULL) == -1 && errno == EFAULT);
	MUST(PART, syscall(0x7777) == -1 && errno == ENOSYS);
}

/* ---- cancellation ---- */
static void *blocked(void *end)
{
	char *byte = (char *)data + 3;
	for (;;)
		if (read((int)(intptr_t)end, byte, 8) < 0)
			return NULL;
}

static void cancellation(void)
{
	int ends[2], counter = eventfd(0, 0);
	void *result;
	pthread_t thread;
	MUST(PART, pipe(ends) == 0 && counter >= 0);
	for (int i = 0; i < 8; i++) {
		/* A pipe keeps undelivered data; an event counter does not. */
		int from = i % 4 < 2 ? ends[0] : counter;
		MUST(PART, pthread_create(&thread, NULL, blocked, (void *)(intptr_t)from) == 0);
		/* The thread is cancelled before the call or in it: the test wants both. */
		if (i % 2)
			usleep(3000);
		MUST(PART, pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
		MUST(PART, result == PTHREAD_CANCELED);
	}
	close(ends[0]), close(ends[1]), close(counter);
}

static void *detached(void *index)
{
	look();
	return index;
}

void part_guard(void)
{
	struct deadline until = deadline_new();
	bool caught = calls_are_caught();
	data = managed(PAGES * PAGE);
	for (size_t i = 0; i < PAGES; i++)
		page_stamp(data + i * PAGE, i, 7);
	do {
		own_faults();
		masks();
		interrupted();
		coroutines();
		refusals(caught);
		cancellation();
		run_threads(PART, opt.threads, detached);
		vforks();
		/* Only inline mode sees calls made without the C library. */
		if (caught) {
			raw_mappings();
			raw_forks();
			parent_tids();
			clear_handlers();
			own_descriptors();
			endless();
			short_send();
		}
	} while (!deadline_passed(&until));
	count_absent(data, PAGES * PAGE);
	munmap(data, PAGES * PAGE);
}
