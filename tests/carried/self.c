// What a program sees of itself: name, path, arguments, auxiliary vector, errno and thread-local storage by thread, and a
// child that executes the same file. Prints the same carried or not.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static __thread int mark = 42;

static void *other(void *number) {
	char name[64];
	mark += (int)(long)number;
	for (int i = 0; i < 2000; i++) {
		errno = 0;
		snprintf(name, sizeof name, "/no/such/file/%ld", (long)number);
		if (open(name, O_RDONLY) != -1 || errno != ENOENT)
			return "wrong errno";
		if (close(-1 - (int)(long)number) != -1 || errno != EBADF)
			return "wrong errno";
	}
	return mark == 42 + (int)(long)number ? NULL : "wrong thread-local value";
}

int main(int count, char **words) {
	char path[4096] = "", name[16] = "";
	if (readlink("/proc/self/exe", path, sizeof path - 1) < 0)
		perror("readlink");
	struct stat by_path, by_name;
	int same = stat("/proc/self/exe", &by_path) == 0 && stat(path, &by_name) == 0 && by_path.st_ino == by_name.st_ino;
	int again = count > 1 && strcmp(words[1], "again") == 0;
	printf("%s %d %s %s\n", path, same, words[0], count > 1 ? words[1] : "-");
	// Where a program executes /proc/self/exe, the kernel would give these by that path.
	if (again && prctl(PR_GET_NAME, name) == 0)
		printf("%s %s\n", name, (char *)getauxval(AT_EXECFN));
	FILE *line = fopen("/proc/self/cmdline", "r");
	printf("%zu bytes of words\n", line ? fread(path, 1, sizeof path, line) : 0);
	printf("%d\n", getauxval(AT_PHDR) != 0 && getauxval(AT_ENTRY) != 0);
	pthread_t threads[8];
	for (long i = 0; i < 8; i++)
		if (pthread_create(&threads[i], NULL, other, (void *)i))
			return 1;
	for (int i = 0; i < 8; i++) {
		void *wrong;
		pthread_join(threads[i], &wrong);
		if (wrong)
			printf("thread %d: %s\n", i, (char *)wrong);
	}
	size_t bytes = 24 << 20;
	unsigned char *memory = malloc(bytes);
	unsigned long sum = 0;
	for (size_t i = 0; i < bytes; i++)
		memory[i] = (unsigned char)(i * 2654435761u >> 13);
	if (again) {
		fflush(stdout);
		if (chdir("/"))
			perror("chdir");
		pid_t child = fork();
		if (child == 0) {
			for (size_t i = 0; i < bytes; i += 4096)
				sum += memory[i];
			printf("child %lu\n", sum);
			fflush(stdout);
			execl("/proc/self/exe", "itself", "once", NULL);
			_exit(9);
		}
		int status;
		waitpid(child, &status, 0);
		printf("status %d\n", status);
	}
	for (size_t i = 0; i < bytes; i++)
		sum = sum * 31 + memory[i];
	printf("%lu %d\n", sum, mark);
	return 5;
}
