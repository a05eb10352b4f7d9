/* Buffered streams over memory that does not fit: the C library reads and writes such memory by calls of its own, which
 * look for no symbol. Under the guard its `read` and `write` lead to the pager's (flashvm-preload/src/detour.rs).
 *
 * usage: streams MIB jump|plain: whether both functions must begin with the jump. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* A number that depends on its place and on the round. */
static unsigned long word(size_t at, unsigned long round) {
    return (at + 1) * 0x9e3779b97f4a7c15ul ^ round;
}

/* Writes an array through a stream and reads it into another: by pieces of all sizes, smaller and larger than the buffer of
 * a stream. */
static void pass(unsigned long *from, unsigned long *to, size_t words, unsigned long round) {
    FILE *file = tmpfile();
    if (!file) fail("tmpfile");
    for (size_t i = 0; i < words; i++) from[i] = word(i, round);
    for (size_t done = 0, piece = 1; done < words; done += piece, piece = piece * 3 % 200003 + 1) {
        if (piece > words - done) piece = words - done;
        if (fwrite(from + done, sizeof *from, piece, file) != piece) fail("fwrite");
    }
    if (fflush(file)) fail("fflush");
    memset(to, 0, words * sizeof *to);
    rewind(file);
    for (size_t done = 0, piece = 7; done < words; done += piece, piece = piece * 5 % 300007 + 1) {
        if (piece > words - done) piece = words - done;
        if (fread(to + done, sizeof *to, piece, file) != piece) fail("fread");
    }
    for (size_t i = 0; i < words; i++)
        if (to[i] != word(i, round)) {
            fprintf(stderr, "streams: word %zu of round %lu is %#lx\n", i, round, to[i]);
            exit(1);
        }
    if (fgetc(file) != EOF || fclose(file)) fail("fclose");
}

struct ends {
    int from, to;
};

/* A pipe holds less than a stream writes at once, so that both ends wait. */
static void *send(void *argument) {
    struct ends *ends = argument;
    FILE *file = fdopen(ends->to, "w");
    for (int i = 0; i < 200000; i++) fprintf(file, "line %d\n", i);
    if (fclose(file)) fail("fclose of a pipe");
    return NULL;
}

static volatile sig_atomic_t alarms;

static void on_alarm(int number) {
    (void)number;
    alarms++;
}

static void through_a_pipe(void) {
    int ends[2];
    if (pipe(ends)) fail("pipe");
    struct ends both = {ends[0], ends[1]};
    pthread_t thread;
    if (pthread_create(&thread, NULL, send, &both)) fail("pthread_create");
    FILE *file = fdopen(ends[0], "r");
    char *line = NULL;
    size_t room = 0;
    int next = 0, found;
    while (getline(&line, &room, file) > 0)
        if (sscanf(line, "line %d", &found) != 1 || found != next++) fail("a line is not the next");
    if (next != 200000 || pthread_join(thread, NULL) || fclose(file)) fail("lines are missing");
    free(line);
}

static void *read_for_ever(void *argument) {
    int *ends = argument;
    FILE *file = fdopen(ends[0], "r");
    fgetc(file);
    return NULL;
}

/* A thread that waits in a stream can be cancelled, and a signal without SA_RESTART ends the wait. */
static void interrupted(void) {
    int ends[2];
    if (pipe(ends)) fail("pipe");
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, NULL, read_for_ever, ends)) fail("pthread_create");
    usleep(20000);
    if (pthread_cancel(thread) || pthread_join(thread, &result) || result != PTHREAD_CANCELED) fail("pthread_cancel");
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    ualarm(20000, 0);
    if (pipe(ends)) fail("pipe");
    FILE *file = fdopen(ends[0], "r");
    if (fgetc(file) != EOF || !ferror(file) || errno != EINTR || alarms != 1) fail("a signal did not end fgetc");
    /* Nobody reads: the error is the program's to see. */
    signal(SIGPIPE, SIG_IGN);
    close(ends[0]);
    file = fdopen(ends[1], "w");
    fputs("x", file);
    if (fflush(file) != EOF || errno != EPIPE) fail("fflush did not report EPIPE");
}

static int jumps(const char *name) {
    const unsigned char *code = dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), name);
    return code && code[0] == 0xff && code[1] == 0x25;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    size_t words = (size_t)atoi(argv[1]) * (1 << 20) / sizeof(long) / 2;
    int must = !strcmp(argv[2], "jump");
    if (jumps("read") != must || jumps("write") != must) {
        fprintf(stderr, "streams: read and write %s with a jump\n", must ? "do not begin" : "begin");
        return 1;
    }
    unsigned long *from = malloc(words * sizeof *from), *to = malloc(words * sizeof *to);
    if (!from || !to) fail("malloc");
    for (unsigned long round = 0; round < 3; round++) pass(from, to, words, round);
    through_a_pipe();
    interrupted();
    puts("streams: all checks held");
    return 0;
}
