/* signals: handlers and threads touch managed memory that is mostly absent; alternate stacks are managed
 * too; timers, signals between threads, jumps out of a handler, and faults of threads that block every
 * signal.
 */
#include "torture.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

static const char *const PART = "signals";
enum { STACK_BYTES = 256 * 1024, HANDLER_PAGES = 64 };

static uint8_t *fixed;	   /* never changes: any handler may verify any page */
static size_t fixed_pages;
static uint8_t *rewritten; /* by threads, a share each */
static size_t share_pages;
static struct deadline until;
static pthread_t threads[64];
static uint8_t *handler_pages[65]; /* one page per thread, rewritten by its handler */
static volatile uint32_t *handler_generation;
static uint8_t *waits; /* a page of arguments for each thread's system calls */
static _Atomic int finished;
static _Atomic unsigned long alarms, user_signals, jumps;
static __thread int self_index;
static __thread uint64_t handler_rng;
static __thread volatile sig_atomic_t in_handler;

static void handler_work(void)
{
	int saved = errno;
	handler_rng = handler_rng * 6364136223846793005ull + 1442695040888963407ull;
	for (int k = 0; k < 3; k++) {
		size_t i = (handler_rng >> (8 * k + 11)) % fixed_pages;
		page_check(PART, fixed + i * PAGE, i, 42);
	}
	/* This thread's page; the handler runs with its signals blocked. */
	size_t i = (handler_rng >> 40) % HANDLER_PAGES;
	size_t slot = self_index * HANDLER_PAGES + i;
	uint8_t *page = handler_pages[self_index] + i * PAGE;
	page_check(PART, page, i, handler_generation[slot]);
	handler_generation[slot]++;
	page_stamp(page, i, handler_generation[slot]);
	/* A frame that reaches absent pages of the alternate stack. */
	volatile char frame[64 * 1024];
	for (size_t at = 0; at < sizeof frame; at += PAGE)
		frame[at] = (char)at;
	errno = saved;
}

static void on_alarm(int number)
{
	(void)number;
	alarms++;
	handler_work();
}

static void on_user(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	MUST(PART, info->si_signo == SIGUSR1);
	user_signals++;
	handler_work();
}

static sigjmp_buf jump_target;

static void on_jump(int number)
{
	(void)number;
	page_check(PART, fixed, 0, 42);
	siglongjmp(jump_target, 1);
}

static void enter_thread(int index, uint8_t **stack)
{
	self_index = index;
	handler_rng = opt.seed + index;
	*stack = malloc(STACK_BYTES);
	MUST(PART, *stack != NULL);
	memset(*stack, 1, STACK_BYTES);
	stack_t alternate = {.ss_sp = *stack, .ss_size = STACK_BYTES};
	MUST(PART, sigaltstack(&alternate, NULL) == 0);
}

static void leave_thread(uint8_t *stack)
{
	stack_t none = {.ss_flags = SS_DISABLE}, before;
	MUST(PART, sigaltstack(&none, &before) == 0);
	if (before.ss_sp != stack || before.ss_size != STACK_BYTES)
		fail(PART, stack, "the alternate stack that was set; found %p of %zu bytes",
		     before.ss_sp, before.ss_size);
	free(stack);
}

/* Until the part's time is over and signals of both kinds have come: on a loaded machine up to 60 s later. */
static bool goes_on(void)
{
	return !deadline_passed(&until) || ((!alarms || !user_signals) && now_seconds() < until.at + 60);
}

static void *signal_thread(void *index)
{
	const size_t base = (size_t)(intptr_t)index * share_pages;
	struct rng r = rng_new(500 + (intptr_t)index);
	uint32_t *generation = unmanaged_shared(share_pages * sizeof *generation);
	uint8_t *stack;
	enter_thread((int)(intptr_t)index, &stack);
	sigset_t wanted;
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGUSR1);
	sigaddset(&wanted, SIGALRM);
	MUST(PART, pthread_sigmask(SIG_UNBLOCK, &wanted, NULL) == 0);
	while (goes_on()) {
		sigset_t all, before;
		bool blocked = rng_one_in(&r, 3);
		if (blocked) {
			sigfillset(&all);
			MUST(PART, pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
		}
		for (int k = 0; k < 50; k++) {
			size_t i = rng_below(&r, share_pages);
			uint8_t *page = rewritten + (base + i) * PAGE;
			if (generation[i])
				page_check(PART, page, base + i, generation[i]);
			page_stamp(page, base + i, ++generation[i]);
		}
		if (blocked) {
			sigset_t now;
			MUST(PART, pthread_sigmask(SIG_SETMASK, &before, &now) == 0);
			if (!sigismember(&now, SIGUSR1) || !sigismember(&now, SIGALRM))
				fail(PART, &now, "a mask with SIGUSR1 and SIGALRM blocked");
		}
		if (rng_one_in(&r, 4))
			make_absent(stack, STACK_BYTES);
		pthread_kill(threads[rng_below(&r, opt.threads)], SIGUSR1);
		if (rng_one_in(&r, 8))
			raise(SIGUSR1);
		if (rng_one_in(&r, 16)) {
			/* A signal interrupts a system call on managed memory. */
			struct timespec *wait = (void *)(waits + PAGE * (intptr_t)index);
			wait->tv_sec = 0;
			wait->tv_nsec = 300000;
			nanosleep(wait, NULL);
		}
	}
	for (size_t i = 0; i < share_pages; i++)
		if (generation[i])
			page_check(PART, rewritten + (base + i) * PAGE, base + i, generation[i]);
	/* No signals to an ended thread. */
	finished++;
	while (finished < opt.threads)
		usleep(1000);
	leave_thread(stack);
	munmap(generation, share_pages * sizeof *generation);
	return NULL;
}

static void set_handler(int number, void (*plain)(int), void (*full)(int, siginfo_t *, void *),
			int flags)
{
	struct sigaction action = {.sa_flags = flags | (full ? SA_SIGINFO : 0)};
	if (full)
		action.sa_sigaction = full;
	else
		action.sa_handler = plain;
	sigfillset(&action.sa_mask);
	MUST(PART, sigaction(number, &action, NULL) == 0);
}

static void jump_out(void)
{
	set_handler(SIGUSR2, on_jump, NULL, 0);
	for (int k = 0; k < 50; k++) {
		if (sigsetjmp(jump_target, 1) == 0) {
			madvise(fixed, PAGE, MADV_PAGEOUT);
			raise(SIGUSR2);
			fail(PART, NULL, "a jump out of the handler");
		}
		jumps++;
	}
	/* Wait for a signal; the kernel writes siginfo to an absent page. */
	sigset_t one;
	sigemptyset(&one);
	sigaddset(&one, SIGUSR2);
	MUST(PART, pthread_sigmask(SIG_BLOCK, &one, NULL) == 0);
	siginfo_t *info = (siginfo_t *)managed(PAGE * 16);
	make_absent(info, PAGE * 16);
	raise(SIGUSR2);
	MUST(PART, sigwaitinfo(&one, info) == SIGUSR2 && info->si_pid == getpid());
	munmap(info, PAGE * 16);
	MUST(PART, pthread_sigmask(SIG_UNBLOCK, &one, NULL) == 0);
}

void part_signals(void)
{
	fixed_pages = (opt.mib << 20) / PAGE / 2;
	share_pages = (opt.mib << 20) / PAGE / 2 / opt.threads;
	fixed = managed(fixed_pages * PAGE);
	rewritten = managed(share_pages * opt.threads * PAGE);
	handler_generation = unmanaged_shared(65 * HANDLER_PAGES * sizeof *handler_generation);
	for (int t = 0; t < 65; t++) {
		handler_pages[t] = managed(HANDLER_PAGES * PAGE);
		for (size_t i = 0; i < HANDLER_PAGES; i++)
			page_stamp(handler_pages[t] + i * PAGE, i, 0);
	}
	for (size_t i = 0; i < fixed_pages; i++)
		page_stamp(fixed + i * PAGE, i, 42);
	until = deadline_new();
	set_handler(SIGALRM, on_alarm, NULL, SA_ONSTACK | SA_RESTART);
	set_handler(SIGUSR1, NULL, on_user, SA_ONSTACK | SA_RESTART);
	alarms = user_signals = jumps = 0;
	finished = 0;
	waits = managed(64 * PAGE);

	/* The main thread takes alarms too, as number 64. */
	uint8_t *stack;
	enter_thread(64, &stack);
	jump_out();
	sigset_t user, before;
	sigemptyset(&user);
	sigaddset(&user, SIGUSR1);
	sigaddset(&user, SIGALRM);
	/* Threads start with the signals blocked and the timer off, so that every target exists. */
	MUST(PART, pthread_sigmask(SIG_BLOCK, &user, &before) == 0);
	for (intptr_t i = 0; i < opt.threads; i++)
		threads[i] = pthread_self();
	for (intptr_t i = 0; i < opt.threads; i++) {
		pthread_t t;
		MUST(PART, pthread_create(&t, NULL, signal_thread, (void *)i) == 0);
		threads[i] = t;
	}
	struct itimerval every = {{0, 2000}, {0, 2000}};
	MUST(PART, setitimer(ITIMER_REAL, &every, NULL) == 0);
	MUST(PART, pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
	while (goes_on()) {
		make_absent(stack, STACK_BYTES);
		/* Time for handlers to use the stack again. */
		usleep(500);
	}
	for (int i = 0; i < opt.threads; i++)
		MUST(PART, pthread_join(threads[i], NULL) == 0);
	struct itimerval off = {0};
	MUST(PART, setitimer(ITIMER_REAL, &off, NULL) == 0);
	leave_thread(stack);
	signal(SIGALRM, SIG_IGN);
	for (int t = 0; t < 65; t++) {
		for (size_t i = 0; i < HANDLER_PAGES; i++)
			page_check(PART, handler_pages[t] + i * PAGE, i,
				   handler_generation[t * HANDLER_PAGES + i]);
		munmap(handler_pages[t], HANDLER_PAGES * PAGE);
	}
	for (size_t i = 0; i < fixed_pages; i++)
		page_check(PART, fixed + i * PAGE, i, 42);
	munmap(waits, 64 * PAGE);
	munmap(fixed, fixed_pages * PAGE);
	munmap(rewritten, share_pages * opt.threads * PAGE);
	if (!alarms || !user_signals)
		fail(PART, NULL, "signals of both kinds; found %lu alarms, %lu user signals", alarms,
		     user_signals);
}
