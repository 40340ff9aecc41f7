/*
 * The end of a process with open connections. Two processes at the ends of a memif: one receives a message and returns from
 * `main`, without a call that ends its connection; the other, which is named `stays`, sees an orderly end. Run by
 * scripts/verbs-programs.sh, which looks into the log of the one that stays. Takes the address of the one that ends.
 */
#include "connect.h"

static char buffer[64];

/* Opens the program's end and posts a receive. */
static void prepare(struct rdma_cm_id *id) {
    add_queue_pair(id);
    struct ibv_mr *mr = ibv_reg_mr(id->pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr && post_receive(id->qp, 1, mr, sizeof buffer) == 0);
}

static int stay(void) {
    struct rdma_cm_id *id = new_id(rdma_create_event_channel());
    struct sockaddr_in there = at(address, 7970);
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&there, 1000) == 0);
    CHECK(expect_in(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED) == id && rdma_resolve_route(id, 1000) == 0);
    CHECK(expect_in(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED) == id);
    prepare(id);
    CHECK(rdma_connect(id, &param) == 0 && expect_in(id->channel, RDMA_CM_EVENT_ESTABLISHED) == id);
    struct ibv_sge element = {.addr = (uintptr_t)"hello", .length = 6};
    struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &element, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
    CHECK(ibv_post_send(id->qp, &wr, &bad) == 0 && take(id->send_cq, 2).status == IBV_WC_SUCCESS);
    CHECK(expect_in(id->channel, RDMA_CM_EVENT_DISCONNECTED) == id);
    CHECK(take(id->recv_cq, 1).status == IBV_WC_WR_FLUSH_ERR);
    printf("exits: %d checks passed\n", checks);
    return 0;
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    alarm(PATIENCE);
    address = arguments[1];
    if (count > 2) return stay();
    struct rdma_cm_id *listener = listen_at(7970, 1), *id = expect_in(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    prepare(id);
    CHECK(rdma_accept(id, NULL) == 0 && expect_in(listener->channel, RDMA_CM_EVENT_ESTABLISHED) == id);
    CHECK(take(id->recv_cq, 1).status == IBV_WC_SUCCESS && !strcmp(buffer, "hello"));
    return 0;
}
