/*
 * pthread_cancel in every call that waits, at a thousand random times beside the traffic of a connection: no lock stays held, and
 * nothing is lost. Takes the device's address. Prints `cancels: N checks passed`.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "connect.h"

enum { ROUNDS = 1000, BYTES = 64 };

static char bytes[BYTES], sink[BYTES];
static struct ibv_mr *source, *target;
static atomic_int ending;
static struct rdma_event_channel *quiet;
static struct ibv_comp_channel *completions;
static struct rdma_cm_id *endpoint;

static void *write_on(void *of) {
    struct ends *ends = of;
    for (uint64_t id = 0; !ending; id++) {
        if (post(ends->near->qp, IBV_WR_RDMA_WRITE, id, source, BYTES, (uintptr_t)sink, target->rkey)) abort();
        if (take(ends->near->send_cq, id).status != IBV_WC_SUCCESS) abort();
    }
    return NULL;
}

static void *get_cm_event(void *ignored) {
    struct rdma_cm_event *event;
    rdma_get_cm_event(quiet, &event);
    return ignored;
}

static void *get_cq_event(void *ignored) {
    struct ibv_cq *cq;
    void *cq_context;
    ibv_get_cq_event(completions, &cq, &cq_context);
    return ignored;
}

static void *get_async_event(void *ignored) {
    struct ibv_async_event event;
    ibv_get_async_event(context, &event);
    return ignored;
}

static void *get_request(void *ignored) {
    struct rdma_cm_id *id;
    rdma_get_request(endpoint, &id);
    return ignored;
}

static void *(*const waits[])(void *) = {get_cm_event, get_cq_event, get_async_event, get_request};

static void cancel(unsigned round) {
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, waits[round % 4], NULL) == 0);
    /* Before, in and after the call: not at all, some thousand turns, or until it sleeps. */
    for (unsigned turns = round % 3 * (round * 7919 % 20000); turns; turns--) atomic_signal_fence(memory_order_seq_cst);
    if (round % 5 == 0) poll(NULL, 0, 1);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    /* The lock is free. */
    struct ibv_device_attr attr;
    CHECK(ibv_query_device(context, &attr) == 0);
}

/* A synchronous call that is cancelled goes on, and its event is that of the next call. */
static void *connect_endpoint(void *id) {
    rdma_connect(id, NULL);
    return NULL;
}

static void check_connect(void) {
    struct rdma_cm_id *listener = listen_at(7601, 1), *id = resolved_to(rdma_create_event_channel(), 7601);
    struct rdma_event_channel *channel = id->channel;
    pthread_t thread;
    void *result;
    add_queue_pair(id);
    CHECK(rdma_migrate_id(id, NULL) == 0 && pthread_create(&thread, NULL, connect_endpoint, id) == 0);
    struct rdma_cm_id *far = expect_in(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    CHECK(rdma_migrate_id(id, channel) == 0);
    add_queue_pair(far);
    CHECK(rdma_accept(far, NULL) == 0 && expect_in(channel, RDMA_CM_EVENT_ESTABLISHED) == id);
    destroy(id);
    rdma_destroy_qp(far);
    CHECK(rdma_destroy_id(far) == 0);
    destroy(listener);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    struct rdma_cm_id *listener = listen_at(7600, 1);
    struct ends ends = connected(listener, 7600);
    source = ibv_reg_mr(ends.near->pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE);
    target = ibv_reg_mr(ends.far->pd, sink, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *found;
    CHECK(source && target && rdma_getaddrinfo(address, "7602", &hints, &found) == 0);
    CHECK(rdma_create_ep(&endpoint, found, NULL, NULL) == 0 && rdma_listen(endpoint, 4) == 0);
    rdma_freeaddrinfo(found);
    CHECK((quiet = rdma_create_event_channel()) && (completions = ibv_create_comp_channel(context)));
    pthread_t traffic;
    CHECK(pthread_create(&traffic, NULL, write_on, &ends) == 0);
    for (unsigned round = 0; round < ROUNDS; round++) cancel(round);
    ending = 1;
    CHECK(pthread_join(traffic, NULL) == 0);
    check_connect();
    CHECK(ibv_destroy_comp_channel(completions) == 0);
    rdma_destroy_event_channel(quiet);
    rdma_destroy_ep(endpoint);
    CHECK(ibv_dereg_mr(source) == 0 && ibv_dereg_mr(target) == 0);
    destroy(ends.near);
    destroy(ends.far);
    destroy(listener);
    printf("cancels: %d checks passed\n", checks);
    return 0;
}
