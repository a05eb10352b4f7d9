/* CPU time of a process without faults: prints the milliseconds that all its threads, the pager's
 * included, and its parent (flashvm) used while it slept.
 *
 * usage: idle MIB SLEEP_SECONDS
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static double own_ms(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
	       (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static double parent_ms(void)
{
	char path[64];
	unsigned long user = 0, system = 0;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)getppid());
	FILE *f = fopen(path, "r");
	if (!f)
		return 0;
	if (fscanf(f, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
		   &system) != 2)
		user = system = 0;
	fclose(f);
	return (user + system) * 1e3 / sysconf(_SC_CLK_TCK);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	size_t bytes = strtoul(argv[1], NULL, 10) << 20;
	char *data = malloc(bytes);
	if (!data)
		return 2;
	for (size_t i = 0; i < bytes; i += 4096)
		data[i] = (char)i + 1;
	/* Write-back of the fill may go on: wait for a tenth of a second without CPU time. */
	double own = own_ms(), parent = parent_ms(), before = -1;
	for (int looks = 0; own + parent != before && looks < 100; looks++) {
		before = own + parent;
		usleep(100000);
		own = own_ms(), parent = parent_ms();
	}
	sleep(strtoul(argv[2], NULL, 10));
	own = own_ms() - own;
	parent = parent_ms() - parent;
	printf("idle: own %.1f ms, parent %.1f ms\n", own, parent);
	return data[0] != 1;
}
