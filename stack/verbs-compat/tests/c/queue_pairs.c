/*
 * Queue pairs: states, rights of the peer, and what calls that fail leave. Run by scripts/verbs-programs.sh; takes the device's
 * address as its argument. Prints `queue_pairs: N checks passed`.
 */
#include <dirent.h>

#include "pair.h"

enum {
    REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
    EVERYTHING = IBV_ACCESS_LOCAL_WRITE | REMOTE,
};

static char near_buffer[4096], far_buffer[4096] __attribute__((aligned(8)));
static struct ibv_mr *near_mr, *far_mr;

static struct ibv_qp_attr query(struct ibv_qp *qp) {
    struct ibv_qp_attr attr = {0};
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
    return attr;
}

/* Without a connection there is no RTS: a program that has exchanged numbers itself finds out there, and not at its first
 * request. */
static void check_states(void) {
    struct ibv_cq *cq = ibv_create_cq(context, 32, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = queue_attr(cq, USUAL);
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    CHECK(qp && query(qp).qp_state == IBV_QPS_INIT);
    CHECK(set_state(qp, IBV_QPS_INIT) == 0 && set_state(qp, IBV_QPS_RTR) == 0 && query(qp).qp_state == IBV_QPS_RTR);
    CHECK(set_state(qp, IBV_QPS_RTS) == EINVAL && set_state(qp, IBV_QPS_RTS) == EINVAL);
    CHECK(set_state(qp, IBV_QPS_SQD) == EINVAL && set_state(qp, IBV_QPS_RESET) == EINVAL && set_state(qp, 77) == EINVAL);
    CHECK(query(qp).qp_state == IBV_QPS_RTR && qp->state == IBV_QPS_RTR);
    struct ibv_qp_attr nothing = {.qp_state = IBV_QPS_RTS};
    CHECK(ibv_modify_qp(qp, &nothing, 0) == 0 && ibv_modify_qp(qp, NULL, 0) == EINVAL);
    CHECK(set_state(qp, IBV_QPS_ERR) == 0 && query(qp).qp_state == IBV_QPS_ERR);
    CHECK(set_state(qp, IBV_QPS_INIT) == EINVAL && set_state(qp, IBV_QPS_RTS) == EINVAL && query(qp).qp_state == IBV_QPS_ERR);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
}

/* A connection makes it RTS, for which librdmacm has no attributes. */
static void check_connected_states(void) {
    struct pair pair = open_pair(7500);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    int mask = 0;
    CHECK(query(pair.near->qp).qp_state == IBV_QPS_RTS);
    CHECK(rdma_init_qp_attr(pair.near, &attr, &mask) == 0 && mask & IBV_QP_STATE && ibv_modify_qp(pair.near->qp, &attr, mask) == 0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK(rdma_init_qp_attr(pair.near, &attr, &mask) == 0 && ibv_modify_qp(pair.near->qp, &attr, mask) == 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK(rdma_init_qp_attr(pair.near, &attr, &mask) == 0 && mask == 0 && ibv_modify_qp(pair.near->qp, &attr, mask) == 0);
    CHECK(set_state(pair.near->qp, IBV_QPS_RTS) == 0 && query(pair.near->qp).qp_state == IBV_QPS_RTS);
    attr.qp_state = IBV_QPS_SQD;
    CHECK((errno = 0, rdma_init_qp_attr(pair.near, &attr, &mask)) == -1 && errno == EINVAL);
    CHECK(post_receive(pair.far->qp, 1, far_mr, 64) == 0 && post(pair.near->qp, IBV_WR_SEND, 2, near_mr, 8, 0, 0) == 0);
    CHECK(take(pair.near_cq, 2).status == IBV_WC_SUCCESS && take(pair.far_cq, 1).status == IBV_WC_SUCCESS);
    close_pair(&pair);
}

static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

/* ibv_create_qp(3): a call that fails returns null, sets errno and leaves nothing. */
static void check_refused_queue_pairs(void) {
    struct ibv_cq *cq = ibv_create_cq(context, 32, NULL, NULL, 0);
    int before = descriptors();
    for (int round = 0; round < 3000; round++) {
        struct ibv_qp_init_attr attr = queue_attr(cq, USUAL), kept;
        attr.cap.max_send_wr = 1 << 20;
        kept = attr;
        CHECK((errno = 0, !ibv_create_qp(pd, &attr)) && errno == EINVAL && !memcmp(&attr, &kept, sizeof attr));
    }
    CHECK(descriptors() == before && ibv_destroy_cq(cq) == 0);
}

/* ibv_modify_qp(3): if an attribute is invalid, none is modified, nor the state. */
static void check_invalid_attributes(void) {
    struct ibv_cq *cq = ibv_create_cq(context, 32, NULL, NULL, 0);
    struct ibv_qp_init_attr init = queue_attr(cq, USUAL);
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr good = {.qp_state = IBV_QPS_RTR, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ}, attr;
    int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
    attr = good, attr.port_num = 2;
    CHECK(qp && ibv_modify_qp(qp, &attr, mask) == EINVAL);
    attr = good, attr.pkey_index = 1;
    CHECK(ibv_modify_qp(qp, &attr, mask) == EINVAL);
    attr = good, attr.qp_access_flags = 1u << 31;
    CHECK(ibv_modify_qp(qp, &attr, mask) == EINVAL);
    attr = good, attr.max_rd_atomic = 255;
    CHECK(ibv_modify_qp(qp, &attr, mask | IBV_QP_MAX_QP_RD_ATOMIC) == EINVAL);
    attr = good, attr.max_dest_rd_atomic = 255;
    CHECK(ibv_modify_qp(qp, &attr, mask | IBV_QP_MAX_DEST_RD_ATOMIC) == EINVAL);
    CHECK(ibv_modify_qp(qp, &good, mask | IBV_QP_CAP) == EOPNOTSUPP);
    attr = good, attr.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(qp, &attr, mask) == EINVAL);
    attr = query(qp);
    CHECK(attr.qp_state == IBV_QPS_INIT && attr.qp_access_flags == EVERYTHING && !attr.sq_draining && attr.port_num == 1);
    CHECK(ibv_modify_qp(qp, &good, mask) == 0);
    attr = query(qp);
    CHECK(attr.qp_state == IBV_QPS_RTR && attr.qp_access_flags == IBV_ACCESS_REMOTE_READ);
    CHECK(ibv_query_qp(qp, NULL, 0, &init) == EINVAL && ibv_query_qp(NULL, &attr, 0, &init) == EINVAL);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
}

/* ibv_create_qp(3): the values are at least those that were asked for; those of receives are ignored with a shared queue. */
static void check_capabilities(void) {
    struct ibv_cq *cq = ibv_create_cq(context, 32, NULL, NULL, 0);
    struct ibv_qp_init_attr init = queue_attr(cq, USUAL), found;
    struct ibv_qp_attr attr;
    init.qp_context = &checks;
    init.sq_sig_all = 1;
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp && qp->qp_context == &checks && qp->pd == pd && qp->send_cq == cq && qp->recv_cq == cq && qp->context == context);
    CHECK(qp->qp_num && qp->qp_type == IBV_QPT_RC && init.cap.max_inline_data >= 64 && init.cap.max_send_wr >= 16);
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_CAP, &found) == 0 && found.qp_context == &checks && found.sq_sig_all == 1);
    CHECK(found.send_cq == cq && found.recv_cq == cq && found.qp_type == IBV_QPT_RC && !found.srq);
    CHECK(!memcmp(&found.cap, &init.cap, sizeof found.cap) && !memcmp(&attr.cap, &init.cap, sizeof attr.cap));
    CHECK(ibv_destroy_qp(qp) == 0);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    init.srq = srq;
    init.cap.max_recv_wr = 1 << 30;
    init.cap.max_recv_sge = 1 << 20;
    CHECK(srq && (qp = ibv_create_qp(pd, &init)) && qp->srq == srq && ibv_destroy_srq(srq) == EBUSY);
    CHECK(post_receive(qp, 1, NULL, 0) == EINVAL);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(cq) == 0);
}

enum how { BY_WRITE, BY_READ, BY_ATOMIC, WAYS };

static const enum ibv_wr_opcode OPCODES[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};
static const int RIGHTS[] = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC};

static int use(struct pair *pair, enum how how, uint64_t id) {
    return post(pair->near->qp, OPCODES[how], id, near_mr, 8, (uintptr_t)far_buffer, far_mr->rkey);
}

static void grant(struct ibv_qp *qp, int rights) {
    struct ibv_qp_attr attr = {.qp_access_flags = rights};
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS) == 0 && (int)query(qp).qp_access_flags == rights);
}

/* ibv_modify_qp(3), IBV_QP_ACCESS_FLAGS: what the peer may do through this queue pair, whatever the regions grant. */
static void check_rights(enum how how, int port) {
    struct pair pair = open_pair(port);
    CHECK((int)query(pair.far->qp).qp_access_flags == EVERYTHING);
    memset(near_buffer, 1, 8);
    memset(far_buffer, 2, 8);
    grant(pair.far->qp, EVERYTHING & ~RIGHTS[how]);
    /* The other operations still work. */
    for (enum how other = 0; other < WAYS; other++)
        if (other != how) CHECK(use(&pair, other, 10 + other) == 0 && take(pair.near_cq, 10 + other).status == IBV_WC_SUCCESS);
    /* Granted again, and withdrawn. */
    grant(pair.far->qp, EVERYTHING);
    CHECK(use(&pair, how, 20) == 0 && take(pair.near_cq, 20).status == IBV_WC_SUCCESS);
    grant(pair.far->qp, IBV_ACCESS_LOCAL_WRITE | (EVERYTHING & ~RIGHTS[how] & REMOTE));
    memset(far_buffer, 2, 8);
    memset(near_buffer, 1, 8);
    CHECK(post_receive(pair.far->qp, 3, far_mr, 64) == 0 && use(&pair, how, 30) == 0);
    struct ibv_wc wc = take(pair.near_cq, 30);
    /* A Write is complete when it is acknowledged: iWARP has no answer to it. */
    CHECK(how == BY_WRITE || wc.status != IBV_WC_SUCCESS);
    CHECK(take(pair.far_cq, 3).status == IBV_WC_WR_FLUSH_ERR);
    for (int at = 0; at < 8; at++) CHECK(far_buffer[at] == 2 && near_buffer[at] == 1);
    close_pair(&pair);
}

/* The right is kept from before the connection, as the program set it in INIT. */
static void check_rights_before_connection(void) {
    struct ibv_cq *cq = ibv_create_cq(context, 32, NULL, NULL, 0);
    struct ibv_qp_init_attr init = queue_attr(cq, USUAL);
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
    CHECK(qp && ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    CHECK(query(qp).qp_access_flags == IBV_ACCESS_REMOTE_READ);
    attr.qp_access_flags = 1u << 30;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS) == EINVAL && query(qp).qp_access_flags == IBV_ACCESS_REMOTE_READ);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    CHECK((near_mr = ibv_reg_mr(pd, near_buffer, sizeof near_buffer, EVERYTHING)));
    CHECK((far_mr = ibv_reg_mr(pd, far_buffer, sizeof far_buffer, EVERYTHING)));
    check_states();
    check_connected_states();
    check_refused_queue_pairs();
    check_invalid_attributes();
    check_capabilities();
    for (enum how how = 0; how < WAYS; how++) check_rights(how, 7510 + how);
    check_rights_before_connection();
    CHECK(ibv_dereg_mr(near_mr) == 0 && ibv_dereg_mr(far_mr) == 0 && ibv_dealloc_pd(pd) == 0);
    printf("queue_pairs: %d checks passed\n", checks);
    return 0;
}
