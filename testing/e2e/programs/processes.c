// Processes that a program with far memory makes, and programs that they execute.
//
// Usage: processes FOLDER [REMOTE]. REMOTE says that far memory is on a node: a forked child then ends when it touches a page that
// is not here, so what children do with remote pages is left out.

#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

extern char **environ;

enum { DATA = 8 << 20 };
static unsigned char *data;
static int has_remote_node;
static const char *folder;

// Whether a child ended with this code. Waits with a status in far memory.
static int ended(pid_t child, int code) {
    int *status = NEW(int);
    return child > 0 && waitpid(child, COLD(status), 0) == child && WIFEXITED(*status) && WEXITSTATUS(*status) == code;
}

static void *allocate_much(void *unused) {
    (void)unused;
    return malloc(2 * MIB);
}

static void forks(void) {
    fill(data, DATA, 1);
    int *ends = paged(8);
    if (pipe(ends) != 0) exit(1);
    pid_t child = fork();
    if (child == 0) {
        // What was there at the fork, while the parent writes other things.
        char go;
        int is_right = read(ends[0], &go, 1) == 1 && is_filled(data, DATA, 1);
        fill(data, DATA, 2);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            is_right = is_right && is_filled(data, DATA, 2);
            fill(data, DATA, 3);
            unsigned char *more = malloc(3 * MIB);
            fill(more, 3 * MIB, 4);
            _exit(is_right && is_filled(data, DATA, 3) && is_filled(more, 3 * MIB, 4) ? 21 : 1);
        }
        is_right = is_right && ended(grandchild, 21) && is_filled(data, DATA, 2);
        free(data);
        data = malloc(DATA);
        fill(data, DATA, 5);
        _exit(is_right && is_filled(data, DATA, 5) ? 22 : 1);
    }
    fill(data, DATA, 6);
    sweep();
    check("write to the child", write(ends[1], "x", 1) == 1);
    check("a child and its child have what was there", ended(child, 22));
    check("the parent has its own", is_filled(data, DATA, 6));
    int is_right = 1;
    for (int turn = 0; turn < 20; turn++) {
        data[turn * 100003] = (unsigned char)turn;
        child = fork();
        if (child == 0) _exit(data[turn * 100003] == turn && is_filled_from(data, DATA - PAGE, DATA, 6) ? turn : 99);
        sweep();
        is_right = is_right && ended(child, turn);
    }
    check("many children", is_right);
    // System calls on far memory in a child, and output of streams.
    char *path = malloc(300);
    snprintf(path, 300, "%s/child", folder);
    cold_bytes(data, DATA / 2);
    child = fork();
    if (child == 0) {
        FILE *stream = fopen(path, "w+");
        is_right = stream != NULL && fwrite(data, 1, DATA / 2, stream) == DATA / 2 && fflush(stream) == 0;
        unsigned char *back = malloc(DATA / 2);
        is_right = is_right && pread(fileno(stream), back, DATA / 2, 0) == DATA / 2 && memcmp(back, data, DATA / 2) == 0;
        exit(is_right ? 23 : 1);
    }
    check("a child's system calls", ended(child, 23));
    child = fork();
    if (child == 0) {
        pthread_t thread;
        is_right = pthread_create(&thread, NULL, allocate_much, NULL) == 0;
        void *made = NULL;
        is_right = is_right && pthread_join(thread, &made) == 0 && made != NULL;
        memset(made, 1, 2 * MIB);
        free(made);
        _exit(is_right ? 24 : 1);
    }
    check("a child's thread", ended(child, 24));
}

static volatile int is_over;

static void *allocate_and_sweep(void *unused) {
    while (!is_over) {
        unsigned char *block = malloc(300000);
        memset(block, 1, 300000);
        sweep();
        free(block);
    }
    return unused;
}

static void forks_of_many_threads(void) {
    pthread_t threads[4];
    for (int index = 0; index < 4; index++) pthread_create(&threads[index], NULL, allocate_and_sweep, NULL);
    int is_right = 1;
    for (int turn = 0; turn < 10; turn++) {
        pid_t child = fork();
        if (child == 0) {
            if (has_remote_node) _exit(30);
            unsigned char *block = malloc(500000);
            memset(block, turn, 500000);
            int is_right_there = is_filled_from(data, DATA / 2, DATA, 7);
            free(block);
            _exit(is_right_there ? 30 : 1);
        }
        is_right = is_right && ended(child, 30);
    }
    is_over = 1;
    for (int index = 0; index < 4; index++) pthread_join(threads[index], NULL);
    check("children of a process whose threads allocate", is_right);
}

// A shell that ends with 7 if the argument and the variable are right.
static const char *script = "test \"$1\" = argument && test \"$FAR_VARIABLE\" = value && exit 7; exit 1";

static char **cold_list(char **texts) {
    int count = 0;
    while (texts[count] != NULL) count++;
    char **list = paged((size_t)(count + 1) * sizeof *list);
    for (int index = 0; index < count; index++) list[index] = cold_text(texts[index]);
    for (int index = 0; index < count; index++) cold_bytes(list[index], 1);
    return cold_bytes(list, (size_t)(count + 1) * sizeof *list);
}

static void executions(void) {
    char *script_copy = strdup(script);
    char *arguments[] = {"sh", "-c", script_copy, "sh", "argument", NULL};
    char *environment[] = {"FAR_VARIABLE=value", "PATH=/usr/bin:/bin", NULL};
    setenv("FAR_VARIABLE", "value", 1);
    // Made anew each time, because a child that is not remote maps it again.
#define IN_CHILD(name, call)                                                        \
    do {                                                                            \
        char **list = cold_list(arguments), **variables = cold_list(environment);   \
        char *volatile shell = cold_text("/bin/sh"), *volatile file = cold_text("sh"), *code = list[2], *word = list[4]; \
        (void)list, (void)variables, (void)shell, (void)file, (void)code, (void)word; \
        if (has_remote_node) memcpy(shell, "/bin/sh", 8);                           \
        pid_t pid = vfork();                                                        \
        if (pid == 0) {                                                             \
            call;                                                                   \
            _exit(99);                                                              \
        }                                                                           \
        check(name, ended(pid, 7));                                                 \
    } while (0)
    IN_CHILD("vfork and execve", execve(shell, list, variables));
    IN_CHILD("vfork and execv", execv(shell, list));
    IN_CHILD("vfork and execvp", execvp(file, list));
    IN_CHILD("vfork and execvpe", execvpe(file, list, variables));
    IN_CHILD("vfork and execl", execl(shell, list[0], list[1], code, list[3], word, (char *)NULL));
    IN_CHILD("vfork and execlp", execlp(file, list[0], list[1], code, list[3], word, (char *)NULL));
    IN_CHILD("vfork and execle", execle(shell, list[0], list[1], code, list[3], word, (char *)NULL, variables));
    IN_CHILD("vfork and execl of few", execl(shell, shell, "-c", "exit 7", (char *)NULL));
    int shell_fd = open("/bin/sh", O_RDONLY | O_CLOEXEC);
    IN_CHILD("vfork and fexecve", fexecve(shell_fd, list, variables));
    IN_CHILD("vfork and execveat", execveat(shell_fd, cold_text(""), list, variables, AT_EMPTY_PATH));
#undef IN_CHILD
    char **list = cold_list(arguments), **variables = cold_list(environment);
    if (!has_remote_node) {
        pid_t child = fork();
        if (child == 0) {
            execve("/bin/sh", list, variables);
            _exit(99);
        }
        check("fork and execve", ended(child, 7));
    }
    check("execve of nothing", execve(cold_text("/no/such/program"), cold_list(arguments), environ) == -1 && errno == ENOENT);
    // Spawning: everything is far, what to do with files as well.
    posix_spawn_file_actions_t *actions = NEW(posix_spawn_file_actions_t);
    posix_spawnattr_t *attributes = NEW(posix_spawnattr_t);
    sigset_t *all = NEW(sigset_t);
    pid_t *pid = NEW(pid_t);
    char path[300], text[20] = "";
    snprintf(path, sizeof path, "%s/spawned", folder);
    posix_spawn_file_actions_init(actions);
    posix_spawn_file_actions_addopen(actions, 1, cold_text(path), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(actions, 1, 2);
    posix_spawnattr_init(attributes);
    sigfillset(all);
    posix_spawnattr_setsigdefault(attributes, COLD(all));
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF);
    char *echo[] = {"sh", "-c", "echo $FAR_VARIABLE; exit 7", NULL};
    list = cold_list(echo), variables = cold_list(environment);
    COLD(actions), COLD(attributes), COLD(pid);
    check("posix_spawn", posix_spawn(pid, "/bin/sh", actions, attributes, list, variables) == 0 && ended(*pid, 7));
    int fd = open(path, O_RDONLY);
    check("posix_spawn has done what it should with files", fd >= 0 && read(fd, text, 20) == 6 && memcmp(text, "value\n", 6) == 0);
    close(fd);
    list = cold_list(echo);
    char *file = cold_text("sh");
    COLD(actions), COLD(attributes), COLD(pid);
    check("posix_spawnp", posix_spawnp(pid, file, actions, attributes, list, environ) == 0 && ended(*pid, 7));
    posix_spawn_file_actions_destroy(actions);
    char *put = cold_text("FAR_PUT=put");
    putenv(put);
    char *command = cold_text("test \"$FAR_PUT\" = put && exit 9");
    cold_bytes(put, 1);
    check("system, with a variable in far memory", WEXITSTATUS(system(command)) == 9);
    command = cold_text("echo \"$FAR_PUT\"");
    cold_bytes(put, 1);
    FILE *stream = popen(command, cold_text("r"));
    char *line = paged(100);
    check("popen", stream != NULL && fgets(line, 100, stream) != NULL && strcmp(line, "put\n") == 0 && pclose(stream) == 0);
    free(script_copy);
}

// A program of this kind that was executed has far memory of its own.
static int executed(void) {
    begin();
    unsigned char *memory = malloc(8 * MIB);
    fill(memory, 8 * MIB, 8);
    sweep();
    int fd = open("/dev/zero", O_RDONLY);
    unsigned char *zeros = cold_bytes(malloc(MIB), MIB);
    return is_filled(memory, 8 * MIB, 8) && read(fd, zeros, MIB) == (ssize_t)MIB && is_all(zeros, MIB, 0) ? 17 : 1;
}

static void generations(const char *self) {
    char *arguments[] = {(char *)self, "executed", NULL};
    pid_t child;
    check("an executed program has far memory", posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0 && ended(child, 17));
    // Also if nothing but what makes it far is in its environment: the filter was inherited.
    char *few[16] = {NULL};
    int count = 0;
    for (char **variable = environ; *variable != NULL; variable++)
        if ((strncmp(*variable, "YONDER_RUN_", 11) == 0 && strncmp(*variable, "YONDER_RUN_FILTERED", 19) != 0) || strncmp(*variable, "LD_PRELOAD=", 11) == 0)
            few[count++] = *variable;
    check("one with few variables, too", posix_spawn(&child, self, NULL, NULL, arguments, few) == 0 && ended(child, 17));
    char *none[] = {NULL}, *truth[] = {"true", NULL};
    check("a program without variables", posix_spawn(&child, "/bin/true", NULL, NULL, truth, none) == 0 && ended(child, 0));
}

// Made before memory is far, so its hooks are called around those of whoever makes it so.
static unsigned char *volatile at_fork;

static void prepare(void) {
    at_fork = malloc(700000);
    memset(at_fork, 0x5a, 700000);
    free(malloc(100));
}

static void after(void) {
    if (!is_all(at_fork, 700000, 0x5a)) _exit(98);
    free(at_fork);
    free(malloc(5000));
}

static void after_in_child(void) {
    if (!has_remote_node) after();
}

static void daemons(void) {
    int ends[2];
    if (pipe(ends) != 0) exit(1);
    fill(data, DATA, 7);
    pid_t child = fork();
    if (child == 0) {
        int is_right = daemon(1, 1) == 0 && (has_remote_node || is_filled(data, DATA, 7));
        _exit(write(ends[1], is_right ? "y" : "n", 1) != 1);
    }
    char answer = 0;
    close(ends[1]);
    check("daemon", ended(child, 0) && read(ends[0], &answer, 1) == 1 && answer == 'y');
    close(ends[0]);
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "executed") == 0) return executed();
    if (count < 2) return 2;
    folder = arguments[1];
    has_remote_node = count > 2;
    pthread_atfork(prepare, after, after_in_child);
    begin();
    data = malloc(DATA);
    if (!has_remote_node) forks();
    daemons();
    forks_of_many_threads();
    executions();
    generations(arguments[0]);
    return done();
}
