/* A signal that arrives while a call ends: its handler runs at once, not with the thread's next call.
 *
 * One thread makes a call and then waits for the signal without calls; another signals it around the end of that call.
 *
 * usage: late SIGNALS        Exit code 1 at the first signal that did not come within a second.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Longest pause of the sender, in turns of a loop: longer than a call under the guard. */
#define TURNS 8000

static atomic_int asked, sent, came;
static pid_t waiter;

static void note(int signal)
{
	(void)signal;
	came = 1;
}

static void *send(void *none)
{
	unsigned random = 1;
	for (;;) {
		while (!asked)
			;
		asked = 0;
		random = random * 1103515245 + 12345;
		for (volatile unsigned turn = 0; turn < (random >> 8) % TURNS; turn++)
			;
		syscall(SYS_tgkill, getpid(), waiter, SIGUSR1);
		sent = 1;
	}
	return none;
}

/* Without a call: the C library reads the clock in memory. */
static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = note};
	pthread_t sender;
	int signals = argc == 2 ? atoi(argv[1]) : 0;
	if (signals < 1)
		return 2;
	waiter = syscall(SYS_gettid);
	sigaction(SIGUSR1, &action, NULL);
	pthread_create(&sender, NULL, send, NULL);
	for (int i = 0; i < signals; i++) {
		double since;
		sent = came = 0;
		asked = 1;
		for (int call = 0; call < 3; call++)
			syscall(SYS_getppid);
		while (!sent && !came)
			;
		since = now();
		while (!came)
			if (now() - since > 1) {
				printf("signal %d of %d did not come\n", i + 1, signals);
				return 1;
			}
		/* The sender may not have said so yet. */
		while (!sent)
			;
	}
	printf("%d signals came\n", signals);
	return 0;
}
