/* A thread signals its process, and the main thread sleeps: the kernel gives the signal to the main thread.
 *
 * Exit code 0 if it got nearly all signals. On a busy machine the sender may be faster now and then.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define SIGNALS 200

static pthread_t first;
static volatile int of_first, of_others;

static void count(int signal)
{
	(void)signal;
	if (pthread_equal(pthread_self(), first))
		of_first++;
	else
		of_others++;
}

static void *send(void *none)
{
	for (int i = 0; i < SIGNALS; i++) {
		usleep(3000);
		kill(getpid(), SIGUSR1);
	}
	return none;
}

int main(void)
{
	struct sigaction action = {.sa_handler = count};
	struct timespec pause = {0, 50000000};
	pthread_t sender;
	first = pthread_self();
	sigaction(SIGUSR1, &action, NULL);
	pthread_create(&sender, NULL, send, NULL);
	for (int i = 0; of_first + of_others < SIGNALS && i < 1000; i++)
		nanosleep(&pause, NULL);
	pthread_join(sender, NULL);
	printf("%d signals of the main thread, %d of the sender\n", of_first, of_others);
	return of_others > SIGNALS / 10;
}
