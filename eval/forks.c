/* What a fork costs while many children live: a server with a process for each connection.
 *
 * usage: forks CHILDREN MIB       Fills MIB MiB and forks children that wait; prints ms a fork for each 50 of them.
 *        cc -O2 -o forks eval/forks.c && flashvm run --ram 128M -- ./forks 200 16
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EACH 50

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	int children = argc > 2 ? atoi(argv[1]) : 0, go[2], status;
	size_t bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 0) << 20;
	char *at = malloc(bytes), byte;
	if (children < 1 || !bytes || !at || pipe(go)) {
		fprintf(stderr, "usage: %s CHILDREN MIB\n", argv[0]);
		return 2;
	}
	memset(at, 1, bytes);
	double begun = now();
	for (int i = 1; i <= children; i++) {
		pid_t child = fork();
		if (child < 0) {
			perror("fork");
			return 1;
		}
		if (child == 0) {
			close(go[1]);
			_exit(read(go[0], &byte, 1) != 0 || at[bytes - 1] != 1);
		}
		if (i % EACH == 0) {
			printf("%d children: %.1f ms a fork\n", i, (now() - begun) * 1e3 / EACH);
			fflush(stdout);
			begun = now();
		}
	}
	close(go[1]);
	for (int i = 0; i < children; i++)
		if (wait(&status) < 0 || status) {
			fprintf(stderr, "a child failed\n");
			return 1;
		}
	return 0;
}
