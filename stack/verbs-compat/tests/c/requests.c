/*
 * Requests that a listener's program does not fetch: bounded by the backlog of rdma_listen, and gone with their peers. Takes
 * the device's address. Prints `requests: N checks passed`.
 */
#include "connect.h"

enum { MANY = 40, BACKLOG = 5 };

static void check_backlog(void) {
    struct rdma_cm_id *listener = listen_at(7500, BACKLOG), *ids[MANY];
    int rejected = 0, fetched = 0;
    for (int one = 0; one < MANY; one++) ids[one] = connect_to(7500);
    /* Those beyond the backlog are rejected while nobody fetches the others. */
    for (int one = 0; one < MANY; one++)
        if (one >= BACKLOG) rejected += expect_in(ids[one]->channel, RDMA_CM_EVENT_REJECTED) == ids[one];
    CHECK(rejected == MANY - BACKLOG);
    for (; has_event(listener->channel, 100); fetched++) {
        struct rdma_cm_id *far = expect_in(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
        CHECK(rdma_destroy_id(far) == 0 && expect_in(ids[fetched]->channel, RDMA_CM_EVENT_REJECTED) == ids[fetched]);
    }
    CHECK(fetched == BACKLOG);
    for (int one = 0; one < MANY; one++) destroy(ids[one]);
    /* There is room again. */
    struct ends ends = connected(listener, 7500);
    destroy(ends.near);
    destroy(ends.far);
    destroy(listener);
}

/* The peers leave: their requests are no longer there, and do not fill the backlog. */
static void check_left_peers(void) {
    struct rdma_cm_id *listener = listen_at(7501, BACKLOG);
    int before = descriptors();
    for (int turn = 0; turn < 5 * BACKLOG; turn++) {
        struct rdma_cm_id *id = connect_to(7501);
        CHECK(has_event(listener->channel, 5000));
        destroy(id);
        for (int wait = 0; wait < 5000 && has_event(listener->channel, 0); wait++) poll(NULL, 0, 1);
        CHECK(!has_event(listener->channel, 0));
    }
    CHECK(descriptors() == before);
    struct ends ends = connected(listener, 7501);
    destroy(ends.near);
    destroy(ends.far);
    /* A request that was fetched stays the program's: to accept it fails later. */
    struct rdma_cm_id *id = connect_to(7501), *far = expect_in(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    destroy(id);
    add_queue_pair(far);
    if (rdma_accept(far, NULL) == 0) CHECK(expect_in(listener->channel, RDMA_CM_EVENT_REJECTED) == far);
    rdma_destroy_qp(far);
    CHECK(rdma_destroy_id(far) == 0);
    destroy(listener);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    check_backlog();
    check_left_peers();
    printf("requests: %d checks passed\n", checks);
    return 0;
}
