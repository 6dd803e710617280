// System calls on files, with paths and buffers in far memory: bytes, vectors, names, directories, streams, transfers.
//
// Usage: files FOLDER MIB. The folder is empty and writable; the largest transfer has so many MiB, at least 6.

#include "check.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>

static size_t largest;
static unsigned char *source, *target;

// Writes all or as much as the kernel takes at a time; whether it took everything with one call.
static int writes_at_once(int fd, const void *from, size_t bytes) { return write(fd, from, bytes) == (ssize_t)bytes; }

static void reads_and_writes(const char *folder) {
    static const size_t sizes[] = {1,     7,     63,    64,    65,        4095,       4096,   4097,
                                   16383, 16384, 16385, 65549, 262149, MIB + 1, 4 * MIB + 3, 0};
    char path[512];
    snprintf(path, sizeof path, "%s/bytes-XXXXXX", folder);
    char *made = cold_text(path);
    int fd = mkstemp(made);
    check("mkstemp changes a far name", fd >= 0 && strstr(made, "XXXXXX") == NULL && access(made, F_OK) == 0);
    fill(source, largest + PAGE, 1);
    for (size_t index = 0; index < sizeof sizes / sizeof *sizes; index++) {
        size_t bytes = sizes[index] != 0 ? sizes[index] : largest, shift = (index * 1237) % 4000 + 1;
        const unsigned char *from = cold_bytes(source + shift, bytes < MIB ? bytes : PAGE);
        lseek(fd, 0, SEEK_SET);
        int wrote = writes_at_once(fd, from, bytes);
        lseek(fd, 0, SEEK_SET);
        memset(target, 0xee, bytes + 8192);
        unsigned char *into = target + 4099 - shift % 97;
        cold_bytes(into, bytes < MIB ? bytes : PAGE);
        ssize_t got = read(fd, into, bytes);
        int right = got == (ssize_t)bytes && memcmp(into, from, bytes) == 0 && into[-1] == 0xee && into[bytes] == 0xee;
        check_of(wrote && right, "write and read of %zu", bytes);
        memset(target, 0xee, bytes + 8192);
        wrote = pwrite(fd, cold_bytes(from, 1), bytes, 12345) == (ssize_t)bytes;
        got = pread(fd, cold_bytes(into, 1), bytes + 5, 12345);
        right = got >= (ssize_t)bytes && memcmp(into, from, bytes) == 0 && into[-1] == 0xee && into[bytes + 5] == 0xee;
        check_of(wrote && right, "pwrite and pread of %zu", bytes);
    }
    const unsigned char *from = cold_bytes(source, 100000);
    unsigned char *into = cold_bytes(target, 100000);
    errno = 0;
    int right = pwrite(fd, from, 100000, 0) == 100000 && pread(fd, into, 100000, 0) == 100000;
    check("what goes well leaves errno alone", right && errno == 0);
    // A short file leaves the rest of the buffer alone.
    check("ftruncate", ftruncate(fd, 100) == 0);
    memset(target, 0x55, 2 * MIB);
    check("a read ends with the file", pread(fd, target, 2 * MIB, 0) == 100 && is_all(target + 100, 2 * MIB - 100, 0x55));
    check("a read at the end is empty", pread(fd, cold_bytes(target, MIB), MIB, 100) == 0);
    check("a bad descriptor is told", read(-1, cold_bytes(target, 10), 10) == -1 && errno == EBADF);
    check("a bad descriptor is told for much", write(-1, target, 8 * MIB) == -1 && errno == EBADF);
    close(fd);
    unlink(made);
}

// Pieces of far and of local memory, in turn and of odd sizes; how many bytes they have.
static size_t cut(struct iovec *list, int count, unsigned char *far, unsigned char *local, size_t piece) {
    size_t bytes = 0;
    for (int index = 0; index < count; index++) {
        size_t length = (piece + (size_t)index * 37) % (piece + 1) + (index % 5 != 3);
        list[index].iov_base = index % 2 == 0 ? far + bytes : local + bytes;
        list[index].iov_len = length;
        bytes += length;
    }
    return bytes;
}

static void fill_pieces(const struct iovec *list, int count, uint64_t seed) {
    for (int index = 0; index < count; index++) fill(list[index].iov_base, list[index].iov_len, seed + (uint64_t)index);
}

static int are_filled(const struct iovec *list, int count, uint64_t seed) {
    for (int index = 0; index < count; index++)
        if (!is_filled(list[index].iov_base, list[index].iov_len, seed + (uint64_t)index)) return 0;
    return 1;
}

// Whether the pieces have what lies one behind the other here.
static int are_joined(const struct iovec *list, int count, const unsigned char *joined) {
    for (int index = 0; index < count; joined += list[index++].iov_len)
        if (memcmp(list[index].iov_base, joined, list[index].iov_len) != 0) return 0;
    return 1;
}

static void clear_pieces(const struct iovec *list, int count) {
    for (int index = 0; index < count; index++) memset(list[index].iov_base, 0, list[index].iov_len);
}

// Whether two names of a function are answered by the same library.
static int are_of_one_library(const char *name, const char *other) {
    Dl_info its, others;
    return dladdr(dlsym(RTLD_DEFAULT, name), &its) != 0 && dladdr(dlsym(RTLD_DEFAULT, other), &others) != 0 &&
           its.dli_fbase == others.dli_fbase;
}

static void vectors(const char *folder) {
    static const struct { int count; size_t piece; } shapes[] = {{1, 10}, {1, 6 * MIB}, {2, 100}, {3, 5000}, {10, 70000},
                                                                 {63, 300}, {64, 4097}, {65, 300}, {200, 8001}, {1024, 100}};
    static unsigned char local[8 * MIB];
    char path[512];
    snprintf(path, sizeof path, "%s/vectors", folder);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    struct iovec *list = paged(1024 * sizeof *list);
    for (size_t index = 0; index < sizeof shapes / sizeof *shapes; index++) {
        int count = shapes[index].count;
        size_t bytes = cut(list, count, source + 17, local + 3, shapes[index].piece);
        fill_pieces(list, count, 7 * index);
        cold_bytes(source, PAGE);
        cold_bytes(list, PAGE);
        lseek(fd, 0, SEEK_SET);
        int right = writev(fd, list, count) == (ssize_t)bytes;
        clear_pieces(list, count);
        cold_bytes(source, PAGE);
        lseek(fd, 0, SEEK_SET);
        right = right && readv(fd, list, count) == (ssize_t)bytes && are_filled(list, count, 7 * index);
        check_of(right, "writev and readv of %d pieces", count);
        cold_bytes(list, PAGE);
        right = pwritev(fd, list, count, 4321) == (ssize_t)bytes;
        right = right && pread(fd, target, bytes, 4321) == (ssize_t)bytes && are_joined(list, count, target);
        clear_pieces(list, count);
        right = right && preadv(fd, list, count, 4321) == (ssize_t)bytes && are_filled(list, count, 7 * index);
        clear_pieces(list, count);
        right = right && preadv2(fd, list, count, 4321, 0) == (ssize_t)bytes && are_filled(list, count, 7 * index);
        clear_pieces(list, count);
        // What the others are called in programs that are compiled for large files.
        right = right && preadv64v2(fd, list, count, 4321, 0) == (ssize_t)bytes && are_filled(list, count, 7 * index);
        right = right && pwritev64v2(fd, list, count, 1234, 0) == (ssize_t)bytes && pread(fd, target, bytes, 1234) == (ssize_t)bytes && are_joined(list, count, target);
        check_of(right, "pwritev and preadv of %d pieces", count);
    }
    // Else a program that is compiled for large files would get each of its calls back by a signal.
    check("preadv64v2 is answered as preadv2", are_of_one_library("preadv2", "preadv64v2"));
    check("pwritev64v2 is answered as pwritev2", are_of_one_library("pwritev2", "pwritev64v2"));
    check("too many pieces are refused", writev(fd, list, 1025) == -1 && errno == EINVAL);
    close(fd);
}

static void names(const char *folder) {
    char text[600], *path, *other;
    check("chdir", chdir(cold_text(folder)) == 0);
    char *here = paged(PAGE);
    check("getcwd", getcwd(cold_bytes(here, PAGE), PAGE) == here && strcmp(here, folder) == 0);
    check("getcwd that is too short", getcwd(cold_bytes(here, PAGE), 3) == NULL && errno == ERANGE);
    char *found = realpath(cold_text("."), paged(PAGE));
    check("realpath", found != NULL && strcmp(found, folder) == 0);
    snprintf(text, sizeof text, "%s/name", folder);
    path = cold_text(text);
    int fd = open(path, O_CREAT | O_RDWR | O_EXCL, 0640);
    check("open makes a file", fd >= 0);
    check("write", writes_at_once(fd, cold_text("twelve bytes"), 12));
    struct stat *stat_of = NEW(struct stat);
    check("stat", stat(COLD(path), COLD(stat_of)) == 0 && stat_of->st_size == 12);
    check("fstat", fstat(fd, COLD(stat_of)) == 0 && stat_of->st_size == 12);
    check("fstatat", fstatat(AT_FDCWD, cold_text("name"), COLD(stat_of), 0) == 0 && stat_of->st_size == 12);
    struct statx *statx_of = NEW(struct statx);
    check("statx", statx(AT_FDCWD, COLD(path), 0, STATX_SIZE, COLD(statx_of)) == 0 && statx_of->stx_size == 12);
    struct statfs *statfs_of = NEW(struct statfs);
    check("statfs", statfs(COLD(path), COLD(statfs_of)) == 0 && statfs_of->f_bsize > 0);
    check("symlink", symlink(cold_text("name"), cold_text("link")) == 0);
    char *target_name = paged(100);
    check("readlink", readlink(cold_text("link"), cold_bytes(target_name, 100), 100) == 4 && strcmp(target_name, "name") == 0);
    other = cold_text("other");
    check("rename", rename(COLD(path), other) == 0 && access(cold_bytes(other, 1), R_OK) == 0 && access(path, F_OK) != 0);
    check("link", link(COLD(other), COLD(path)) == 0);
    struct timespec *times = paged(2 * sizeof *times);
    times[0].tv_sec = times[1].tv_sec = 1000000000;
    check("utimensat", utimensat(AT_FDCWD, COLD(path), cold_bytes(times, 32), 0) == 0 && stat(path, stat_of) == 0 &&
                           stat_of->st_mtime == 1000000000);
    check("chmod", chmod(COLD(path), 0600) == 0 && stat(path, stat_of) == 0 && (stat_of->st_mode & 0777) == 0600);
    struct flock *lock = NEW(struct flock);
    *lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 5};
    check("fcntl lock", fcntl(fd, F_SETLK, COLD(lock)) == 0 && fcntl(fd, F_GETLK, COLD(lock)) == 0 && lock->l_type == F_UNLCK);
    check("a name that is nowhere", open(cold_text("nowhere"), O_RDONLY) == -1 && errno == ENOENT);
    char *endless = paged(3 * PAGE);
    memset(endless, 'x', 2 * PAGE);
    check("a name that is too long", open(cold_bytes(endless, 2 * PAGE), O_RDONLY) == -1 && errno == ENAMETOOLONG);
    char *at_end = paged(PAGE);
    strcpy(at_end + PAGE - 5, "name");
    check("a name at the end of a page", access(cold_bytes(at_end, PAGE) + PAGE - 5, F_OK) == 0);
    check("mkdir", mkdir(cold_text("folder"), 0700) == 0);
    for (int index = 0; index < 300; index++) {
        char *entry = paged(32);
        snprintf(entry, 32, "folder/entry-%d", index);
        close(open(entry, O_CREAT | O_WRONLY, 0600));
    }
    int folder_fd = open("folder", O_RDONLY | O_DIRECTORY), entries = 0;
    char *list = paged(20000);
    for (;;) {
        long bytes = syscall(SYS_getdents64, folder_fd, cold_bytes(list, 20000), 20000);
        if (bytes <= 0) break;
        for (long at = 0; at < bytes; at += *(unsigned short *)(list + at + 16)) entries += strncmp(list + at + 19, "entry-", 6) == 0;
    }
    check("getdents64", entries == 300);
    DIR *stream = opendir(cold_text("folder"));
    for (entries = 0; readdir(stream) != NULL;) entries++;
    closedir(stream);
    check("readdir", entries == 302);
    glob_t *globbed = NEW(glob_t);
    check("glob", glob(cold_text("folder/entry-1*"), 0, NULL, COLD(globbed)) == 0 && globbed->gl_pathc == 111);
    globfree(globbed);
    close(folder_fd);
    close(fd);
}

static void streams(void) {
    enum { LINES = 40000 };
    FILE *stream = fopen(cold_text("lines"), cold_text("w+"));
    check("fopen", stream != NULL);
    char *buffer = paged(300000);
    check("setvbuf", setvbuf(stream, cold_bytes(buffer, 300000), _IOFBF, 300000) == 0);
    char *words = cold_text("words that are far away");
    for (int line = 0; line < LINES; line++) fprintf(stream, "%d %s\n", line, words);
    rewind(stream);
    char *line = paged(PAGE);
    int right = 1, number;
    for (int index = 0; index < LINES; index++) {
        char rest[40] = "";
        if (index == LINES / 2) cold_bytes(buffer, 65536);
        right = right && fgets(line, PAGE, stream) == line && sscanf(line, "%d %39[^\n]", &number, rest) == 2 &&
                number == index && strcmp(rest, words) == 0;
    }
    check("fgets and sscanf", right && fgets(line, PAGE, stream) == NULL);
    rewind(stream);
    char **grown = NEW(char *);
    size_t *room = NEW(size_t), count = 0;
    while (getline(grown, room, stream) > 0) count++;
    check("getline", count == LINES && strstr(*grown, "39999 words") == *grown);
    free(*grown);
    fclose(stream);
    stream = fopen("block", "w+");
    check("fwrite", fwrite(cold_bytes(source, PAGE), 1, 5 * MIB + 1, stream) == 5 * MIB + 1);
    rewind(stream);
    memset(target, 0, 6 * MIB);
    check("fread", fread(cold_bytes(target, MIB), 1, 6 * MIB, stream) == 5 * MIB + 1 && memcmp(source, target, 5 * MIB + 1) == 0);
    fclose(stream);
    char *printed = NULL;
    check("asprintf", asprintf(&printed, "<%s>", COLD(words)) == 25 && strcmp(printed, "<words that are far away>") == 0);
    free(printed);
    char *text = NULL;
    size_t bytes = 0;
    stream = open_memstream(&text, &bytes);
    for (int index = 0; index < 100000; index++) fputs(words, stream);
    fclose(stream);
    check("open_memstream", bytes == 100000 * strlen(words) && text[bytes] == 0 && strncmp(text + bytes - 4, "away", 4) == 0);
    free(text);
    printf("ok printf %s\n", cold_text("of a far text"));
    fflush(stdout);
    dprintf(1, "ok dprintf %s\n", cold_text("of a far text"));
    puts(cold_text("ok puts of a far text"));
    fflush(stdout);
}

static void transfers(void) {
    int from = open("block", O_RDONLY), to = open("copy", O_CREAT | O_RDWR, 0600), ends[2];
    off_t *offset = NEW(off_t), *other = NEW(off_t);
    *offset = 100;
    check("sendfile", sendfile(to, from, COLD(offset), 1000) == 1000 && *offset == 1100);
    check("sendfile has copied", pread(to, cold_bytes(target, 1000), 1000, 0) == 1000 && memcmp(target, source + 100, 1000) == 0);
    *offset = 7, *other = 9;
    check("copy_file_range", copy_file_range(from, COLD(offset), to, COLD(other), 500, 0) == 500 && *offset == 507 && *other == 509);
    int *pair = paged(2 * sizeof *pair);
    check("pipe", pipe(cold_bytes(pair, 8)) == 0 && pair[0] > 2 && pair[1] > 2);
    ends[0] = pair[0], ends[1] = pair[1];
    *offset = 3;
    check("splice", splice(from, COLD(offset), ends[1], NULL, 600, 0) == 600 && *offset == 603);
    check("splice has moved", read(ends[0], cold_bytes(target, 600), 600) == 600 && memcmp(target, source + 3, 600) == 0);
    struct iovec piece = {source, 100};
    errno = 0;
    long result = syscall(SYS_vmsplice, ends[1], &piece, 1, 0);
    report(is_far_run() ? result == -1 && errno == ENOSYS : result == 100, "vmsplice is right or refused");
    int watcher = inotify_init1(IN_NONBLOCK);
    check("inotify_add_watch", inotify_add_watch(watcher, cold_text("folder"), IN_CREATE) >= 0);
    close(open("folder/one-more", O_CREAT | O_WRONLY, 0600));
    struct inotify_event *event = paged(PAGE);
    check("inotify read", read(watcher, cold_bytes(event, PAGE), PAGE) > 0 && strcmp(event->name, "one-more") == 0);
    char *value = paged(100);
    int could = setxattr("copy", cold_text("user.far"), cold_text("value"), 5, 0) == 0;
    // Not all file systems have them.
    check("xattr", !could || (getxattr("copy", cold_text("user.far"), cold_bytes(value, 100), 100) == 5 && strcmp(value, "value") == 0));
    int direct = open("block", O_RDONLY | O_DIRECT);
    unsigned char *aligned = paged(2 * MIB);
    check("direct input", direct < 0 || (pread(direct, cold_bytes(aligned, MIB), MIB, 0) == (ssize_t)MIB && memcmp(aligned, source, MIB) == 0));
    check("direct input of little", direct < 0 || (pread(direct, cold_bytes(aligned, PAGE), PAGE, PAGE) == PAGE && memcmp(aligned, source + PAGE, PAGE) == 0));
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    largest = (size_t)atoi(arguments[2]) * MIB;
    begin();
    source = malloc(largest + 2 * PAGE);
    target = malloc(largest + 2 * PAGE);
    reads_and_writes(arguments[1]);
    vectors(arguments[1]);
    names(arguments[1]);
    streams();
    transfers();
    return done();
}
