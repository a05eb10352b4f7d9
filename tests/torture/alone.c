/* What the C library knows of the pager's threads: nothing, so that a program of one thread pays for no locks. But they follow
 * a change of user, which the kernel makes for each thread alone.
 *
 * usage: alone yes|no: whether the C library must say that there is one thread. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *what) {
    fprintf(stderr, "alone: %s (%s)\n", what, strerror(errno));
    exit(1);
}

/* Checks a line of all threads' status. Returns the number of threads. The kernel's own workers of an io_uring (iou-...) work as
 * the user of each request. */
static int check_threads(const char *key, const char *value) {
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) fail("no /proc/self/task");
    int count = 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.') continue;
        char path[300], line[200];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        if (!status) fail(path);
        int found = 0, is_kernels = 0;
        while (fgets(line, sizeof line, status))
            if (!strncmp(line, "Name:\tiou-", 10)) {
                is_kernels = 1;
            } else if (!strncmp(line, key, strlen(key))) {
                char *end = line + strlen(line);
                while (end > line && (end[-1] == '\n' || end[-1] == ' ')) *--end = 0;
                if (!is_kernels && strcmp(line + strlen(key), value)) {
                    fprintf(stderr, "alone: thread %s has %s, not %s\n", task->d_name, line, value);
                    exit(1);
                }
                found = 1;
            }
        fclose(status);
        if (!found) fail("no such line");
        count += !is_kernels;
    }
    closedir(tasks);
    return count;
}

static void must_be(const char *expected) {
    if (__libc_single_threaded != !strcmp(expected, "yes")) fail(expected);
}

/* The list of groups begins memory that is larger than RAM, so it has left when the rest has been filled. */
static void change_groups(const char *expected, gid_t first, const char *line) {
    size_t words = 8 << 20;
    gid_t *groups = malloc(words * sizeof *groups);
    for (size_t i = 0; i < words; i++) groups[i] = first + (i == 1);
    if (setgroups(2, groups)) fail("setgroups");
    free(groups);
    check_threads("Groups:\t", line);
    must_be(expected);
}

static void *wait_for(void *gate) {
    pthread_barrier_wait(gate);
    pthread_barrier_wait(gate);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    must_be(argv[1]);
    int before = check_threads("Uid:\t", "0\t0\t0\t0");
    if (before < 2) fail("the pager has no thread");
    change_groups(argv[1], 4711, "4711 4712");
    pid_t child = fork();
    if (child == 0) {
        must_be(argv[1]);
        if (check_threads("Groups:\t", "4711 4712") < 2) fail("the pager of the child has no thread");
        change_groups(argv[1], 815, "815 816");
        if (setresuid(1000, 1001, 1002)) fail("setresuid");
        check_threads("Uid:\t", "1000\t1001\t1002\t1001");
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status) fail("the child failed");
    check_threads("Groups:\t", "4711 4712");

    /* Several threads: the C library makes each repeat the call. */
    pthread_barrier_t gate;
    pthread_t threads[3];
    pthread_barrier_init(&gate, NULL, 4);
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, wait_for, &gate)) fail("pthread_create");
    pthread_barrier_wait(&gate);
    change_groups("no", 99, "99 100");
    if (setgid(65534) || setuid(65534)) fail("setuid");
    if (check_threads("Uid:\t", "65534\t65534\t65534\t65534") != before + 3) fail("a thread is missing");
    check_threads("Gid:\t", "65534\t65534\t65534\t65534");
    if (!setuid(0)) fail("an ordinary user became root");
    check_threads("Uid:\t", "65534\t65534\t65534\t65534");
    pthread_barrier_wait(&gate);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    puts("alone: all checks held");
    return 0;
}
