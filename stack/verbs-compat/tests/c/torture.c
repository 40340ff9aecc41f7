/*
 * Cancelled threads, forks, double destruction and memory that goes away, in random order beside the traffic of a connection.
 * Run by scripts/verbs-programs.sh. Takes the device's address, and the number of rounds and a seed if they are to differ.
 * Prints `torture: N checks passed`.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "pair.h"

enum { EVERYTHING = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, PAGE = 4096 };

static uint64_t state;

/* splitmix64 */
static unsigned draw(unsigned below) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (unsigned)((z ^ (z >> 31)) % below);
}

static char sources[PAGE], sinks[PAGE];
static struct ibv_mr *source, *sink;
static atomic_int ending;
static atomic_long written;

/* Writes to the peer, one after the other, until the end. */
static void *write_on(void *of) {
    struct pair *pair = of;
    for (uint64_t id = 0; !ending; id++) {
        if (post(pair->near->qp, IBV_WR_RDMA_WRITE, id, source, 1 + id % PAGE, (uintptr_t)sinks, sink->rkey)) abort();
        struct ibv_wc wc;
        int count;
        while ((count = ibv_poll_cq(pair->near_cq, 1, &wc)) == 0) {}
        if (count != 1 || wc.wr_id != id || wc.status != IBV_WC_SUCCESS) abort();
        written++;
    }
    return NULL;
}

static void *wait_for_completion(void *channel) {
    struct ibv_cq *cq;
    void *cq_context;
    if (ibv_get_cq_event(channel, &cq, &cq_context) == 0) ibv_ack_cq_events(cq, 1);
    return NULL;
}

static void *wait_for_connection(void *channel) {
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(channel, &event) == 0) rdma_ack_cm_event(event);
    return NULL;
}

static void *wait_for_async(void *of) {
    struct ibv_async_event event;
    if (ibv_get_async_event(of, &event) == 0) ibv_ack_async_event(&event);
    return NULL;
}

static void *poll_on(void *cq) {
    struct ibv_wc wc;
    for (;;) {
        pthread_testcancel();
        if (ibv_poll_cq(cq, 1, &wc) < 0) abort();
    }
}

/* Starts a thread in a call that waits, and cancels it before, in or after that. */
static void cancel(void *(*body)(void *), void *argument) {
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
    for (unsigned turns = draw(4) ? draw(2000) : 200000; turns; turns--) atomic_signal_fence(memory_order_seq_cst);
    if (draw(2)) sched_yield();
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && (result == PTHREAD_CANCELED || body == wait_for_async));
}

static void cancel_one(void) {
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0);
    struct rdma_event_channel *events = rdma_create_event_channel();
    CHECK(channel && cq && events && ibv_req_notify_cq(cq, 0) == 0);
    switch (draw(4)) {
        case 0: cancel(wait_for_completion, channel); break;
        case 1: cancel(wait_for_connection, events); break;
        case 2: cancel(wait_for_async, context); break;
        default: cancel(poll_on, cq);
    }
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
    rdma_destroy_event_channel(events);
}

/* A child's calls fail; it ends without harm to its parent. */
static void fork_one(void) {
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        struct ibv_device_attr attr;
        _exit(ibv_query_device(context, &attr) == EIO && !ibv_alloc_pd(context) && !ibv_create_cq(context, 4, NULL, NULL, 0) ? 0 : 1);
    }
    int status;
    CHECK(waitpid(process, &status, 0) == process && status == 0);
}

static void destroy_twice(void) {
    struct ibv_pd *other = ibv_alloc_pd(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0);
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(other, &init);
    struct ibv_qp_init_attr attr = queue_attr(cq, (struct queues){.sends = 4, .receives = 4, .elements = 1});
    attr.srq = draw(2) ? srq : NULL;
    struct ibv_qp *qp = ibv_create_qp(other, &attr);
    struct ibv_mr *mr = ibv_reg_mr(other, sources, PAGE, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mw *mw = ibv_alloc_mw(other, IBV_MW_TYPE_1);
    CHECK(other && channel && cq && srq && qp && mr && mw && ibv_dealloc_pd(other) == EBUSY);
    if (draw(2)) CHECK(set_state(qp, IBV_QPS_ERR) == 0);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(qp) == EINVAL && set_state(qp, IBV_QPS_INIT) == EINVAL);
    CHECK(ibv_destroy_srq(srq) == 0 && ibv_destroy_srq(srq) == EINVAL);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(cq) == EINVAL && ibv_req_notify_cq(cq, 0) == EINVAL);
    CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_destroy_comp_channel(channel) == EINVAL);
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(mr) == EINVAL && ibv_dealloc_mw(mw) == 0 && ibv_dealloc_mw(mw) == EINVAL);
    CHECK(ibv_dealloc_pd(other) == 0 && ibv_dealloc_pd(other) == EINVAL);
}

/* A connection whose memory is unmapped ends, and no other. */
static void unmap_one(int port) {
    struct pair pair = open_pair(port);
    char *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, PAGE, EVERYTHING);
    CHECK(mr && post_receive(pair.far->qp, 1, NULL, 0) == 0 && munmap(memory, PAGE) == 0);
    CHECK(post(pair.near->qp, IBV_WR_RDMA_WRITE, 2, source, 1 + draw(PAGE), (uintptr_t)memory, mr->rkey) == 0);
    CHECK(take(pair.far_cq, 1).status == IBV_WC_WR_FLUSH_ERR);
    take(pair.near_cq, 2);
    close_pair(&pair);
    CHECK(ibv_dereg_mr(mr) == 0);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    int rounds = count > 2 ? atoi(arguments[2]) : 60;
    state = count > 3 ? strtoull(arguments[3], NULL, 0) : 1;
    alarm(PATIENCE + rounds);
    CHECK((source = ibv_reg_mr(pd, sources, PAGE, EVERYTHING)) && (sink = ibv_reg_mr(pd, sinks, PAGE, EVERYTHING)));
    struct pair pair = open_pair(7800);
    pthread_t traffic;
    CHECK(pthread_create(&traffic, NULL, write_on, &pair) == 0);
    for (int round = 0; round < rounds; round++) {
        switch (draw(8)) {
            case 0: fork_one(); break;
            case 1:
            case 2: destroy_twice(); break;
            case 3: unmap_one(7801 + round % 1000); break;
            default: cancel_one();
        }
    }
    long before = written;
    while (written == before) sched_yield();
    ending = 1;
    CHECK(pthread_join(traffic, NULL) == 0);
    close_pair(&pair);
    CHECK(ibv_dereg_mr(source) == 0 && ibv_dereg_mr(sink) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    printf("torture: %d checks passed\n", checks);
    return 0;
}
