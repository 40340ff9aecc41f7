/*
 * Registration: memory that is not there, and memory that goes away while it is registered. Run by scripts/verbs-programs.sh; takes
 * the device's address as its argument. Prints `memory: N checks passed`.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "pair.h"

enum {
    PAGE = 4096,
    LOCAL = IBV_ACCESS_LOCAL_WRITE,
    REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
    EVERYTHING = LOCAL | REMOTE,
};

static char *map(size_t bytes, int rights) {
    char *memory = mmap(NULL, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

static void registers(void *memory, size_t bytes, int access) {
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, bytes, access);
    CHECK(mr && mr->addr == memory && mr->length == bytes && mr->pd == pd && mr->context == context);
    CHECK(ibv_dereg_mr(mr) == 0);
}

static void refuses(void *memory, size_t bytes, int access, int error) {
    CHECK((errno = 0, !ibv_reg_mr(pd, memory, bytes, access)) && errno == error);
    CHECK((errno = 0, !ibv_reg_mr_iova(pd, memory, bytes, (uintptr_t)memory, access)) && errno == error);
    CHECK((errno = 0, !ibv_reg_mr_iova2(pd, memory, bytes, (uintptr_t)memory, access)) && errno == error);
}

/* ibv_reg_mr(3): the rights that are asked for must be there, as where pages are pinned. */
static void check_registration(void) {
    char *readable = map(4 * PAGE, PROT_READ), *none = map(2 * PAGE, PROT_NONE), *writable = map(4 * PAGE, PROT_READ | PROT_WRITE);
    registers(readable, 2 * PAGE, 0);
    registers(readable, 2 * PAGE, IBV_ACCESS_REMOTE_READ);
    refuses(readable, 2 * PAGE, LOCAL, EFAULT);
    refuses(readable, 2 * PAGE, EVERYTHING, EFAULT);
    refuses(readable, 2 * PAGE, IBV_ACCESS_REMOTE_WRITE, EINVAL);
    refuses(readable, 2 * PAGE, IBV_ACCESS_REMOTE_ATOMIC, EINVAL);
    refuses(none, PAGE, 0, EFAULT);
    refuses(none, PAGE, IBV_ACCESS_REMOTE_READ, EFAULT);
    CHECK(munmap(none, 2 * PAGE) == 0);
    refuses(none, PAGE, IBV_ACCESS_REMOTE_READ, EFAULT);
    refuses(NULL, PAGE, LOCAL, EFAULT);
    refuses((void *)0x1000, (size_t)1 << 46, EVERYTHING, EFAULT);
    refuses((void *)(uintptr_t)0xffffffffffff0000ull, 0x20000, LOCAL, EFAULT);
    refuses((void *)0x1000, (size_t)-1, IBV_ACCESS_REMOTE_READ, EFAULT);
    refuses(writable, 0, LOCAL, EINVAL);
    /* Each page of the range counts, and no byte beyond it. */
    CHECK(mprotect(writable + 2 * PAGE, PAGE, PROT_READ) == 0 && munmap(writable + 3 * PAGE, PAGE) == 0);
    registers(writable + 1, 2 * PAGE - 1, EVERYTHING);
    refuses(writable + 1, 2 * PAGE, EVERYTHING, EFAULT);
    registers(writable + 1, 3 * PAGE - 1, IBV_ACCESS_REMOTE_READ);
    refuses(writable + 1, 3 * PAGE, IBV_ACCESS_REMOTE_READ, EFAULT);
    /* A mapping without memory behind it is registered, and stays without. */
    size_t large = (size_t)6 << 30;
    char *reserved = map(large, PROT_READ | PROT_WRITE);
    registers(reserved, large, EVERYTHING);
    static unsigned char resident[((size_t)6 << 30) / PAGE];
    CHECK(mincore(reserved, large, resident) == 0);
    for (size_t page = 0; page < sizeof resident; page++) {
        if (resident[page] & 1) CHECK(!"a page was allocated");
    }
    CHECK(munmap(reserved, large) == 0 && munmap(readable, 4 * PAGE) == 0 && munmap(writable, 3 * PAGE) == 0);
    /* What was refused has left nothing. */
    struct ibv_pd *other = ibv_alloc_pd(context);
    CHECK(other && !ibv_reg_mr(other, NULL, PAGE, LOCAL) && ibv_dealloc_pd(other) == 0);
}

enum gone { UNMAPPED, PROTECTED, CUT_SHORT, WAYS };
enum use { PEER_WRITES, PEER_READS, PEER_ADDS, RECEIVE, SEND, READ_SINK, USES };

static struct ibv_mr *good;
static char good_buffer[2 * PAGE] __attribute__((aligned(8)));

/* Two registered pages, the second of which goes away. */
struct target {
    char *memory;
    struct ibv_mr *mr;
    int file;
};

static struct target make_target(enum gone how) {
    struct target target = {.file = -1};
    if (how == CUT_SHORT) {
        CHECK((target.file = memfd_create("short", 0)) >= 0 && ftruncate(target.file, 2 * PAGE) == 0);
        target.memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, target.file, 0);
        CHECK(target.memory != MAP_FAILED);
    } else {
        target.memory = map(2 * PAGE, PROT_READ | PROT_WRITE);
    }
    memset(target.memory, 1, 2 * PAGE);
    CHECK((target.mr = ibv_reg_mr(pd, target.memory, 2 * PAGE, EVERYTHING)));
    return target;
}

static void take_away(struct target *target, enum gone how) {
    switch (how) {
        case UNMAPPED: CHECK(munmap(target->memory + PAGE, PAGE) == 0); break;
        case PROTECTED: CHECK(mprotect(target->memory + PAGE, PAGE, PROT_NONE) == 0); break;
        default: CHECK(ftruncate(target->file, PAGE) == 0);
    }
}

static void free_target(struct target *target, enum gone how) {
    CHECK(ibv_dereg_mr(target->mr) == 0);
    if (target->file >= 0) close(target->file);
    CHECK(munmap(target->memory, how == UNMAPPED ? PAGE : 2 * PAGE) == 0);
}

static int send_from(struct ibv_qp *qp, uint64_t id, uint64_t addr, uint32_t length, uint32_t key) {
    struct ibv_sge element = {.addr = addr, .length = length, .lkey = key};
    struct ibv_send_wr wr = {.wr_id = id, .sg_list = &element, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    return ibv_post_send(qp, &wr, &bad);
}

static void check_works(struct pair *pair) {
    CHECK(post_receive(pair->far->qp, 90, good, 64) == 0 && post(pair->near->qp, IBV_WR_SEND, 91, good, 8, 0, 0) == 0);
    CHECK(take(pair->near_cq, 91).status == IBV_WC_SUCCESS && take(pair->far_cq, 90).status == IBV_WC_SUCCESS);
}

/* An access to what is gone ends its connection, at both ends, and nothing else. */
static void check_use(struct pair *other, enum gone how, enum use use, int port) {
    struct pair pair = open_pair(port);
    struct target target = make_target(how);
    uint64_t there = (uintptr_t)target.memory + PAGE;
    /* A flushed receive tells of the end at the far side, a Send that fails or is flushed at the near one. */
    if (use == RECEIVE) {
        struct ibv_sge element = {.addr = there - 100, .length = 1000, .lkey = target.mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &element, .num_sge = 1}, *bad;
        CHECK(ibv_post_recv(pair.far->qp, &wr, &bad) == 0);
    } else {
        CHECK(post_receive(pair.far->qp, 1, good, 2000) == 0);
    }
    CHECK(post_receive(pair.far->qp, 2, NULL, 0) == 0);
    take_away(&target, how);
    struct ibv_mr sink = {.addr = (void *)there, .lkey = target.mr->lkey};
    switch (use) {
        case PEER_WRITES: CHECK(post(pair.near->qp, IBV_WR_RDMA_WRITE, 3, good, 1000, there - 100, target.mr->rkey) == 0); break;
        case PEER_READS: CHECK(post(pair.near->qp, IBV_WR_RDMA_READ, 3, good, 1000, there - 100, target.mr->rkey) == 0); break;
        case PEER_ADDS: CHECK(post(pair.near->qp, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, good, 8, there, target.mr->rkey) == 0); break;
        case RECEIVE: CHECK(post(pair.near->qp, IBV_WR_SEND, 3, good, 1000, 0, 0) == 0); break;
        case SEND: CHECK(send_from(pair.near->qp, 3, there - 100, 1000, target.mr->lkey) == 0); break;
        default: CHECK(post(pair.near->qp, IBV_WR_RDMA_READ, 3, &sink, 64, (uintptr_t)good_buffer, good->rkey) == 0);
    }
    struct ibv_wc wc = take(pair.near_cq, 3);
    /* Writes and Sends are complete when they are acknowledged. */
    if (use == SEND || use == READ_SINK) CHECK(wc.status == IBV_WC_LOC_PROT_ERR);
    else CHECK(use == PEER_WRITES || use == RECEIVE || wc.status != IBV_WC_SUCCESS);
    wc = take(pair.far_cq, 1);
    CHECK(wc.status == (use == RECEIVE ? IBV_WC_LOC_PROT_ERR : IBV_WC_WR_FLUSH_ERR));
    CHECK(take(pair.far_cq, 2).status == IBV_WC_WR_FLUSH_ERR);
    close_pair(&pair);
    free_target(&target, how);
    check_works(other);
}

static sigjmp_buf back;
static volatile sig_atomic_t signals;

static void on_fault(int signal) {
    (void)signal;
    signals++;
    siglongjmp(back, 1);
}

/* Reads memory that may not be read, for which the program has a handler. */
static void fault(void) {
    static char *none;
    if (!none) none = map(PAGE, PROT_NONE);
    int before = signals;
    if (sigsetjmp(back, 1) == 0) {
        (void)*(volatile char *)none;
        CHECK(!"the access has not faulted");
    }
    CHECK(signals == before + 1);
}

/* The program's own handler gets every other fault, also one that is set after the device was opened: from the next
 * registration on. */
static void check_handlers(struct pair *other) {
    struct sigaction action = {.sa_handler = on_fault};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    fault();
    for (int round = 0; round < 3; round++) {
        int before = signals;
        check_use(other, UNMAPPED, round % 2 ? PEER_READS : PEER_WRITES, 7700 + round);
        CHECK(signals == before);
        fault();
        fault();
    }
}

static void *use_with_blocked_signals(void *other) {
    sigset_t all;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
    for (enum use use = 0; use < USES; use++) check_use(other, UNMAPPED, use, 7720 + use);
    /* Blocked again after the first call: the next registration unblocks them. */
    CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
    for (enum use use = 0; use < USES; use++) check_use(other, CUT_SHORT, use, 7730 + use);
    sigset_t now;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGUSR1) && sigismember(&now, SIGTERM));
    return NULL;
}

/* A thread of a program that handles its signals elsewhere polls: the system ends a process that has blocked its fault. */
static void check_blocked_signals(struct pair *other) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use_with_blocked_signals, other) == 0 && pthread_join(thread, NULL) == 0);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    check_registration();
    CHECK((good = ibv_reg_mr(pd, good_buffer, sizeof good_buffer, EVERYTHING)));
    struct pair other = open_pair(7600);
    int port = 7601;
    for (enum gone how = 0; how < WAYS; how++)
        for (enum use use = 0; use < USES; use++) check_use(&other, how, use, port++);
    check_handlers(&other);
    check_blocked_signals(&other);
    close_pair(&other);
    CHECK(ibv_dereg_mr(good) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    printf("memory: %d checks passed\n", checks);
    return 0;
}
