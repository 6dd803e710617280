// A program that closes and replaces all descriptors that it has not opened itself, and goes on using its memory.

#include "check.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { LAST = 1023 };
static unsigned char *data;

static void still_there(const char *what) {
    cold_bytes(data, 8 * MIB);
    check(what, is_filled(data, 8 * MIB, 1));
    unsigned char *more = paged(2 * MIB);
    fill(more, 2 * MIB, 2);
    cold_bytes(more, 2 * MIB);
    check("and more of it", is_filled(more, 2 * MIB, 2));
}

// What the program opens where something of far memory's was is the program's alone.
static void own_files(void) {
    enum { FILES = 60 };
    FILE *files[FILES];
    int fds[FILES], is_right = 1;
    for (int index = 0; index < FILES; index++) {
        files[index] = tmpfile();
        fds[index] = files[index] == NULL ? -1 : fileno(files[index]);
        is_right = is_right && fds[index] >= 0 && write(fds[index], "own", 3) == 3;
    }
    for (int turn = 0; turn < 4; turn++) {
        fill(data, 8 * MIB, 2);
        cold_bytes(data, 8 * MIB);
        is_right = is_right && is_filled(data, 8 * MIB, 2);
        fill(data, 8 * MIB, 1);
        cold_bytes(data, 8 * MIB);
    }
    char text[8];
    for (int index = 0; index < FILES; index++) {
        is_right = is_right && pread(fds[index], text, sizeof text, 0) == 3 && memcmp(text, "own", 3) == 0;
        if (files[index] != NULL) fclose(files[index]);
    }
    check("files at numbers that were far memory's", is_right);
}

int main(void) {
    struct rlimit limit = {LAST + 1, LAST + 1};
    setrlimit(RLIMIT_NOFILE, &limit);
    begin();
    data = paged(8 * MIB);
    fill(data, 8 * MIB, 1);
    cold_bytes(data, 8 * MIB);
    int own = open("/dev/null", O_RDONLY);
    check("close_range", close_range(3, ~0u, 0) == 0);
    check("what was the program's is closed", fcntl(own, F_GETFD) == -1 && errno == EBADF);
    still_there("memory after close_range");
    own_files();
    own = open("/dev/null", O_RDONLY);
    closefrom(own);
    check("closefrom", fcntl(own, F_GETFD) == -1 && errno == EBADF);
    still_there("memory after closefrom");
    own = open("/dev/null", O_RDONLY);
    for (int fd = 3; fd <= LAST; fd++) close(fd);
    check("close, one by one", fcntl(own, F_GETFD) == -1 && errno == EBADF);
    still_there("memory after closing all");
    int replaced = 0;
    for (int fd = 3; fd <= LAST; fd++) replaced += dup2(0, fd) == fd || dup3(0, fd, O_CLOEXEC) == fd;
    check("most numbers can be replaced", replaced > LAST - 64);
    still_there("memory after replacing all");
    check("an empty range is an error", close_range(5, 4, 0) == -1 && errno == EINVAL);
    check("close what is none", close(LAST + 1) == -1 && errno == EBADF);
    check("close_range again", close_range(3, ~0u, 0) == 0);
    pid_t child = fork();
    if (child == 0) {
        closefrom(3);
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    int status = 1;
    check("a child that closes all executes another program", waitpid(child, &status, 0) == child && status == 0);
    still_there("memory after all");
    return done();
}
