// System calls on pipes and sockets with buffers, messages, addresses and control data in far memory.
//
// Nothing may be lost or cut that would not be without far memory: a datagram is one call, and a stream has all its bytes.
//
// Usage: sockets MIB. A stream has so many MiB, at least 10.

#include "check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

static size_t stream_bytes;
static unsigned char *source, *target;

struct flow {
    int fd;
    size_t most;
    int is_right;
};

// Writes the source in calls of changing size.
static void *write_all(void *given) {
    struct flow *flow = given;
    flow->is_right = 1;
    for (size_t at = 0, turn = 1; at < stream_bytes; turn++) {
        size_t bytes = turn * 7919 % flow->most + 1;
        if (bytes > stream_bytes - at) bytes = stream_bytes - at;
        ssize_t wrote = write(flow->fd, source + at, bytes);
        if (wrote <= 0) {
            flow->is_right = 0;
            break;
        }
        at += (size_t)wrote;
    }
    close(flow->fd);
    return NULL;
}

// Reads to the end, and compares.
static int read_all(int fd, size_t most) {
    size_t at = 0;
    memset(target, 0, stream_bytes);
    for (size_t turn = 1;; turn++) {
        size_t bytes = turn * 104729 % most + 1;
        ssize_t got = read(fd, target + at, bytes < stream_bytes + PAGE - at ? bytes : stream_bytes + PAGE - at);
        if (got <= 0) break;
        at += (size_t)got;
    }
    close(fd);
    return at == stream_bytes && memcmp(source, target, stream_bytes) == 0;
}

static int flows(int from, int to, size_t writes, size_t reads) {
    struct flow flow = {from, writes, 0};
    pthread_t writer;
    pthread_create(&writer, NULL, write_all, &flow);
    int is_right = read_all(to, reads);
    pthread_join(writer, NULL);
    return is_right && flow.is_right;
}

static void streams(void) {
    static const struct { size_t writes, reads; } shapes[] = {{5000, 70000}, {3 * MIB, 3000}, {3 * MIB, 5 * MIB}};
    for (size_t index = 0; index < 3; index++) {
        int ends[2];
        if (pipe(ends) != 0) exit(1);
        check_of(flows(ends[1], ends[0], shapes[index].writes, shapes[index].reads), "a pipe, shape %zu", index);
        int *pair = paged(2 * sizeof *pair);
        check("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, cold_bytes(pair, 8)) == 0);
        check_of(flows(pair[0], pair[1], shapes[index].writes, shapes[index].reads), "a stream, shape %zu", index);
    }
}

// Sends the first bytes of the source to a thread that waits for them all.
static void *send_some(void *given) {
    struct flow *flow = given;
    flow->is_right = 1;
    for (size_t at = 0; at < flow->most; at += 100000) {
        size_t bytes = flow->most - at < 100000 ? flow->most - at : 100000;
        flow->is_right = flow->is_right && send(flow->fd, source + at, bytes, 0) == (ssize_t)bytes;
    }
    return NULL;
}

static void waits_for_all(void) {
    static const size_t sizes[] = {10, 16384, 16385, 300000, 3 * MIB + 1, 9 * MIB};
    for (size_t index = 0; index < 6; index++) {
        int pair[2];
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        struct flow flow = {pair[0], sizes[index], 0};
        pthread_t sender;
        memset(target, 0, sizes[index]);
        cold_bytes(target, PAGE);
        pthread_create(&sender, NULL, send_some, &flow);
        ssize_t got = recv(pair[1], target, sizes[index], MSG_WAITALL);
        check_of(got == (ssize_t)sizes[index] && memcmp(source, target, sizes[index]) == 0, "recv of all %zu", sizes[index]);
        shutdown(pair[1], SHUT_RDWR);
        pthread_join(sender, NULL);
        close(pair[0]), close(pair[1]);
    }
}

static void datagrams_of(int type, const char *what) {
    static const size_t sizes[] = {0, 1, 100, 4096, 16384, 16385, 60001, 120000, 150000};
    int pair[2], room = 400000;
    socketpair(AF_UNIX, type, 0, pair);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    for (size_t index = type == SOCK_SEQPACKET; index < 9; index++) {
        size_t bytes = sizes[index];
        cold_bytes(source + 5, bytes + 1);
        memset(target, 0x77, 3 * MIB);
        int sent = send(pair[0], source + 5, bytes, 0) == (ssize_t)bytes;
        ssize_t got = recv(pair[1], cold_bytes(target, PAGE), 2 * MIB, MSG_DONTWAIT);
        int right = sent && got == (ssize_t)bytes && memcmp(target, source + 5, bytes) == 0 && target[bytes] == 0x77;
        check_of(right, "%s of %zu", what, bytes);
        sent = write(pair[0], source + 5, bytes + 1) == (ssize_t)bytes + 1 && write(pair[0], source, 3) == 3;
        got = recv(pair[1], target, 7, MSG_PEEK | MSG_TRUNC);
        right = sent && got == (ssize_t)bytes + 1 && recv(pair[1], target, bytes / 2 + 1, 0) == (ssize_t)(bytes / 2 + 1) &&
                read(pair[1], target, MIB) == 3 && memcmp(target, source, 3) == 0;
        check_of(right, "%s of %zu, cut where natively", what, bytes);
    }
    close(pair[0]), close(pair[1]);
}

// Longer than a piece of a transfer.
static void long_packets(void) {
    size_t bytes = MIB + MIB / 2;
    int pair[2], room = 8 << 20;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) exit(1);
    // Needs a privilege; without it there is no such packet.
    int may = setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) == 0;
    struct iovec whole = {target, bytes};
    int is_right = !may || (send(pair[0], cold_bytes(source, bytes), bytes, 0) == (ssize_t)bytes && writev(pair[0], &(struct iovec){source, bytes}, 1) == (ssize_t)bytes);
    for (int turn = 0; may && turn < 2; turn++) {
        memset(target, 0, bytes);
        cold_bytes(target, bytes);
        is_right = is_right && (turn ? readv(pair[1], &whole, 1) : recv(pair[1], target, bytes, 0)) == (ssize_t)bytes && memcmp(source, target, bytes) == 0;
    }
    check("a packet of more than a piece", is_right);
    close(pair[0]), close(pair[1]);
}

static void messages(void) {
    static const int counts[] = {1, 2, 3, 64, 65, 200};
    int pair[2], room = 400000;
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    struct msghdr *out = NEW(struct msghdr), *in = NEW(struct msghdr);
    struct iovec *pieces = paged(256 * sizeof *pieces), *others = paged(256 * sizeof *others);
    char *control = paged(PAGE), *received = paged(PAGE);
    for (size_t index = 0; index < 6; index++) {
        int count = counts[index], given = open("/dev/zero", O_RDONLY);
        size_t bytes = 0;
        for (int piece = 0; piece < count; piece++) {
            pieces[piece] = (struct iovec){source + 3 + bytes, 400 + (size_t)piece};
            others[piece] = (struct iovec){target + 9 + bytes, 400 + (size_t)piece};
            bytes += 400 + (size_t)piece;
        }
        memset(control, 0, PAGE);
        *out = (struct msghdr){.msg_iov = pieces, .msg_iovlen = (size_t)count, .msg_control = control, .msg_controllen = CMSG_SPACE(4)};
        *in = (struct msghdr){.msg_iov = others, .msg_iovlen = (size_t)count, .msg_control = received, .msg_controllen = PAGE};
        struct cmsghdr *header = CMSG_FIRSTHDR(out);
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(4);
        memcpy(CMSG_DATA(header), &given, 4);
        memset(target, 0, MIB);
        cold_bytes(control, PAGE), cold_bytes(source, bytes), cold_bytes(pieces, PAGE), COLD(out);
        int sent = sendmsg(pair[0], out, 0) == (ssize_t)bytes;
        cold_bytes(received, PAGE), cold_bytes(others, PAGE), cold_bytes(target, PAGE), COLD(in);
        int right = sent && recvmsg(pair[1], in, 0) == (ssize_t)bytes && memcmp(target + 9, source + 3, bytes) == 0;
        header = CMSG_FIRSTHDR(in);
        int taken = -1;
        if (right && header != NULL && header->cmsg_type == SCM_RIGHTS) memcpy(&taken, CMSG_DATA(header), 4);
        unsigned char *zeros = paged(10);
        memset(zeros, 1, 10);
        check_of(right && taken >= 0 && taken != given && read(taken, cold_bytes(zeros, 10), 10) == 10 && is_all(zeros, 10, 0), "sendmsg and recvmsg of %d pieces and a descriptor", count);
        close(given), close(taken);
    }
    enum { MANY = 100 };
    struct mmsghdr *many = paged(MANY * sizeof *many);
    int right = 1, sent = 0, got = 0;
    for (int index = 0; index < MANY; index++) {
        pieces[index] = (struct iovec){source + index * 5003, 100 + (size_t)index};
        many[index] = (struct mmsghdr){.msg_hdr = {.msg_iov = &pieces[index], .msg_iovlen = 1}};
    }
    // The kernel queues few datagrams: as many as it takes, and all of those come.
    cold_bytes(many, PAGE), cold_bytes(source, MIB);
    while (got < MANY && right) {
        int more = sendmmsg(pair[0], many + sent, (unsigned)(MANY - sent), MSG_DONTWAIT);
        if (more > 0) sent += more;
        for (int index = got; index < MANY; index++) {
            others[index] = (struct iovec){target + index * 5003, 4000};
            many[index] = (struct mmsghdr){.msg_hdr = {.msg_iov = &others[index], .msg_iovlen = 1}};
        }
        cold_bytes(many, PAGE), cold_bytes(target, MIB);
        int taken = recvmmsg(pair[1], many + got, (unsigned)(sent - got), MSG_DONTWAIT, NULL);
        for (int index = got; index < got + taken; index++)
            right = right && many[index].msg_len == 100u + (unsigned)index &&
                    memcmp(target + index * 5003, source + index * 5003, many[index].msg_len) == 0;
        right = right && taken > 0;
        got += taken;
        for (int index = sent; index < MANY; index++) many[index] = (struct mmsghdr){.msg_hdr = {.msg_iov = &pieces[index], .msg_iovlen = 1}};
    }
    check("sendmmsg and recvmmsg", right && got == MANY);
    close(pair[0]), close(pair[1]);
}

static void addresses(void) {
    int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in *address = NEW(struct sockaddr_in), *from = NEW(struct sockaddr_in);
    socklen_t *bytes = NEW(socklen_t);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    check("bind", bind(server, (struct sockaddr *)COLD(address), sizeof *address) == 0);
    *bytes = sizeof *address;
    check("getsockname", getsockname(server, (struct sockaddr *)COLD(address), COLD(bytes)) == 0 && address->sin_port != 0 && *bytes == sizeof *address);
    int right = 1;
    for (size_t turn = 0; turn < 200; turn++) {
        size_t size = turn * 7919 % 60000 + 1;
        memset(target, 0, size + 1);
        if (turn % 10 == 0) COLD(address), COLD(from), COLD(bytes), cold_bytes(source + turn, size), cold_bytes(target, size);
        right = right && sendto(client, source + turn, size, 0, (struct sockaddr *)address, sizeof *address) == (ssize_t)size;
        *bytes = sizeof *from;
        ssize_t got = recvfrom(server, target, 65536, MSG_DONTWAIT, (struct sockaddr *)from, bytes);
        right = right && got == (ssize_t)size && memcmp(target, source + turn, size) == 0 && target[size] == 0 &&
                from->sin_family == AF_INET && from->sin_addr.s_addr == htonl(INADDR_LOOPBACK) && *bytes == sizeof *from;
    }
    check("datagrams on loopback", right);
    check("connect", connect(client, (struct sockaddr *)COLD(address), sizeof *address) == 0);
    *bytes = sizeof *from;
    check("getpeername", getpeername(client, (struct sockaddr *)COLD(from), COLD(bytes)) == 0 && from->sin_port == address->sin_port);
    int *number = NEW(int);
    *number = 54321, *bytes = sizeof *number;
    check("setsockopt", setsockopt(server, SOL_SOCKET, SO_RCVBUF, COLD(number), sizeof *number) == 0);
    check("getsockopt", getsockopt(server, SOL_SOCKET, SO_RCVBUF, COLD(number), COLD(bytes)) == 0 && *number == 2 * 54321 && *bytes == 4);
    check("send", send(client, cold_bytes(source, 333), 333, 0) == 333);
    check("ioctl FIONREAD", ioctl(server, FIONREAD, COLD(number)) == 0 && *number == 333);
    *number = 1;
    check("ioctl FIONBIO", ioctl(server, FIONBIO, COLD(number)) == 0 && (fcntl(server, F_GETFL) & O_NONBLOCK));
    int listener = socket(AF_INET, SOCK_STREAM, 0), caller = socket(AF_INET, SOCK_STREAM, 0);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    *bytes = sizeof *address;
    check("listen", bind(listener, (struct sockaddr *)address, sizeof *address) == 0 && listen(listener, 5) == 0 &&
                        getsockname(listener, (struct sockaddr *)address, bytes) == 0);
    check("connect a stream", connect(caller, (struct sockaddr *)COLD(address), sizeof *address) == 0);
    *bytes = sizeof *from;
    int accepted = accept4(listener, (struct sockaddr *)COLD(from), COLD(bytes), SOCK_CLOEXEC);
    check("accept", accepted >= 0 && from->sin_addr.s_addr == htonl(INADDR_LOOPBACK) && *bytes == sizeof *from);
    check("a stream on loopback", flows(caller, accepted, 200000, 50000));
    struct addrinfo *hints = NEW(struct addrinfo), **found = NEW(struct addrinfo *);
    *hints = (struct addrinfo){.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    check("getaddrinfo", getaddrinfo(cold_text("127.0.0.1"), cold_text("80"), COLD(hints), COLD(found)) == 0);
    freeaddrinfo(*found);
    close(server), close(client), close(listener);
}

// Readers that wait with large buffers while others sweep: nobody's waiting may keep memory from being used.
enum { READERS_MAX = 12 };
static int readers;

static void *wait_for_much(void *given) {
    struct flow *flow = given;
    // Each in another part of the memory.
    unsigned char *into = target + flow->most;
    size_t at = 0;
    ssize_t got;
    while (at < 200000 && (got = read(flow->fd, into + at, 200000 - at)) > 0) at += (size_t)got;
    flow->is_right = at == 200000 && memcmp(into, source, 200000) == 0;
    return NULL;
}

static void waiting_readers(void) {
    struct flow flows[READERS_MAX];
    pthread_t threads[READERS_MAX];
    int ends[READERS_MAX][2], right = 1;
    for (int index = 0; index < readers; index++) {
        if (pipe(ends[index]) != 0) exit(1);
        flows[index] = (struct flow){ends[index][0], (size_t)index * 2 * MIB, 0};
        pthread_create(&threads[index], NULL, wait_for_much, &flows[index]);
    }
    for (int turn = 0; turn < 4; turn++) {
        // All of it, so that also the rest of what readers wait in comes and goes.
        for (size_t at = 200000; at < stream_bytes; at += PAGE) right = right && (at % (2 * MIB) < 210000 || ((volatile unsigned char *)target)[at] == target[at]);
        sweep();
    }
    for (int index = 0; index < readers; index++) right = right && write(ends[index][1], source, 200000) == 200000;
    for (int index = 0; index < readers; index++) {
        pthread_join(threads[index], NULL);
        right = right && flows[index].is_right;
        close(ends[index][0]), close(ends[index][1]);
    }
    check("many wait for much while memory is swept", right);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    stream_bytes = (size_t)atoi(arguments[1]) * MIB;
    readers = (int)(stream_bytes / (2 * MIB)) < READERS_MAX ? (int)(stream_bytes / (2 * MIB)) : READERS_MAX;
    begin();
    source = malloc(stream_bytes + 2 * PAGE);
    target = malloc(stream_bytes + 2 * PAGE);
    fill(source, stream_bytes + PAGE, 3);
    streams();
    waits_for_all();
    datagrams_of(SOCK_DGRAM, "a datagram");
    datagrams_of(SOCK_SEQPACKET, "a packet");
    long_packets();
    messages();
    addresses();
    waiting_readers();
    return done();
}
